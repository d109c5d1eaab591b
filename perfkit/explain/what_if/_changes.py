"""Changes: what can be asked about a run, how it is spelled, and what of it cannot be read.

A change is `KIND:ARGUMENTS`, as listed in `CHANGES`; a `-` in a kind may be written `_`. Changes of the plan name the field of the
parallel plan and its new size, or its usual short form (tp, dp, pp, vp, cp, ep).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from perfkit.core.errors import InputError
from perfkit.core.spec.parallel import SIZES
from perfkit.core.units import format_entry

CHANGES: Mapping[str, str] = MappingProxyType(
    {
        "operator:NAME:N": "kernels whose name or type is NAME (with * and ?, or a part of the name) are N times faster",
        "rank:R": "rank R computes as fast as ranks of equal work",
        "link:A-B": "operations over the link between ranks A and B take as long as equal ones elsewhere",
        "data[:R]": "no rank (or not rank R) waits longer for input than those that are not stalled",
        "host[:R]": "the device never waits for a launch (or rank R no longer than its peers)",
        "overlap": "gradient communication runs beside computing as far as the order of messages allows",
        "micro-batches:+N": "N more (or with - fewer) micro batches a step",
        "recompute:off": "nothing is recomputed (recompute:all: all layers are; recompute:4,0: 4 of stage 0, none of stage 1)",
        "layers:20,20": "so many layers on every pipeline stage (with chunks layers:10,10;10,10 by chunk, or as even as it goes)",
        "FIELD:SIZE": f"a size of the parallel plan, for example tensor_parallel_size:4; fields are {', '.join(SIZES)}",
    }
)
SHORT = {
    "dp": "data_parallel_size",
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "vp": "virtual_pipeline_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_parallel_size",
}
HIDE = "hidden-gradients"
"""The kind of an `overlap` that the prediction of the run's plan answers."""
PLANNED = ("micro-batches", "recompute", "layers", "size", HIDE)
MAX_FACTOR = 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One change as asked for (`text`); fields that its kind does not have keep their defaults."""

    kind: str
    text: str
    name: str = ""
    factor: float = 1.0
    rank: int | None = None
    link: tuple[int, int] | None = None
    amount: int = 0

    @property
    def planned(self) -> bool:
        """Whether it changes the plan, not what was recorded."""
        return self.kind in PLANNED


def parse_changes(changes: str | Change | Iterable[str | Change]) -> tuple[Change, ...]:
    """The changes that texts ask for. Raises InputError with everything that cannot be read."""
    texts = [changes] if isinstance(changes, str | Change) else list(changes)
    found, problems = [], []
    for text in texts:
        try:
            found.append(text if isinstance(text, Change) else _parse(str(text).strip()))
        except ValueError as error:
            problems.append(f"{text!r}: {error}")
    if not texts:
        problems.append(f"no change is named; there are {', '.join(CHANGES)}")
    if problems:
        raise InputError("changes", problems)
    return tuple(found)


def _parse(text: str) -> Change:
    head, _, rest = text.partition(":")
    kind = head.strip().lower().replace("_", "-")
    if kind == "operator":
        name, _, factor = rest.rpartition(":")
        if not name:
            raise ValueError("write operator:NAME:N, for example operator:MatMul:2")
        return Change(kind=kind, text=text, name=name, factor=_factor(factor))
    if kind == "link":
        return Change(kind=kind, text=text, link=_link(rest))
    if kind == "rank":
        return Change(kind=kind, text=text, rank=_rank(rest))
    if kind in ("data", "host"):
        return Change(kind=kind, text=text, rank=_rank(rest) if rest else None)
    if kind == "overlap":
        if rest not in ("", "on"):
            raise ValueError("write overlap; it can only be switched on")
        return Change(kind=kind, text=text)
    if kind == "micro-batches":
        if not re.fullmatch(r"[+-]?\d{1,6}", rest) or not int(rest):
            raise ValueError("write micro-batches:+N, a whole number that is not 0")
        return Change(kind=kind, text=text, amount=int(rest))
    if kind == "recompute":
        if rest not in ("off", "all") and not re.fullmatch(r"\d{1,4}(,\d{1,4})*", rest):
            raise ValueError(f"recompute = {rest!r} must be off, all, or layers by pipeline stage such as 4,0")
        return Change(kind=kind, text=text, name=rest)
    if kind == "layers":
        if not re.fullmatch(r"\d{1,4}(,\d{1,4})*(;\d{1,4}(,\d{1,4})*)*", rest):
            raise ValueError(f"layers = {rest!r} must be layers by pipeline stage such as 21,19")
        return Change(kind=kind, text=text, name=rest)
    field = SHORT.get(kind, kind.replace("-", "_"))
    if field in SIZES:
        if not rest.isdecimal() or not 1 <= int(rest) <= 10**6:
            raise ValueError(f"{field} = {rest!r} must be a whole number of at least 1")
        return Change(kind="size", text=text, name=field, amount=int(rest))
    raise ValueError(f"{head!r} is no change; there are {', '.join(CHANGES)}")


def _factor(text: str) -> float:
    try:
        factor = float(text.lower().removesuffix("x"))
    except ValueError:
        factor = math.nan
    if not math.isfinite(factor) or not 0 < factor <= MAX_FACTOR:
        raise ValueError(f"N = {text!r} must be a number above 0 and at most {format_entry(MAX_FACTOR)}")
    return factor


def _rank(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"rank = {text!r} must be a whole number of at least 0")
    return int(text)


def _link(text: str) -> tuple[int, int]:
    ends = text.split("-")
    if len(ends) != 2 or not all(end.strip().isdecimal() for end in ends) or int(ends[0]) == int(ends[1]):
        raise ValueError(f"link = {text!r} must be two different ranks, for example 3-7")
    low, high = sorted(int(end) for end in ends)
    return low, high
