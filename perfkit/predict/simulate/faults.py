"""Faults: what can be broken on purpose in a simulated run, how it is spelled, and what of it cannot be.

A fault is `KIND:ARGUMENTS`, as listed in `FAULTS`. Ranks count from 0; factors are of time and must be positive; times are in ms
where the argument is called MS. Several faults act at once. What was injected is the truth beside a run and never part of its
tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from perfkit.core.errors import InputError
from perfkit.core.units import NS_PER_MS
from perfkit.predict.simulate.layout import MESH_SIZE, Layout
from perfkit.predict.simulate.operators import OPERATORS, find

ALL = -1
"""Stands for all ranks."""
MAX_FACTOR = 1e6
MAX_COUNT = 10_000
MAX_MS = 3_600_000.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One fault as asked for (`text`); fields that its kind does not have keep their defaults."""

    kind: str
    text: str
    rank: int | None = None
    link: tuple[int, int] | None = None
    stage: int | None = None
    place: int | None = None
    operator: str | None = None
    factor: float = 1.0
    duration_ns: int = 0
    every: int = 1
    count: int = 0
    first_step: int = 0
    last_step: int | None = None

    def in_step(self, step: int) -> bool:
        """Whether it acts in a step; steps count from 0."""
        within = self.first_step <= step and (self.last_step is None or step <= self.last_step)
        return within and step % self.every == self.every - 1

    @property
    def costs_time(self) -> bool:
        """Whether it makes steps longer; a clock that is wrong does not."""
        return self.kind != "clock_skew"


