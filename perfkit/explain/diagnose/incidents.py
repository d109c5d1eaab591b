"""Incidents: findings about what a log says went wrong, with rank, file and line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import starmap
from types import MappingProxyType
from typing import Any

import pandas as pd

from perfkit.core.texts import say
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.rule import Finding, Verdict
from perfkit.explain.diagnose.who import first as first_of

FEW_TOLD = 6


def of_kinds(case: Case, kinds: Sequence[str]) -> pd.DataFrame:
    """The incidents of these kinds, the first one of them first."""
    rows = case.run.frame("incidents")
    rows = rows[rows["kind"].isin(list(kinds)).to_numpy(dtype=bool)]
    return rows.sort_values(["time_ns", "line"], kind="stable", na_position="last")


def verdict(
    case: Case,
    rule: str,
    kinds: Sequence[str],
    what: str,
    *,
    actions: tuple[str, ...],
    following: tuple[str, ...],
    measured: Mapping[str, float] = MappingProxyType({}),
) -> Verdict:
    """One finding about the incidents of these kinds; healthy with their number, 0, if there is none.

    `measured` is what they say in figures.
    """
    rows = of_kinds(case, kinds)
    if rows.empty:
        return Verdict((), {"num_incidents": 0.0})
    first = rows.iloc[0]
    named = ~rows["unnamed"].fillna(False).to_numpy(dtype=bool)
    ranks = tuple(sorted({int(rank) for rank in rows["rank"][named]}))
    place = str(first["file"])
    if not pd.isna(first["line"]):
        place = say("{file}, line {line}", file=place, line=str(int(first["line"])))
    codes = tuple(dict.fromkeys(str(code) for code in rows["code"].dropna()))
    who = say("Rank {ranks}" if len(ranks) == 1 else "Ranks {ranks}", ranks=first_of(ranks, FEW_TOLD))
    if not ranks:
        who = say("A rank that the log does not name")
    awaited = tuple(dict.fromkeys(int(peer) for peer in rows["peer"].dropna()))
    finding = Finding(
        rule=rule,
        title=say(
            "{who} {what}{code}{awaited}: {place}",
            who=who,
            what=what,
            code=say(" ({code})", code=codes[0]) if codes else "",
            awaited=say(", for rank {awaited}", awaited=first_of(awaited, FEW_TOLD)) if awaited else "",
            place=place,
        ),
        subject={
            "ranks": ranks,
            "places": tuple(dict.fromkeys(starmap(_place, zip(rows["file"], rows["line"], strict=True))))[:FEW_TOLD],
            **({"codes": codes} if codes else {}),
            **({"awaited": awaited} if awaited else {}),
            "text": (str(first["text"]),),
        },
        evidence={
            "num_incidents": float(len(rows)),
            "num_ranks": float(len(ranks)),
            **({"first_rank": float(rows[named].iloc[0]["rank"])} if ranks else {}),
            **measured,
        },
        actions=actions,
        severity="high",
        next=following,
    )
    return Verdict((finding,), {"num_incidents": float(len(rows))})


def _place(file: object, line: Any) -> str:
    return str(file) if pd.isna(line) else f"{file}:{line}"
