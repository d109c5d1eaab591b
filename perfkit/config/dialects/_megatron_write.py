"""Writing Megatron arguments: options in place, or a new launch script with the options in groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfkit.config.dialects._args_edit import edit_json, edit_script, find, option_text, set_variable, value_text
from perfkit.config.dialects.args import ENVIRONMENT, OPTIONS, TESTED, in_groups, parse, places
from perfkit.config.dialects.dialect import Changes, Document
from perfkit.config.dialects.megatron_options import FLAGS, LISTS
from perfkit.config.dialects.splice import splice

DEVICES_PER_NODE = 8
GROUPS = {"MODEL_ARGS": "num_layers", "TRAINING_ARGS": "seq_length", "PARALLEL_ARGS": "tensor_model_parallel_size"}
SYSTEM = "system"
HEADER = "#!/bin/bash\n# Model, parallel and recompute options; data, tokenizer, learning rate and logging are still to be added.\n"


def edit(document: Document, changes: Changes) -> tuple[str, tuple[str, ...]]:
    """The document's text with options changed, added or, for None, removed."""
    text, options = document.text, {path[0]: value for path, value in changes.items()}
    if text.lstrip().startswith(("{", "[")):
        text, notes = edit_json(text, options, LISTS)
        return text, tuple(notes)
    devices = options.pop("world_size", None)
    if TESTED.search(text):
        given: dict[tuple[str, ...], Any] = {} if devices is None else {(ENVIRONMENT, "WORLD_SIZE"): devices}
        given |= {(OPTIONS, "--" + name.replace("_", "-")): value for name, value in options.items()}
        return splice(text, document.name, given)
    if in_groups(text):
        where = places(text, document.name)
        given = {where.get(name, (SYSTEM, name)): value for name, value in options.items()}
        text, more = splice(text, document.name, given)
        return text, (*more, *([] if devices is None else ["the number of devices stands in the list of hosts, not in this file"]))
    text, notes = edit_script(text, options, FLAGS, LISTS, _lines)
    if devices is not None:
        text = _with_devices(text, devices, notes)
    return text, tuple(notes)


def _lines(text: str) -> Mapping[str, int]:
    return parse(text, "", FLAGS, LISTS).lines


def new(settings: Changes) -> str:
    """A launch script of settings."""
    values = {path[0]: value for path, value in settings.items() if value is not None}
    devices = values.pop("world_size")
    nodes, each = _nodes(devices)
    text = f"{HEADER}\nNODES={nodes}\nDEVICES_PER_NODE={each}\n\n"
    for name, options in _grouped(values).items():
        text += f"{name}=(\n" + "".join(f"    {option_text(key, value)}\n" for key, value in options.items()) + ")\n\n"
    arrays = " ".join(f'"${{{name}[@]}}"' for name in GROUPS)
    return f"{text}torchrun --nproc_per_node $DEVICES_PER_NODE --nnodes $NODES pretrain_gpt.py \\\n    {arrays}\n"


def _grouped(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Options by group; a group starts at its first option."""
    starts, group = {first: name for name, first in GROUPS.items()}, "MODEL_ARGS"
    groups: dict[str, dict[str, Any]] = {name: {} for name in GROUPS}
    for key, value in values.items():
        group = starts.get(key, group)
        groups[group][key] = value
    return groups


def _nodes(devices: int) -> tuple[int, int]:
    return (1, devices) if devices % DEVICES_PER_NODE else (devices // DEVICES_PER_NODE, DEVICES_PER_NODE)


def _with_devices(text: str, devices: int, notes: list[str]) -> str:
    """The launcher's sizes, or WORLD_SIZE, for another number of devices."""
    each = find(text, "nproc_per_node", False, False)
    if each is None:
        changed = set_variable(text, "WORLD_SIZE", devices)
        return changed if changed is not None else _with_variable(text, devices)
    asked = text[each.value_start : each.value_end]
    per_node = int(asked) if asked.isdigit() and devices % int(asked) == 0 else 0
    nodes = (devices // per_node, per_node) if per_node else _nodes(devices)
    options = {"nproc_per_node": nodes[1], "nnodes": nodes[0]}
    text, more = edit_script(text, options, FLAGS, LISTS, _lines)
    notes += more
    return text


def _with_variable(text: str, devices: int) -> str:
    """A line that sets WORLD_SIZE, after the comments at the top."""
    lines = text.splitlines(keepends=True)
    place = next((index for index, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return "".join([*lines[:place], f"WORLD_SIZE={value_text(devices)}\n", *lines[place:]])
