"""Recompute settings as checks see them: patterns with their keys, and lists of counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from perfkit.config.lint.subjects import Config

SECTIONS = ("recompute_config", "parallel_config.recompute_config")
SELECTIVE = ("select_recompute", "select_comm_recompute", "select_recompute_exclude", "select_comm_recompute_exclude")

OTHER_LAYERS = ("ChatGLM", "YiZhao", "GPT2", "PanguAlpha", "Bloom", "Glm", "T5", "Bert")
"""Models whose layers have other names than Llama's; nothing can be said about their patterns."""


def has_known_names(config: Config) -> bool:
    """Whether the names of this model's layers are known."""
    return not str(config.get("model.model_config.type")).startswith(OTHER_LAYERS)


def patterns_of(config: Config) -> Iterator[tuple[str, str]]:
    """Selective patterns with the key that holds them, in lists or as keys of counts."""
    for section in SECTIONS:
        for name in ("select_recompute",):
            value = config.get(f"{section}.{name}")
            if isinstance(value, list):
                yield from ((f"{section}.{name}", item) for item in value if isinstance(item, str))
            elif isinstance(value, Mapping):
                yield from ((f"{section}.{name}.{item}", str(item)) for item in value)


def lists_of(config: Config) -> Iterator[tuple[str, list[Any]]]:
    """Lists of counts of all recompute settings with their keys."""
    for section in SECTIONS:
        for name in ("recompute", *SELECTIVE):
            value = config.get(f"{section}.{name}")
            if isinstance(value, list) and value and not isinstance(value[0], str):
                yield f"{section}.{name}", value
            elif isinstance(value, Mapping):
                yield from (
                    (f"{section}.{name}.{key}", counts) for key, counts in value.items() if isinstance(counts, list) and counts
                )
