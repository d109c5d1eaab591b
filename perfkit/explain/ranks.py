"""Ranks: which ranks a person means, and which are worth showing first."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from perfkit.core.errors import InputError

SHOW_ALL_UP_TO = 16
EXTREMES = 4


def parse_ranks(text: str, known: Sequence[int]) -> tuple[int, ...]:
    """The ranks that a text such as "0-7, 12" names; an empty text or "all" means all known.

    Raises InputError that lists every piece that is no range and every rank that the run does not have.
    """
    if text.strip().lower() in ("", "all"):
        return tuple(known)
    found: list[int] = []
    problems: list[str] = []
    for piece in (part.strip() for part in text.split(",")):
        first, dash, last = (part.strip() for part in piece.partition("-"))
        if not first.isdecimal() or (dash and not last.isdecimal()):
            problems.append(f"{piece!r} is no rank or range; write for example 0-7, 12")
            continue
        low, high = int(first), int(last) if dash else int(first)
        if high < low:
            problems.append(f"{piece!r} runs backwards; write {high}-{low}")
        elif high > max(known, default=-1):
            problems.append(f"{piece!r} asks for rank {high}; the run has ranks {written(known)}")
        else:
            found += [rank for rank in range(low, high + 1) if rank in set(known)]
    if problems:
        raise InputError("ranks", problems)
    return tuple(dict.fromkeys(found))


def worth_showing(durations_ns: pd.Series[int]) -> tuple[int, ...]:
    """The ranks to show first: all up to 16, else the 4 slowest, the 4 fastest and the 4 around the median.

    `durations_ns` has one value a rank, with the rank as index.
    """
    ordered = [int(rank) for rank in durations_ns.sort_values(ascending=False, kind="stable").index]
    if len(ordered) <= SHOW_ALL_UP_TO:
        return tuple(sorted(ordered))
    middle = len(ordered) // 2 - EXTREMES // 2
    return tuple(sorted({*ordered[:EXTREMES], *ordered[-EXTREMES:], *ordered[middle : middle + EXTREMES]}))


def written(ranks: Sequence[int]) -> str:
    """Ranks as ranges, the way `parse_ranks` reads them: "0-7, 12"."""
    pieces: list[str] = []
    start = previous = None
    for rank in [*sorted(ranks), None]:
        if previous is not None and rank == previous + 1:
            previous = rank
            continue
        if start is not None:
            pieces.append(str(start) if start == previous else f"{start}-{previous}")
        start = previous = rank
    return ", ".join(pieces) or "none"
