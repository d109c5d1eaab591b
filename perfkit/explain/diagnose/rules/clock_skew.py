"""The clocks of ranks differ, which costs nothing but misleads whoever compares moments of two ranks.

What is measured: the offset of each rank's clock from the median one, by the ends of the collectives that ranks ran together. It is
named where it is larger than its uncertainty and large enough to matter. All figures between ranks were corrected for it.

What to do: nothing for the speed; synchronise the hosts' clocks (PTP, chrony) to read timelines side by side without correction.
"""

from __future__ import annotations

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose import who as _who
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import COMMUNICATION_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict

SKEW_LEAST = Threshold(
    "skew-least", 20e3, "ns", "chosen: as short as the shortest idle time that a rule looks at (core-idle-least)"
)
SKEW_SIGMAS = Threshold("skew-sigmas", 5.0, "standard errors", "chosen: 1 of 3.5 million by chance, for thousands of ranks")


def check(case: Case) -> Verdict:
    """Ranks whose clock is off by more than its uncertainty."""
    clocks = case.clocks
    if not clocks:
        raise NotMeasuredError("collectives that several ranks ran together", how_to_collect=COMMUNICATION_BY)
    off = {
        rank: clock
        for rank, clock in clocks.items()
        if abs(clock.offset_ns) >= case.limit(SKEW_LEAST)
        and abs(clock.offset_ns) > case.limit(SKEW_SIGMAS) * max(clock.uncertainty_ns, clock.residual_ns)
    }
    largest = max(abs(clock.offset_ns) for clock in clocks.values())
    evidence = {"largest_offset_ns": largest, "largest_uncertainty_ns": max(clock.uncertainty_ns for clock in clocks.values())}
    if not off:
        return Verdict((), evidence)
    ranks = tuple(sorted(off))
    who = _who.count(len(ranks), "rank")
    finding = Finding(
        rule=RULE.name,
        title=say("Clocks of {who} differ by up to {largest_offset_ns}; figures between ranks were corrected", who=who, **evidence),
        subject={"ranks": ranks},
        evidence={**evidence, "num_collectives": min(clock.num_matches for clock in off.values())},
        actions=("synchronise the clocks of the hosts (PTP, chrony) before comparing timelines by eye",),
        severity="low",
        next=("17_cluster",),
    )
    return Verdict((finding,), evidence)


RULE = Rule("clock-skew", "Clocks of ranks differ", frozenset({"collectives"}), COMMUNICATION_BY, (SKEW_LEAST, SKEW_SIGMAS), check)