@dataclass(frozen=True, slots=True)
class _Argument:
    """A part of a fault's text: the field that it fills, how it is read, and whether it may be left out."""

    name: str
    read: Callable[[str], Mapping[str, Any]]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault: its arguments in order, and what it does."""

    arguments: tuple[_Argument, ...]
    doc: str

    def spelling(self, name: str) -> str:
        """The text that asks for it."""
        text = name
        for argument in self.arguments:
            text += f"[:{argument.name}]" if argument.optional else f":{argument.name}"
        return text


def _whole(field: str, low: int, high: int = MAX_COUNT) -> Callable[[str], Mapping[str, Any]]:
    def read(text: str) -> Mapping[str, Any]:
        if not text.strip().lstrip("-").isdecimal() or not low <= int(text) <= high:
            raise ValueError(f"must be a whole number of {low} to {high}")
        return {field: int(text)}

    return read


def _number(
    field: str, high: float, *, scale: float = 1.0, whole: bool = False, signed: bool = False
) -> Callable[[str], Mapping[str, Any]]:
    def read(text: str) -> Mapping[str, Any]:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or abs(value) > high or (not signed and value <= 0):
            raise ValueError(f"must be a number {'of' if signed else 'above 0 and'} at most {high:g}")
        return {field: round(value * scale) if whole else value * scale}

    return read


def _rank_or_all(text: str) -> Mapping[str, Any]:
    return {"rank": ALL} if text == "all" else _whole("rank", 0, 10**9)(text)


def _link(text: str) -> Mapping[str, Any]:
    ends = text.split("-")
    if len(ends) != 2 or not all(end.strip().isdecimal() for end in ends):
        raise ValueError("must be two ranks, for example 3-11")
    a, b = sorted(int(end) for end in ends)
    if a == b:
        raise ValueError(f"is within one device ({a}); a link has two different ranks")
    return {"link": (a, b)}


def _operator(text: str) -> Mapping[str, Any]:
    if not find(text):
        raise ValueError(f"is no operator; known are {', '.join(operator.name for operator in OPERATORS)}")
    return {"operator": text}


_RANK = _Argument("RANK", _whole("rank", 0, 10**9))
_WHO = _Argument("RANK|all", _rank_or_all)
_FACTOR = _Argument("FACTOR", _number("factor", MAX_FACTOR))
_MS = _Argument("MS", _number("duration_ns", MAX_MS, scale=NS_PER_MS, whole=True))
_N = _Argument("N", _whole("count", 1))
_STEPS = (_Argument("FROM", _whole("first_step", 0), True), _Argument("TO", _whole("last_step", 0), True))

FAULTS: Mapping[str, Kind] = MappingProxyType(
    {
        "slow_rank": Kind((_RANK, _FACTOR, *_STEPS), "kernels of RANK take FACTOR times longer, in steps FROM to TO (from 0)"),
        "slow_link": Kind((_Argument("A-B", _link), _FACTOR), "the bandwidth between ranks A and B is divided by FACTOR"),
        "slow_op": Kind((_Argument("TYPE", _operator), _FACTOR), "every kernel of TYPE takes FACTOR times longer on all ranks"),
        "data_stall": Kind((_WHO, _MS, _Argument("EVERY", _whole("every", 1), True)), "input comes MS later, every EVERY-th step"),
        "host_bound": Kind((_WHO, _FACTOR), "the host needs FACTOR times longer for each launch"),
        "gc_pause": Kind((_WHO, _MS, _Argument("EVERY", _whole("every", 1), True)), "the host stops for MS once in EVERY steps"),
        "imbalanced_pp_stage": Kind((_Argument("STAGE", _whole("stage", 0)), _FACTOR), "STAGE has FACTOR times its layers"),
        "small_messages": Kind((_Argument("SPLIT", _whole("count", 2)),), "every gradient bucket is sent in SPLIT messages"),
        "jitter": Kind((_Argument("SIGMA", _number("factor", 2.0)),), "log-normal noise of all kernels"),
        "unneeded_casts": Kind((_N,), "N more cast kernels a layer and direction"),
        "no_overlap": Kind((), "communication that was hidden behind computing waits until it has ended"),
        "memory_fragmentation": Kind((_WHO, _N), "the allocator frees its cache and tries again N times a step"),
        "frequent_sync": Kind((_N,), "N synchronisations of host and device a micro batch and direction"),
        "full_recompute": Kind((), "every layer's forward pass is repeated in its backward pass"),
        "aicpu_ops": Kind((_N,), "N operators a layer run on the device's CPU"),
        "clock_skew": Kind(
            (_RANK, _Argument("US", _number("duration_ns", 1e13, scale=1e3, whole=True, signed=True))),
            "the clock of RANK is US ahead",
        ),
        "moe_imbalance": Kind(
            (_FACTOR, _Argument("PLACE", _whole("place", 0), True)),
            "experts at PLACE of each expert group get FACTOR times the tokens",
        ),
    }
)


def parse_faults(texts: Iterable[str | Fault], layout: Layout) -> tuple[Fault, ...]:
    """The faults that the texts ask for on this layout. Raises InputError with everything that is wrong with any of them."""
    found: list[Fault] = []
    problems: list[str] = []
    for text in texts:
        fault, unread = (text, []) if isinstance(text, Fault) else _parse(text)
        wrong = unread or _misfits(fault, layout)
        problems += [f"{fault.text}: {problem}" for problem in wrong]
        found.append(fault)
    if problems:
        raise InputError("faults", problems)
    return tuple(found)


def _parse(text: str) -> tuple[Fault, list[str]]:
    name, *given = text.strip().split(":")
    name = name.replace("-", "_")
    if name not in FAULTS:
        return Fault(kind=name, text=text), [f"{name!r} is no kind of fault; known are {', '.join(FAULTS)}"]
    kind = FAULTS[name]
    needed = sum(not argument.optional for argument in kind.arguments)
    if not needed <= len(given) <= len(kind.arguments):
        return Fault(kind=name, text=text), [f"has {len(given)} arguments; write {kind.spelling(name)}"]
    fields: dict[str, Any] = {}
    problems = []
    for argument, value in zip(kind.arguments, given, strict=False):
        try:
            fields |= argument.read(value)
        except ValueError as error:
            problems.append(f"{argument.name} = {value!r} {error}")
    if not problems and fields.get("last_step") is not None and fields["last_step"] < fields["first_step"]:
        problems.append(f"TO = {fields['last_step']} is before FROM = {fields['first_step']}")
    return Fault(kind=name, text=text, **fields), problems


def _misfits(fault: Fault, layout: Layout) -> list[str]:
    problems = []
    if fault.rank is not None and fault.rank != ALL and fault.rank >= layout.world:
        problems.append(f"rank {fault.rank} is outside of 0 to {layout.world - 1}")
    if fault.kind == "imbalanced_pp_stage" and fault.stage is not None and fault.stage >= layout.pipeline:
        problems.append(f"stage {fault.stage} is outside of 0 to {layout.pipeline - 1}")
    if fault.kind == "moe_imbalance":
        if layout.expert == 1:
            problems.append("the plan has no expert-parallel groups")
        elif fault.place is not None and fault.place >= layout.expert:
            problems.append(f"place {fault.place} is outside of 0 to {layout.expert - 1}")
    if fault.kind in ("small_messages", "no_overlap") and layout.size("dp") == 1 and layout.tensor == 1:
        problems.append("the plan has no communication that it could concern (one data-parallel and one tensor-parallel rank)")
    elif fault.kind == "small_messages" and layout.size("dp") == 1:
        problems.append("the plan reduces no gradients between ranks (data_parallel_size x context_parallel_size = 1)")
    if fault.link is not None:
        outside = [rank for rank in fault.link if rank >= layout.world]
        problems += [f"rank {rank} is outside of 0 to {layout.world - 1}" for rank in outside]
        if not outside and not linked_groups(layout, fault.link):
            problems.append(f"ranks {fault.link[0]} and {fault.link[1]} exchange nothing: no group has both as neighbours")
    return problems


def linked_groups(layout: Layout, link: tuple[int, int]) -> tuple[tuple[str, int], ...]:
    """Kind and number of each group in which two ranks send to each other: meshes up to 8 ranks, else rings; stages in turn."""
    found = []
    for kind in layout.kinds():
        if kind == "world":
            continue
        groups = {int(group) for group in _numbers(layout, kind, link[0])}
        for group in groups:
            members = layout.members(kind, group).tolist()
            if link[0] not in members or link[1] not in members:
                continue
            apart = abs(members.index(link[0]) - members.index(link[1]))
            near = apart == 1 if kind == "pp" else len(members) <= MESH_SIZE or apart in (1, len(members) - 1)
            if near:
                found.append((kind, group))
    return tuple(found)


def _numbers(layout: Layout, kind: str, rank: int) -> list[int]:
    """Number of the group of a kind that a rank is in, whether its replica is simulated or not."""
    stage, inner = divmod(rank, layout.stage_size)
    whole = Layout(
        layout.tensor,
        layout.context,
        layout.data,
        layout.pipeline,
        layout.expert,
        layout.devices_per_node,
        tuple(range(layout.data)),
    )
    return [int(whole.group_of(kind, stage)[inner])]
