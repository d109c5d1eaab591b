"""Incidents: findings about what a log says went wrong, with rank, file and line."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap
from typing import Any

import pandas as pd

from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.rule import Finding, Verdict

FEW_TOLD = 6


def verdict(
    case: Case, rule: str, kinds: Sequence[str], what: str, *, actions: tuple[str, ...], following: tuple[str, ...]
) -> Verdict:
    """One finding about the incidents of these kinds; healthy with their number, 0, if there is none."""
    rows = case.run.frame("incidents")
    rows = rows[rows["kind"].isin(list(kinds)).to_numpy(dtype=bool)].sort_values(
        ["time_ns", "line"], kind="stable", na_position="last"
    )
    if rows.empty:
        return Verdict((), {"num_incidents": 0.0})
    first = rows.iloc[0]
    ranks = tuple(sorted({int(rank) for rank in rows["rank"]}))
    place = f"{first['file']}" + ("" if pd.isna(first["line"]) else f", line {int(first['line'])}")
    codes = tuple(dict.fromkeys(str(code) for code in rows["code"].dropna()))
    told = ", ".join(map(str, ranks[:FEW_TOLD])) + (f" and {len(ranks) - FEW_TOLD} more" if len(ranks) > FEW_TOLD else "")
    who = f"Rank{'s' if len(ranks) > 1 else ''} {told}"
    finding = Finding(
        rule=rule,
        title=f"{who} {what}{f' ({codes[0]})' if codes else ''}: {place}",
        subject={
            "ranks": ranks,
            "places": tuple(dict.fromkeys(starmap(_place, zip(rows["file"], rows["line"], strict=True))))[:FEW_TOLD],
            **({"codes": codes} if codes else {}),
            "text": (str(first["text"]),),
        },
        evidence={"num_incidents": float(len(rows)), "num_ranks": float(len(ranks)), "first_rank": float(first["rank"])},
        actions=actions,
        severity="high",
        next=following,
    )
    return Verdict((finding,), {"num_incidents": float(len(rows))})


def _place(file: object, line: Any) -> str:
    return str(file) if pd.isna(line) else f"{file}:{line}"
