"""Who: ranks and counts as the titles of findings tell them, one and many."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perfkit.core.texts import say
from perfkit.explain.diagnose.case import Case

MOST_TOLD = 6


def devices(ranks: Sequence[int], case: Case) -> Callable[[str, str], str]:
    """The devices of these ranks as the subject of a sentence, to be called with its verb for one and for many.

    A run of one rank has only one device; all ranks that were looked at are "all ranks", of many the first are told.
    """
    if len(case.run.ranks) == 1:
        return lambda one, _: say("The device {does}", does=one)
    if len(ranks) == 1:
        return lambda one, _: say("The device of rank {rank} {does}", rank=str(ranks[0]), does=one)
    if len(ranks) == len(case.detail_ranks):
        return lambda _, many: say("The devices of all ranks {do}", do=many)
    told = first(ranks, MOST_TOLD)
    return lambda _, many: say("The devices of ranks {ranks} {do}", ranks=told, do=many)


def first(ranks: Sequence[int], most: int) -> str:
    """The first of these ranks, and how many more there are."""
    told = ", ".join(map(str, ranks[:most]))
    return told if len(ranks) <= most else say("{ranks} and {count} more", ranks=told, count=len(ranks) - most)


def count(number: int, noun: str) -> str:
    """A number and its noun: "1 step", "2 steps"."""
    return say(f"{{count}} {noun}{'' if number == 1 else 's'}", count=number)
