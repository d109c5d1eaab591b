"""The clocks of ranks differ, which costs nothing but misleads whoever compares moments of two ranks.

What is measured: the offset of each rank's clock from the median one, by the ends of the collectives that ranks ran together. It is
named where it is larger than its uncertainty and large enough to matter. All figures between ranks were corrected for it. A clock
that was set while it was recorded jumps against the others: that cannot be corrected by one line, and is said instead.

What to do: nothing for the speed; synchronise the hosts' clocks (PTP, chrony) to read timelines side by side without correction.
"""

from __future__ import annotations

from perfkit.core import clock
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
    jumped = [_jumped(case, jump) for jump in clock.jumps(case.run)]
    if jumped:
        return Verdict(tuple(jumped), {"num_jumps": float(len(jumped))})
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
    who = _who.count(len(ranks), "rank")
    finding = Finding(
        rule=RULE.name,
        title=say("Clocks of {who} differ by up to {largest_offset_ns}; figures between ranks were corrected", who=who, **evidence),
        subject={"ranks": ranks},
        evidence={**evidence, "num_collectives": min(own.num_matches for own in off.values())},
        actions=("synchronise the clocks of the hosts (PTP, chrony) before comparing timelines by eye",),
        severity="low",
        next=("17_cluster",),
    )
    return Verdict((finding,), evidence)


def _jumped(case: Case, jump: clock.Jump) -> Finding:
    """A clock that was set while it was recorded: in what step, by how much."""
    rows = case.run.frame("collectives", ranks=[jump.rank], columns=("step", "start_ns", "duration_ns")).dropna()
    at = rows["start_ns"] + rows["duration_ns"] == jump.end_ns
    step = int(rows.loc[at.to_numpy(dtype=bool), "step"].iloc[0]) if at.any() else None
    evidence = {"jump_ns": float(jump.jump_ns)}
    return Finding(
        rule=RULE.name,
        title=say(
            "The clock of rank {rank} jumps by {jump_ns}{where}: what ranks wait for each other is not known from there on",
            rank=str(jump.rank),
            where="" if step is None else say(" before the end of step {step}", step=str(step)),
            **evidence,
        ),
        subject={"ranks": (jump.rank,), **({} if step is None else {"steps": (step,)})},
        evidence=evidence,
        actions=(
            "record again, with clocks that are slewed and not stepped while it runs (chrony: makestep only at start)",
            "until then compare each rank with itself: its computing and its host are told by its own clock",
        ),
        severity="medium",
        next=("17_cluster",),
    )


RULE = Rule("clock-skew", "Clocks of ranks differ", frozenset({"collectives"}), COMMUNICATION_BY, (SKEW_LEAST, SKEW_SIGMAS), check)
