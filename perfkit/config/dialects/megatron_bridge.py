"""Megatron-Bridge YAML: a saved `ConfigContainer` (`run_config.yaml`, a dry run's), or the groups that override one.

The groups `language_model` and `model_parallel` of Megatron-LM's own YAML, which MindSpeed-Core-MS has too, are read likewise. The
file does not say how many devices there are, but where `comm_overlap.data_parallel_size` does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import Any

from perfkit.config.dialects import yaml
from perfkit.config.dialects._bridge_keys import ADAPTERS, PRESET, REPLICAS, changes_of, flat, is_recipe, plain, read_names
from perfkit.config.dialects._megatron_plan import plan_of
from perfkit.config.dialects._megatron_settings import settings
from perfkit.config.dialects._section import Reading, Section, shown
from perfkit.config.dialects._yaml_values import block, nested
from perfkit.config.dialects.dialect import Changes, Dialect, Document
from perfkit.config.dialects.splice import splice, value_at
from perfkit.core.spec.plan import Plan

SAVED = re.compile(r"^_target_:[ \t]*megatron\.bridge\.", re.MULTILINE)
GROUPS = re.compile(r"^(?:train|ddp|comm_overlap|mixed_precision)[ \t]*:", re.MULTILINE)
MODEL = re.compile(
    r"^model[ \t]*:[^\n]*\n(?:[ \t]+[^\n]*\n|[ \t]*\n)*?[ \t]+(?:(?:tensor|pipeline)_model_parallel_size|num_layers)[ \t]*:",
    re.MULTILINE,
)
PLAIN = re.compile(
    r"^language_model[ \t]*:(?=[\s\S]*^model_parallel[ \t]*:)|^model_parallel[ \t]*:(?=[\s\S]*^language_model[ \t]*:)", re.MULTILINE
)
SPLITS = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
HEADER = "# Settings of a ConfigContainer; data, tokenizer, learning rate and logging are still to be added.\n"


def detect(document: Document) -> bool:
    """Whether the text is a saved container, or has its groups with the names of Megatron-Core's fields."""
    text = document.text
    if SAVED.search(text) or PLAIN.search(text):
        return True
    return GROUPS.search(text) is not None and MODEL.search(text) is not None


def read(document: Document) -> Plan:
    """The plan of the groups. Raises InputError with every problem, each with line, key and value."""
    parsed = yaml.parse(document.text, document.name)
    values = plain(parsed.values)
    options, names = flat(values)
    names["world_size"] = ".".join(REPLICAS)
    lines = {option: parsed.lines[name] for option, name in names.items() if name in parsed.lines}
    reading = Reading(document, lines=lines, names=names, notes=list(parsed.duplicates))
    preset, replicas = value_at(values, PRESET), value_at(values, REPLICAS)
    if not (preset is None or isinstance(preset, Mapping) or is_recipe(preset)):
        reading.problem("mixed_precision", f"{shown(preset)} must be a section, or a recipe such as bf16_mixed or fp16_mixed")
    if replicas is not None:
        countable = isinstance(replicas, int) and replicas > 0
        options["world_size"] = replicas * prod(_whole(options.get(size)) for size in SPLITS) if countable else replicas
    section = Section(reading, "", _with_lora(options, parsed.values))
    if not SAVED.search(document.text) and not {"hidden_size", "num_attention_heads"} & options.keys():
        reading.problem(
            "model", "overrides a recipe, which has the sizes; the program saves all settings as run_config.yaml: open that"
        )
    stated = {group: value for group, value in values.items() if value is not None}
    return plan_of(section, {}, lambda: reading.annotated("megatron-bridge", stated, read_names(values, reading.used)))


def _with_lora(options: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The options without those of adapters that are of another kind, or leave out what the recipe has."""
    stated = values.get("peft")
    kind = str(stated.get("_target_", "LoRA")).rpartition(".")[2] if isinstance(stated, Mapping) else ""
    counted = kind == "LoRA" and options.keys() >= set(ADAPTERS)
    return options if counted else {name: value for name, value in options.items() if name not in ADAPTERS}


def _whole(size: Any) -> int:
    """A size that counts, else 1: its own reader tells what is wrong with it."""
    return size if isinstance(size, int) and size > 0 else 1


def edit(document: Document, changes: Changes) -> tuple[str, tuple[str, ...]]:
    """The document's text with values changed."""
    values = yaml.parse(document.text, document.name).values
    return splice(document.text, document.name, changes_of(changes, values))


def new(settings: Changes) -> str:
    """A new file of settings, with the replicas that the devices make."""
    given = {path: value for path, value in settings.items() if value is not None}
    found = changes_of(given, {})
    replicas = given["world_size",] // prod(given[size,] for size in SPLITS)
    overlap = {
        "tp_comm_overlap": bool(given.get(("tp_comm_overlap",))),
        "overlap_grad_reduce": bool(given.get(("overlap_grad_reduce",))),
        "overlap_moe_expert_parallel_comm": bool(given.get(("overlap_moe_expert_parallel_comm",))),
    }
    overlap["overlap_p2p_comm"] = not given.get(("no_overlap_p2p_communication",))
    tree = nested({path: value for path, value in found.items() if path[-1] not in overlap})
    return HEADER + block({**tree, "comm_overlap": {**overlap, "data_parallel_size": replicas}})


SIZES_BY_KEY: dict[str, tuple[str, ...]] = {
    "tensor": ("model.tensor_model_parallel_size",),
    "pipeline": ("model.pipeline_model_parallel_size",),
    "context": ("model.context_parallel_size",),
    "expert": ("model.expert_model_parallel_size",),
    "batch": ("train.micro_batch_size",),
    "global_batch": ("train.global_batch_size",),
    "virtual": ("model.virtual_pipeline_model_parallel_size",),
    "seq_length": ("model.seq_length",),
    "hidden": ("model.hidden_size",),
    "layers": ("model.num_layers",),
    "heads": ("model.num_attention_heads",),
    "kv_heads": ("model.num_query_groups",),
    "ffn": ("model.ffn_hidden_size",),
    "vocab": ("model.vocab_size",),
    "sequence_parallel": ("model.sequence_parallel",),
    "optimizer_parallel": ("ddp.use_distributed_optimizer",),
}
SIZES_BY_KEY |= {
    name: (key, *(f"{group}{key.partition('.')[2]}" for group in ("language_model.", "model_parallel.", "")))
    for name, (key,) in SIZES_BY_KEY.items()
}
"""Where this dialect states what checks compare, by the names of `perfkit.config.lint.facts`."""

DIALECT = Dialect(
    name="megatron-bridge",
    title="Megatron-Bridge YAML",
    looks_for="_target_: megatron.bridge..., or groups such as model and train with tensor_model_parallel_size",
    detect=detect,
    read=read,
    parse=yaml.parse,
    sizes=SIZES_BY_KEY,
    settings=settings,
    edit=edit,
    new=new,
    suffix=".yaml",
)
