"""Strategy space: every way to divide a model over devices, and the rules that a division must keep.

A space lists what may be chosen for every dimension; `enumerate_strategies` builds all combinations as columns, drops those that
break a rule as soon as the dimensions of the rule are known, and counts them by reason. Every combination is counted once: under
the first rule that it breaks, or as kept. `broken_rules` lists all rules that one strategy breaks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from perfkit.core.errors import InputError

Ints = npt.NDArray[np.int64]
Columns = Mapping[str, Ints]

ORDER = ("tp", "cp", "pp", "vpp", "ep", "mbs", "copies", "zero", "shard", "sp", "recompute")
"""Dimensions in the order in which they are chosen, which is the order of the rows; dp and m (micro batches) follow from them."""

OPTIONAL = frozenset({"zero", "shard", "sp", "recompute"})
"""Dimensions that can be 0."""

MOST_CHUNKS = 10
MICRO_BATCHES = (1, 2, 4, 8)

SIZES = ("devices", "layers", "heads", "kv_heads", "vocab", "seq_len", "global_batch")


@dataclass(frozen=True, kw_only=True, slots=True)
class StrategySpace:
    """What may be chosen: sizes for every dimension beside the sizes of the model that rules refer to.

    `zero` is 0 (nothing shared) to 3, `shard` the devices that share (0: all of dp x cp, or of dp where `shares_context` is off),
    `copies` the interleaved copies of a micro batch. `devices_per_node` bounds tp; 0 means any. `framework` adds the rules of a
    framework, `even_chunks` asks for layers that spread evenly over the chunks of interleaving.
    """

    devices: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    seq_len: int
    global_batch: int
    experts: int = 0
    tp: tuple[int, ...] = ()
    cp: tuple[int, ...] = (1,)
    pp: tuple[int, ...] = ()
    vpp: tuple[int, ...] = (1,)
    ep: tuple[int, ...] = (1,)
    mbs: tuple[int, ...] = (1,)
    copies: tuple[int, ...] = (1,)
    zero: tuple[int, ...] = (0, 1)
    shard: tuple[int, ...] = (0,)
    sp: tuple[int, ...] = (0, 1)
    recompute: tuple[str, ...] = ("none", "full")
    pads_vocab: bool = False
    devices_per_node: int = 0
    framework: str = ""
    even_chunks: bool = False
    shares_context: bool = True

    def __post_init__(self) -> None:
        for name in ("tp", "pp"):
            if not getattr(self, name) and self.devices >= 1:
                object.__setattr__(self, name, divisors(self.devices))
        problems = [
            f"{name} = {value!r} must be a whole number of at least {low}"
            for name, low in {**dict.fromkeys(SIZES, 1), "experts": 0}.items()
            if not _whole(value := getattr(self, name), low)
        ]
        for name in ORDER[:-1]:
            problems += self._list_problems(name)
        if not self.recompute:
            problems.append("recompute has no kind to choose from")
        if problems:
            raise InputError("strategy space", problems)

    def _list_problems(self, name: str) -> list[str]:
        values = getattr(self, name)
        low, high = {"zero": (0, 3), "shard": (0, math.inf), "sp": (0, 1)}.get(name, (1, math.inf))
        text = f"{low} to {high}" if high < math.inf else f"{low} or more"
        if not values:
            return [f"{name} has no size to choose from"] if self.devices >= 1 or name not in ("tp", "pp") else []
        return [
            f"{name} = {value!r} must be a whole number of {text}" for value in values if not _whole(value, low) or value > high
        ]

    def values(self, name: str) -> Ints:
        """What may be chosen for a dimension, rising, each once; recompute kinds as their index."""
        given: tuple[Any, ...] = tuple(range(len(self.recompute))) if name == "recompute" else getattr(self, name)
        return np.array(sorted(set(given)), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Rule:
    """What a strategy must keep: `keeps` says for columns which rows do; `reason` is told to the user otherwise.

    `needs` is the dimension that has to be chosen last before the rule can be judged.
    """

    id: str
    needs: str
    reason: str
    keeps: Callable[[Columns, StrategySpace], npt.NDArray[np.bool_]]


def sharing_group(columns: Columns, space: StrategySpace) -> Ints:
    """Devices that can share one copy of the optimizer state."""
    return columns["dp"] * (columns["cp"] if space.shares_context else 1)


RULES: tuple[Rule, ...] = (
    Rule("tp-devices", "tp", "tensor size does not divide the devices", lambda c, s: s.devices % c["tp"] == 0),
    Rule(
        "tp-node",
        "tp",
        "tensor parallel group larger than a node",
        lambda c, s: (c["tp"] <= s.devices_per_node) | (s.devices_per_node == 0),
    ),
    Rule("tp-heads", "tp", "tensor size does not divide the attention heads", lambda c, s: s.heads % c["tp"] == 0),
    Rule(
        "tp-kv-heads",
        "tp",
        "tensor size neither divides nor is a multiple of the key-value heads",
        lambda c, s: (s.kv_heads % c["tp"] == 0) | (c["tp"] % s.kv_heads == 0),
    ),
    Rule("tp-vocab", "tp", "tensor size does not divide the vocabulary", lambda c, s: (s.vocab % c["tp"] == 0) | s.pads_vocab),
    Rule(
        "cp-sequence",
        "cp",
        "2 × context size does not divide the sequence",
        lambda c, s: (c["cp"] == 1) | (s.seq_len % (2 * c["cp"]) == 0),
    ),
    Rule(
        "devices",
        "pp",
        "tensor × context × pipeline does not divide the devices",
        lambda c, s: s.devices % (c["tp"] * c["cp"] * c["pp"]) == 0,
    ),
    Rule("pp-layers", "pp", "more pipeline stages than layers", lambda c, s: c["pp"] <= s.layers),
    Rule("vpp-pp", "vpp", "interleaving without a pipeline", lambda c, s: (c["vpp"] == 1) | (c["pp"] > 1)),
    Rule("vpp-layers", "vpp", "more pipeline chunks than layers", lambda c, s: (c["vpp"] == 1) | (c["pp"] * c["vpp"] <= s.layers)),
    Rule(
        "vpp-even",
        "vpp",
        "layers do not spread evenly over the chunks",
        lambda c, s: (c["vpp"] == 1) | (s.layers % (c["pp"] * c["vpp"]) == 0) | (not s.even_chunks),
    ),
    Rule(
        "ep-experts",
        "ep",
        "expert size does not divide the experts",
        lambda c, s: (c["ep"] == 1) if s.experts == 0 else (s.experts % c["ep"] == 0),
    ),
    Rule("ep-group", "ep", "expert size does not divide data × context", lambda c, s: (c["dp"] * c["cp"]) % c["ep"] == 0),
    Rule(
        "batch",
        "copies",
        "data × micro batch × copies does not divide the global batch",
        lambda c, s: s.global_batch % (c["dp"] * c["mbs"] * c["copies"]) == 0,
    ),
    Rule(
        "copies-tp",
        "copies",
        "copies of a micro batch without tensor parallel hide nothing",
        lambda c, s: (c["copies"] == 1) | (c["tp"] > 1),
    ),
    Rule(
        "micro-batches",
        "copies",
        "fewer micro batches than pipeline stages",
        lambda c, s: (c["pp"] == 1) | (c["m"] >= c["pp"]) | (s.framework in ("megatron", "deepspeed")),
    ),
    Rule(
        "vpp-micro-batches",
        "copies",
        "interleaving needs micro batches that the stages divide",
        lambda c, s: (c["vpp"] == 1) | (c["m"] % c["pp"] == 0),
    ),
    Rule(
        "zero-group", "zero", "nobody to share the optimizer state with", lambda c, s: (c["zero"] == 0) | (sharing_group(c, s) > 1)
    ),
    Rule(
        "zero-pipeline",
        "zero",
        "shared gradients or parameters (ZeRO-2, 3) beside a pipeline",
        lambda c, s: (c["zero"] < 2) | (c["pp"] == 1) | (s.framework not in ("megatron", "deepspeed")),
    ),
    Rule(
        "shard-group",
        "shard",
        "groups of that size cannot share the optimizer state",
        lambda c, s: (
            (c["shard"] == 0) | ((c["zero"] > 0) & (c["shard"] > 1) & (sharing_group(c, s) % np.maximum(c["shard"], 1) == 0))
        ),
    ),
    Rule("sp-tp", "sp", "sequence parallel without tensor parallel", lambda c, s: (c["sp"] == 0) | (c["tp"] > 1)),
    Rule(
        "sp-sequence",
        "sp",
        "tensor × context does not divide the sequence",
        lambda c, s: (c["sp"] == 0) | (s.seq_len % (c["tp"] * c["cp"]) == 0),
    ),
    Rule(
        "sp-experts",
        "sp",
        "experts beside tensor parallel need sequence parallel",
        lambda c, s: (c["sp"] == 1) | (c["tp"] == 1) | (s.experts == 0) | (s.framework != "megatron"),
    ),
)
"""MindFormers asks for micro_batch_num >= pipeline_stage, Megatron for a multiple where it interleaves; see docs/plans.md."""


@dataclass(frozen=True, slots=True)
class Strategies:
    """All strategies that keep the rules, as columns of one length; `searched` counts all combinations, `rejected` by reason."""

    columns: Columns
    searched: int
    rejected: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.columns["tp"])

    def table(self, names: tuple[str, ...]) -> Ints:
        """Rows of the named columns."""
        return np.stack([self.columns[name] for name in names], axis=1)


def enumerate_strategies(space: StrategySpace) -> Strategies:
    """Every strategy of the space that keeps all rules, sorted by the dimensions in their order, and the others by reason."""
    columns: dict[str, Ints] = {}
    sizes = {name: len(space.values(name)) for name in ORDER}
    searched = math.prod(sizes.values())
    rejected: dict[str, int] = {}
    for index, name in enumerate(ORDER):
        columns = _follow(_expand(columns, name, space.values(name)), space)
        behind = math.prod(sizes[later] for later in ORDER[index + 1 :])
        for rule in (rule for rule in RULES if rule.needs == name):
            keeps = np.broadcast_to(rule.keeps(columns, space), columns[name].shape)
            if lost := int((~keeps).sum()):
                rejected[rule.reason] = rejected.get(rule.reason, 0) + lost * behind
                columns = {key: values[keeps] for key, values in columns.items()}
    return Strategies(MappingProxyType(columns), searched, MappingProxyType(rejected))


def broken_rules(strategy: Mapping[str, int], space: StrategySpace) -> tuple[str, ...]:
    """The reasons of all rules that one strategy breaks; it names all dimensions (left out: 1 or 0) but dp and m."""
    columns: Columns = {name: np.array([size], dtype=np.int64) for name, size in strategy_row(strategy, space).items()}
    return tuple(rule.reason for rule in RULES if not bool(np.all(rule.keeps(columns, space))))


def strategy_row(strategy: Mapping[str, int], space: StrategySpace) -> dict[str, int]:
    """All dimensions of one strategy, dp and m; what it leaves out is 0 where a dimension can be 0, else 1."""
    columns = {name: np.array([int(strategy.get(name, 0 if name in OPTIONAL else 1))], dtype=np.int64) for name in ORDER}
    return {name: int(values[0]) for name, values in _follow(columns, space).items()}


def usual_chunks(num_layers: int) -> tuple[int, ...]:
    """Chunks a stage that a search tries unless the user chooses."""
    return tuple(size for size in divisors(num_layers) if size <= MOST_CHUNKS)


def usual_micro_batches(own: int) -> tuple[int, ...]:
    """Micro batches that a search tries unless the user chooses: the usual ones and the plan's own."""
    return tuple(sorted({*MICRO_BATCHES, own}))


