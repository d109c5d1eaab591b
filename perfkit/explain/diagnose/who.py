"""Who: ranks and counts as the titles of findings tell them, one and many."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perfkit.explain.diagnose.case import Case

MOST_TOLD = 6


def devices(ranks: Sequence[int], case: Case) -> Callable[[str, str], str]:
    """The devices of these ranks as the subject of a sentence, to be called with its verb for one and for many.

    A run of one rank has only one device; all ranks that were looked at are "all ranks", of many the first are told.
    """
    if len(case.run.ranks) == 1:
        return lambda one, _: f"The device {one}"
    if len(ranks) == 1:
        return lambda one, _: f"The device of rank {ranks[0]} {one}"
    if len(ranks) == len(case.detail_ranks):
        return lambda _, many: f"The devices of all ranks {many}"
    told = ", ".join(map(str, ranks[:MOST_TOLD]))
    more = f" and {len(ranks) - MOST_TOLD} more" if len(ranks) > MOST_TOLD else ""
    return lambda _, many: f"The devices of ranks {told}{more} {many}"


def count(number: int, noun: str) -> str:
    """A number and its noun: "1 step", "2 steps"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
