"""Frozen layers as programs state them: rules over the names of parameters, which are those of Hugging Face's Llama and its like.

A rule says of every name whether it is trained. It is counted if what it trains are whole parts of the first or of the last layers,
and whole parts beside the layers; else `data/key_effects.toml` names the keys.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Protocol

from perfkit.config.dialects._adapter_pattern import MOST_LAYERS, is_short
from perfkit.config.dialects._section import Section
from perfkit.config.dialects.key_effects import OFF
from perfkit.core.errors import InputError
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.trained import LAYER_PARTS, LayerPart, Outside, TrainedLayers
from perfkit.core.texts import joined, say

OUTSIDE: dict[Outside, str] = {
    "embedding": "model.embed_tokens.weight",
    "final_norm": "model.norm.weight",
    "head": "lm_head.weight",
}
BLOCKS: dict[str, LayerPart] = {
    "self_attn": "attention",
    "mlp": "feed_forward",
    "input_layernorm": "norms",
    "post_attention_layernorm": "norms",
}
"""Modules of a layer."""
OF_LAYER = re.compile(r"model\.layers\.(\d+)\.(\w+)")
OF_SWIFT = (
    *("freeze_parameters", "freeze_parameters_ratio", "freeze_parameters_regex", "trainable_parameters"),
    "trainable_parameters_regex",
)
"""Rules of ms-swift, in the order in which they count (`swift/utils/torch_utils.py`)."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """What is trained, and how many of the first layers are computed again (None: as the file says)."""

    trained: TrainedLayers
    full_layers: int | None = None

    def recompute(self, stated: RecomputePlan) -> RecomputePlan:
        """What is computed again where the file states so much."""
        if self.full_layers is None or not stated.all_layers:
            return stated
        return RecomputePlan(full_layers=((self.full_layers,),))


class Rule(Protocol):
    """What finds the layers that a program trains; None where none are frozen, or they are not counted."""

    def __call__(self, options: Section, model: ModelSpec, *, repeats: bool) -> Frozen | None: ...


def of_llama_factory(options: Section, model: ModelSpec, *, repeats: bool) -> Frozen | None:
    """The layers of `finetuning_type: freeze` (`model/adapter.py`, `_setup_freeze_tuning`); None where that is not counted.

    Layers are computed again only where one of their own weights is trained (`model_utils/checkpointing.py`).
    """
    values = options.values
    stated, sizes = values.get("freeze_trainable_layers", 2), _sizes(model)
    modules, extra = (
        _words(values.get(key, usual)) for key, usual in (("freeze_trainable_modules", "all"), ("freeze_extra_modules", ""))
    )
    outside = {name.split(".")[-2] for name in OUTSIDE.values() if name in sizes}
    known = set(modules) <= _modules(model) and set(extra) <= outside and type(stated) is int
    if not sizes or not known or values.get("use_llama_pro") not in OFF:
        return None
    count = min(abs(stated), model.num_layers)
    first = model.num_layers - count if stated > 0 else 0
    if "all" in modules and count and first < model.num_experts:
        # Of a layer 46 the text `.46.` is found in `experts.46.` of every layer.
        options.reading.note(say("numbers of trained layers are numbers of experts too, which are then trained in every layer"))
        return None
    blocks = [f".{layer}.{'' if module == 'all' else module}" for layer in range(first, first + count) for module in modules]
    found = _counted(model, {name for name in sizes if any(part in name for part in (*blocks, *extra))})
    if found is None or not repeats or found.skipped(model.num_layers) or found.count == model.num_layers or found.input_gradients:
        return None if found is None else Frozen(found)
    # Of the frozen layers that gradients pass none is computed again: counts of first layers say so of those behind.
    return Frozen(found, full_layers=found.first) if found.first else None


def of_swift(options: Section, model: ModelSpec, *, repeats: bool) -> Frozen | None:
    """The layers that ms-swift's rules leave to be trained; None where none is stated, or they are not counted.

    Where layers are computed again all have a backward pass (`trainers/mixin.py`: `enable_input_require_grads`).
    """
    values = {key: options.values.get(key) for key in OF_SWIFT}
    sizes, ratio = _sizes(model), values["freeze_parameters_ratio"] or 0.0
    patterns = [_pattern(values[key]) for key in ("freeze_parameters_regex", "trainable_parameters_regex")]
    numeric = isinstance(ratio, int | float) and not isinstance(ratio, bool) and 0 <= ratio <= 1
    if all(value in OFF for value in values.values()) or not sizes or not numeric or False in patterns:
        return None
    if model.num_experts or options.values.get("freeze_llm") not in OFF:
        return None
    frozen = {*_share(sizes, ratio, options), *_starting(sizes, values["freeze_parameters"]), *_matching(sizes, patterns[0])}
    trained = sizes.keys() - frozen | {*_starting(sizes, values["trainable_parameters"]), *_matching(sizes, patterns[1])}
    if trained == sizes.keys():  # nothing is frozen, and nothing of the rules is left to be told
        options.asked(*OF_SWIFT)
        return None
    found = _counted(model, trained)
    if found is None:
        return None
    down = not found.trains("embedding") and (repeats or found.input_gradients)
    return Frozen(replace(found, input_gradients=down))


def told(trained: TrainedLayers) -> str:
    """What is trained, in words."""
    if trained.count:
        return say("{layers} of the layers are trained, all other weights are frozen", layers=str(trained))
    words = {"embedding": say("the embedding"), "final_norm": say("the final norm"), "head": say("the head")}
    if len(trained.outside) == 1:
        return say("only {part} is trained, all layers are frozen", part=words[trained.outside[0]])
    return say("only {parts} are trained, all layers are frozen", parts=joined([words[part] for part in trained.outside], ", "))


def extra_modules(trained: TrainedLayers, *, tied: bool) -> list[str]:
    """Names of the modules beside the layers that are trained."""
    return [OUTSIDE[part].split(".")[-2] for part in trained.outside if not (tied and part == "head")]


def layer_modules(trained: TrainedLayers) -> list[str]:
    """Names of the modules of a layer that are trained."""
    return ["all"] if trained.parts == LAYER_PARTS else [name for name, part in BLOCKS.items() if part in trained.parts]


def _modules(model: ModelSpec) -> set[str]:
    """Words for modules of a layer; Mixtral's experts stand in `block_sparse_moe`, in `mlp` since transformers 5."""
    words = {*BLOCKS, "all"}
    return words - {"mlp"} if model.num_experts and "mixtral" in model.name.lower() else words