def count_problems(**counts: object) -> list[str]:
    """What is wrong with numbers, by name, of what there must be at least one of."""
    return [f"{name} = {value!r} must be a whole number of at least 1" for name, value in counts.items() if not _whole(value, 1)]


def divisors(number: int) -> tuple[int, ...]:
    """All divisors, rising."""
    low = [value for value in range(1, math.isqrt(number) + 1) if number % value == 0]
    return tuple(sorted({*low, *(number // value for value in low)}))


def _expand(columns: dict[str, Ints], name: str, values: Ints) -> dict[str, Ints]:
    length = len(next(iter(columns.values()))) if columns else 1
    found = {key: np.repeat(column, len(values)) for key, column in columns.items()}
    return {**found, name: np.tile(values, length)}


def _follow(columns: dict[str, Ints], space: StrategySpace) -> dict[str, Ints]:
    """The columns that follow from the chosen ones: dp, and the micro batches of a replica."""
    if "pp" in columns and "dp" not in columns:
        columns["dp"] = np.maximum(space.devices // (columns["tp"] * columns["cp"] * columns["pp"]), 1)
    if "copies" in columns and "m" not in columns:
        columns["m"] = space.global_batch // (columns["dp"] * columns["mbs"] * columns["copies"])
    return columns


def _whole(value: Any, low: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= low
