"""Adapters of low rank as programs state them: a rank, and matrices by the names of modules, in a list, a text or a pattern.

They are counted only where all of it is stated and the model's matrices are known; else `data/key_effects.toml` names the keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from perfkit.config.dialects._adapter_pattern import matched
from perfkit.config.dialects._section import Section
from perfkit.config.dialects.key_effects import OFF
from perfkit.core.errors import InputError
from perfkit.core.spec.adapters import Adapters, Target
from perfkit.core.spec.model import ModelSpec
from perfkit.core.texts import say

HUGGING_FACE: Mapping[Target, str] = {
    **{"query": "q_proj", "key": "k_proj", "value": "v_proj", "qkv": "qkv_proj", "output": "o_proj"},
    **{"gate": "gate_proj", "up": "up_proj", "gate_up": "gate_up_proj", "down": "down_proj"},
}
MINDFORMERS: Mapping[Target, str] = {
    **{"query": "wq", "key": "wk", "value": "wv", "qkv": "query_key_value", "output": "wo", "gate": "w1", "up": "w3", "down": "w2"},
    "gate_up": "dense_h_to_4h",
}
MEGATRON: Mapping[Target, str] = {
    **{"qkv": "linear_qkv", "output": "linear_proj", "gate_up": "linear_fc1", "up": "linear_fc1", "down": "linear_fc2"},
}
"""The name of the module of a matrix; Megatron's first one of a feed-forward block holds the gate where there is any."""
MODULES: Mapping[str, Target] = {
    **{name: target for names in (MEGATRON, MINDFORMERS, HUGGING_FACE) for target, name in names.items()},
    **{"W_pack": "qkv", "wqkv": "qkv", "w_qkv": "qkv", "dense_4h_to_h": "down", "linear_fc1": "gate_up"},
}
"""Matrices by all names of modules."""
ALL = ("all", "all-linear")
"""Words for all matrices of the layers; of models that fuse some this counts a first factor for each that they hold."""
BLOCKS = "self_attn|attn|attention|self_attention|mlp|ffn|feed_forward"
PLAIN = re.compile(rf"(?:(?:{BLOCKS})\\?\.)?(\w+)")
Form = Literal["words", "pattern", "start"]
EVERY = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, slots=True)
class Named:
    """Where a section says what adapters it trains: keys of rank and targets, what the program takes for either, and the rest.

    `beside` are keys that decide nothing more once adapters are counted, `others` those that train something else besides: with
    one of them nothing is counted here.
    """

    ranks: tuple[str, ...]
    targets: tuple[str, ...]
    rank: int = 0
    target: str = ""
    beside: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    form: Form = "words"


def with_adapters(config: Section, model: ModelSpec, named: Named) -> ModelSpec:
    """The model with the adapters that a section states, and its keys as read; the model as it is where not all is known."""
    values = config.values
    if any(values.get(key) not in OFF for key in named.others):
        return model
    key, modules = config.has(*named.ranks), config.has(*named.targets)
    rank, found = values.get(key, named.rank), _targets(values.get(modules, named.target), model, named.form)
    if type(rank) is not int or rank < 1 or not found:
        return model
    try:
        adapted = replace(model, adapters=Adapters(rank=rank, targets=tuple(found)))
    except InputError:  # of matrices that are not counted
        return model
    config.reading.adapted = True
    config.asked(*named.ranks, *named.targets, *named.beside)
    form, matrices = "adapters of rank {rank} on {targets} are trained, all other weights are frozen", ", ".join(found)
    config.reading.note(say(form, rank=str(rank), targets=matrices))
    return adapted


def modules_of(adapters: Adapters, names: Mapping[Target, str] = HUGGING_FACE) -> list[str]:
    """The modules that have adapters; none where a program has no name for one of them."""
    return [names[target] for target in adapters.targets] if set(adapters.targets) <= set(names) else []


def _targets(stated: Any, model: ModelSpec, form: Form) -> list[Target]:
    """The matrices that modules in a list or a text, or a pattern, name in all layers; none where one of them is not known."""
    gated = model.gated_ffn
    if isinstance(stated, str) and stated in ALL:
        return [_target(name, gated) for name in EVERY if gated or name != "gate_proj"]
    if isinstance(stated, str) and form == "pattern":
        return matched(stated, model)
    if isinstance(stated, str):
        stated = re.split("[|]" if form == "start" else "[, ]", stated)
    words = [str(word) for word in stated if word != ""] if isinstance(stated, list | tuple) else []
    names = [_plain(word.removeprefix(".*").removesuffix("*") if form == "start" else word) for word in words]
    if any(name not in MODULES for name in names):
        return []
    return list(dict.fromkeys(_target(name, gated) for name in names))


def _plain(word: str) -> str:
    """A module's name without the block that it is in; "" where a word has more, such as what chooses among layers."""
    found = PLAIN.fullmatch(word)
    return found[1] if found else ""


def _target(name: str, gated: bool) -> Target:
    """The matrix of a name; the first of a feed-forward block without a gate is the one up."""
    target = MODULES[name]
    return "up" if target == "gate_up" and not gated else target
