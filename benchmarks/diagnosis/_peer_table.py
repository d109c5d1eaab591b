"""Scores of `bench_peers`: one line a tool, from records of one tool at one run each.

A record has `name`, `tool`, `faults` (the labels), `world`, `cpu_s` (null: not a process of its own), `failure`, `ranks` (named as
slow) and `told` (pairs of a kind of fault and ranks).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

Record = dict[str, Any]
HEAD = (
    "tool",
    "recall of slow ranks",
    "precision of ranks named",
    "innocents named",
    "alarms on healthy runs",
    "other faults told",
    "CPU s a run",
    "answers",
)


def table(records: Iterable[Record]) -> str:
    """The scores as Markdown."""
    by_tool: dict[str, list[Record]] = {}
    for record in records:
        by_tool.setdefault(record["tool"], []).append(record)
    lines = ["| " + " | ".join(HEAD) + " |", "|---" * len(HEAD) + "|"]
    return "\n".join([*lines, *("| " + " | ".join([tool, *_row(mine)]) + " |" for tool, mine in by_tool.items())])


def _row(records: list[Record]) -> tuple[str, ...]:
    slow = [record for record in records if _kind(record) == "slow_rank"]
    other = [record for record in records if _kind(record) not in ("slow_rank", "")]
    healthy = [record for record in records if not record["faults"]]
    named = sum(len(record["ranks"]) for record in records)
    innocents = sum(len(set(record["ranks"]) - _guilty(record)) for record in records)
    cpu_s = [record["cpu_s"] for record in records if record["cpu_s"] is not None]
    return (
        _share(sum(bool(set(record["ranks"]) & _guilty(record)) for record in slow), len(slow)),
        _share(named - innocents, named),
        str(innocents),
        _of(sum(bool(record["ranks"] or record["told"]) for record in healthy), len(healthy)),
        _of(sum(_is_told(record) for record in other), len(other)),
        f"{sum(cpu_s) / len(cpu_s):.1f}" if cpu_s else "",
        _of(sum(not record["failure"] for record in records), len(records)),
    )


def _kind(record: Record) -> str:
    return str(record["faults"][0]["kind"]) if record["faults"] else ""


def _guilty(record: Record) -> set[int]:
    """Ranks that one fault of the run is about; of a fault of all ranks none is."""
    fault: Record = record["faults"][0] if record["faults"] else {"ranks": [], "links": []}
    ranks = {*fault["ranks"], *chain.from_iterable(fault["links"])}
    return ranks if len(ranks) < record["world"] else set()


def _is_told(record: Record) -> bool:
    """Whether the kind of fault is told, of no ranks but those at fault where it is one of few ranks."""
    guilty = _guilty(record)
    return any(kind == _kind(record) and (not guilty or set(ranks) <= guilty) for kind, ranks in record["told"])


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole}"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.2f} ({part} of {whole})" if whole else ""
