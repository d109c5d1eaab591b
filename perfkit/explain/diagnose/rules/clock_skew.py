"""The clocks of ranks differ, which costs nothing but misleads whoever compares moments of two ranks.

What is measured: the offset of each rank's clock from the median one, by the ends of the collectives that ranks ran together. It is
named where it is larger than its uncertainty and large enough to matter. All figures between ranks were corrected for it. A clock
that was set while it was recorded jumps against the others. That is corrected, too, but for what lies around the jump; unless it
was set back by more than the time between two operations, so that its moments are of before and after.

What to do: nothing for the speed; synchronise the hosts' clocks (PTP, chrony) to read timelines side by side without correction.
"""

from __future__ import annotations

from collections.abc import Mapping

from perfkit.core import clock
from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import COMMUNICATION_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict
from perfkit.explain.diagnose.who import first as first_of

FEW_TOLD = 6
SKEW_LEAST = Threshold(
    "skew-least", 20e3, "ns", "chosen: as short as the shortest idle time that a rule looks at (core-idle-least)"
)
SKEW_SIGMAS = Threshold("skew-sigmas", 5.0, "standard errors", "chosen: 1 of 3.5 million by chance, for thousands of ranks")


def check(case: Case) -> Verdict:
    """Ranks whose clock is off by more than its uncertainty."""
    clocks = case.clocks
    if not clocks:
        raise NotMeasuredError("collectives that several ranks ran together", how_to_collect=COMMUNICATION_BY)
    jumps = {rank: own.jump for rank, own in clocks.items() if own.jump is not None}
    if jumps:
        sizes = [0, *(jump.jump_ns for jump in jumps.values())]
        finding = _jumped(case, jumps, max(sizes) - min(sizes))
        return Verdict((finding,), finding.evidence)
    off = {
        rank: own
        for rank, own in clocks.items()
        if abs(own.offset_ns) >= case.limit(SKEW_LEAST)
        and abs(own.offset_ns) > case.limit(SKEW_SIGMAS) * max(own.uncertainty_ns, own.residual_ns)
    }
    largest = max(abs(own.offset_ns) for own in clocks.values())
    evidence = {"largest_offset_ns": largest, "largest_uncertainty_ns": max(own.uncertainty_ns for own in clocks.values())}
    if not off:
        return Verdict((), evidence)
    ranks = tuple(sorted(off))
    form = (
        "The clock of rank {ranks} is {largest_offset_ns} apart from the others; figures between ranks were corrected"
        if len(ranks) == 1
        else "Clocks of ranks {ranks} differ by up to {largest_offset_ns}; figures between ranks were corrected"
    )
    finding = Finding(
        rule=RULE.name,
        title=say(form, ranks=first_of(ranks, FEW_TOLD), **evidence),
        subject={"ranks": ranks},
        evidence={**evidence, "num_collectives": min(own.num_matches for own in off.values())},
        actions=("synchronise the clocks of the hosts (PTP, chrony) before comparing timelines by eye",),
        severity="low",
        next=("17_cluster",),
    )
    return Verdict((finding,), evidence)


def _jumped(case: Case, jumps: Mapping[int, clock.Jump], size_ns: int) -> Finding:
    """Clocks that were set while they were recorded: of which ranks, in what step, by how much."""
    ranks, sizes = tuple(sorted(jumps)), [jump.jump_ns for jump in jumps.values()]
    steps = min(jumps.values(), key=lambda jump: jump.end_ns).steps
    apart = min(sizes) < 0 < max(sizes)
    known = all(jump.at_ns is not None for jump in jumps.values())
    evidence = {"jump_ns": float(size_ns if apart or sizes[0] > 0 else -size_ns), "num_ranks": float(len(ranks))}
    who = say(
        "The clock of rank {ranks} jumps" if len(ranks) == 1 else "Clocks of ranks {ranks} jump", ranks=first_of(ranks, FEW_TOLD)
    )
    if apart:
        who = say("Clocks of ranks {ranks} jump apart", ranks=first_of(ranks, FEW_TOLD))
    return Finding(
        rule=RULE.name,
        title=say(
            "{who} by {jump_ns}{where}: {what}",
            who=who,
            what=say(
                "what ranks wait for each other was corrected, and is not known around it"
                if known
                else "what ranks wait for each other is not known from there on"
            ),
            where=say(" before the end of step {step}", step=str(steps[-1])) if steps else "",
            **evidence,
        ),
        subject={"ranks": ranks, **({"steps": steps[-1:]} if steps else {})},
        evidence=evidence,
        actions=(
            "record again, with clocks that are slewed and not stepped while it runs (chrony: makestep only at start)",
            "until then compare each rank with itself: its computing and its host are told by its own clock",
        ),
        severity="medium",
        next=("17_cluster",),
    )


RULE = Rule("clock-skew", "Clocks of ranks differ", frozenset({"collectives"}), COMMUNICATION_BY, (SKEW_LEAST, SKEW_SIGMAS), check)
