"""The matrices that a regular expression for whole names of modules chooses, as PEFT reads a text `target_modules` (re.fullmatch).

It is held against the names that Hugging Face's models have in all layers. One that chooses among layers, that has words of no
known name, or that would take long to be matched, chooses nothing here, so that its keys are named as not counted.
"""

from __future__ import annotations

import re

from perfkit.core.spec.adapters import OF_GATE, PACKED, Target
from perfkit.core.spec.model import ModelSpec

NAMES: tuple[tuple[str, Target], ...] = (
    ("self_attn.q_proj", "query"),
    ("self_attn.k_proj", "key"),
    ("self_attn.v_proj", "value"),
    ("self_attn.qkv_proj", "qkv"),
    ("self_attn.W_pack", "qkv"),
    ("self_attn.o_proj", "output"),
    ("mlp.gate_proj", "gate"),
    ("mlp.up_proj", "up"),
    ("mlp.gate_up_proj", "gate_up"),
    ("mlp.down_proj", "down"),
)
OUTSIDE = ("lm_head", "model.embed_tokens")
"""Matrices beside the layers; adapters of these are not counted."""
WORDS = " ".join(("model.layers", *(name for name, _ in NAMES), *OUTSIDE))
LONGEST, MOST_LAYERS = 200, 1000
MOST_CHOICES = 6
"""Groups and repetitions of a pattern, which may have to be tried in all ways."""
REPEATED_GROUP = re.compile(r"\)[*+{]")
CHOICE = re.compile(r"\(|(?<!\()[*+?{]")
EXCLUDED = re.compile(r"\(\?!.*?\)")
ESCAPE = re.compile(r"\\.|\(\?:")


def matched(pattern: str, model: ModelSpec) -> list[Target]:
    """The matrices that a pattern names in all layers; none where it is not counted."""
    if not is_short(pattern) or model.num_layers > MOST_LAYERS:
        return []
    words = re.findall(r"[A-Za-z_]\w*", ESCAPE.sub(" ", EXCLUDED.sub("", pattern)))
    if any(word not in WORDS for word in words):
        return []
    try:
        whole = re.compile(pattern).fullmatch
    except (re.error, OverflowError, RecursionError):
        return []
    if any(whole(name) for name in OUTSIDE):
        return []
    found: list[Target] = []
    for name, target in NAMES:
        hits = {whole(f"model.layers.{layer}.{name}") is not None for layer in range(model.num_layers)}
        if len(hits) > 1:
            return []
        if hits == {True} and (model.gated_ffn or target not in OF_GATE):
            found.append(target)
    # A name that holds others counts where the pattern has none of these: which of them a model has it does not say.
    return [target for target in dict.fromkeys(found) if not set(PACKED.get(target, ())) & set(found)]


def is_short(pattern: str) -> bool:
    """Whether a pattern is held against a name at once, however few it matches."""
    if len(pattern) > LONGEST or REPEATED_GROUP.search(pattern):
        return False
    parts = [pattern] if "(" in pattern else pattern.split("|")
    return all(len(CHOICE.findall(part)) <= MOST_CHOICES for part in parts)