def _sizes(model: ModelSpec) -> dict[str, int]:
    """Elements of every parameter by its name, in the order in which the library lists them; empty for models of other names.

    Of experts one stands for all.
    """
    if model.norm != "rmsnorm" or not model.gated_ffn or model.kv_lora_rank or model.num_layers > MOST_LAYERS:
        return {}
    h, d, f = model.hidden_size, model.head_size, model.ffn_hidden_size
    queries, keys = model.num_attention_heads * d, model.num_key_value_heads * d
    found = {OUTSIDE["embedding"]: model.vocab_size * h}
    for layer in range(model.num_layers):
        for name, size in _of_layer((h, f, queries, keys), biased=model.bias != "none", normed=d if model.query_key_norm else 0):
            found[f"model.layers.{layer}.{name}"] = size
    found[OUTSIDE["final_norm"]] = h
    return found if model.tied_embeddings else found | {OUTSIDE["head"]: model.vocab_size * h}


def _of_layer(sizes: tuple[int, int, int, int], *, biased: bool, normed: int) -> Iterator[tuple[str, int]]:
    h, f, queries, keys = sizes
    for name, size in (("q", queries), ("k", keys), ("v", keys)):
        yield f"self_attn.{name}_proj.weight", h * size
        if biased:
            yield f"self_attn.{name}_proj.bias", size
    yield "self_attn.o_proj.weight", queries * h
    for name in ("q_norm", "k_norm") if normed else ():
        yield f"self_attn.{name}.weight", normed
    for name in ("gate", "up", "down"):
        yield f"mlp.{name}_proj.weight", h * f
    yield "input_layernorm.weight", h
    yield "post_attention_layernorm.weight", h


def _counted(model: ModelSpec, trained: Collection[str]) -> TrainedLayers | None:
    """The layers that these names train; None where they are no whole parts of first or last layers.

    Norms of layers whose other weights are frozen are so few that only their gradients count, which go through all layers.
    """
    every: dict[int, dict[LayerPart, list[bool]]] = {}
    for name in _sizes(model):
        if found := OF_LAYER.match(name):
            parts = every.setdefault(int(found[1]), {})
            parts.setdefault(BLOCKS[found[2]], []).append(name in trained)
    if any(len(set(flags)) > 1 for parts in every.values() for flags in parts.values()):
        return None
    of_layers = [tuple(part for part in LAYER_PARTS if parts[part][0]) for parts in every.values()]
    kinds = set(of_layers) - {()}
    norms = kinds - {("norms",)} if len(kinds) > 1 else kinds
    if len(norms) > 1:
        return None
    own = next(iter(norms), ())
    places = [layer for layer, parts in enumerate(of_layers) if parts and parts == own]
    count, layers = len(places), model.num_layers
    side = "last" if places == list(range(layers - count, layers)) else "first" if places == list(range(count)) else ""
    outside = [part for part, name in OUTSIDE.items() if name in trained]
    if model.tied_embeddings and "embedding" in outside:
        outside.append("head")
    if not side:
        return None
    try:
        return TrainedLayers(
            **{side: count}, parts=own or LAYER_PARTS, outside=tuple(outside), input_gradients=len(kinds) > len(norms)
        )
    except InputError:  # nothing is trained
        return None


def _share(sizes: Mapping[str, int], ratio: float, options: Section) -> list[str]:
    """The first names that have a share of all elements, without those of a layer of which some are left."""
    names, ends = list(sizes), list(accumulate(sizes.values()))
    count = bisect_right(ends, int(ends[-1] * ratio)) if ratio else 0
    cut = OF_LAYER.match(names[count]) if 0 < count < len(names) else None
    whole = [name for name in names[:count] if not (cut and name.startswith(f"model.layers.{cut[1]}."))]
    if len(whole) < count:
        options.reading.note(say("the layer within which the frozen share ends is counted as trained"))
    return whole


def _words(stated: Any) -> list[str]:
    """Words in a text or a list."""
    words = re.split(r"[,\s]+", stated) if isinstance(stated, str) else stated if isinstance(stated, list | tuple) else []
    return [str(word).strip() for word in words if str(word).strip()]


def _pattern(stated: Any) -> re.Pattern[str] | bool | None:
    """The regular expression of a text; False for one that is not held against names here."""
    if stated in OFF:
        return None
    if not isinstance(stated, str) or not is_short(stated):
        return False
    try:
        return re.compile(stated)
    except (re.error, OverflowError, RecursionError):
        return False


def _starting(names: Collection[str], stated: Any) -> list[str]:
    return [name for name in names if name.startswith(tuple(_words(stated)))]


def _matching(names: Collection[str], pattern: re.Pattern[str] | bool | None) -> list[str]:
    return [name for name in names if isinstance(pattern, re.Pattern) and pattern.search(name)]
