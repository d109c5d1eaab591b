"""The folder that `pretrained_model_dir` names: since 1.6 a MindFormers file may leave the model to its Hugging Face config.json.

Values of the file's own model section win (`mindformers/models/build_config.py` merges them over those of the folder).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfkit.config.dialects._huggingface_model import EXPERTS, FILE, file_of_model, inner
from perfkit.config.dialects._section import Section

SPELLED = {"n_layer": "num_layers", "n_embd": "hidden_size", "n_head": "num_heads", "n_inner": "ffn_hidden_size"}
FAMILIES = {"gpt2": "GPT2Config", "bloom": "BloomConfig", "chatglm": "ChatGLM2Config"}


def with_pretrained(top: Section, config: Section) -> Section:
    """The model section with what the folder says below it; the section alone where no folder is named or found."""
    named = top.word("pretrained_model_dir", default="")
    found = next(_files(top, named), None) if named else None
    if found is None:
        return config
    values = _values(found, config)
    if not values:
        return config
    config.reading.note(f"{found.name} of {named} gives the model where this file does not")
    return Section(config.reading, config.name, {**_spelled(values), **config.values})


def _files(top: Section, named: str) -> Iterator[Path]:
    """The folder as it is named, or beside the configuration."""
    beside = top.reading.document.path
    folders = [Path(named)] if Path(named).is_absolute() or beside is None else [beside.parent / named, Path(named)]
    for folder in folders:
        if file := file_of_model(folder):
            yield file


def _values(file: Path, config: Section) -> dict[str, Any]:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        config.reading.problem("pretrained_model_dir", f"{FILE} cannot be read: {error}")
        return {}
    if not isinstance(values, dict):
        config.reading.problem("pretrained_model_dir", f"{FILE} is no object of names and values")
        return {}
    return dict(inner(values)[0])


def _spelled(values: dict[str, Any]) -> dict[str, Any]:
    """The values by the names that the model section has."""
    found = {SPELLED.get(name, name): value for name, value in values.items()}
    family = str(found.get("model_type", ""))
    found["type"] = FAMILIES.get(family, found.get("model_type", ""))
    for name in EXPERTS:
        if name in found and name != "num_experts":
            found.setdefault("num_experts", found[name])
    if family.startswith("qwen2"):
        found.setdefault("qkv_has_bias", True)
    return found
