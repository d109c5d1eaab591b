"""The others wait for one rank, and why it comes late was not recorded.

What is measured: what the ledger holds as waiting for a rank without a reason. A rank has a reason where its timeline shows what
it spent more time on than who waits for it; without one it began the step later than the others (what it did before is not in the
recording), or has no timeline. The tasks of an operation name a member that was not recorded, too. A step in which most of the
waiting has a reason is a matter of the rule about that; so is a rank whose own device idles for as long. Where the sizes of groups
are not known, a rank that communicates for longer itself than the others wait for it waits for one that was not recorded, and is
not named. What it costs is how much shorter the longest of the other ranks of each step is without that waiting.

What to do: record more steps in a row, so that what the rank did before is seen, and all ranks with the host side.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose.advice import BIND, Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import COMMUNICATION_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict
from perfkit.explain.ledger import NOBODY
from perfkit.explain.ledger.causes import UNEXPLAINED, WAITING_UNTOLD

LATE_SHARE = Threshold("late-rank-share", 0.02, "share of the step", "chosen: twice what two runs can differ by")
MOSTLY = 0.5
"""The share of the waiting for a rank in a step that must be without a reason: else what is on record is why it is late in it."""
ALSO_RECORD = "record the named rank too: what it did meanwhile is not in the recording"
ACTIONS: tuple[Action, ...] = (
    "record three steps and more in a row: what the rank did before the first one is not in the recording",
    BIND,
    "compare the hosts: CPU governor, other processes, NUMA placement and storage of the named rank",
)


def check(case: Case) -> Verdict:
    """Ranks that others wait for without a reason on record."""
    known = case.known_ranks if case.run.has("kernels") else frozenset[int]()
    if len(known) < 2:
        raise NotMeasuredError("kernels of two ranks that wait for one another", how_to_collect=COMMUNICATION_BY)
    rows = case.ledger.entries
    waits = rows[rows["rank"].isin(list(known)) & (rows["who"] != NOBODY) & (rows["cause"] == WAITING_UNTOLD)]
    waits = waits[_mostly_untold(rows, waits)]
    won = {int(str(who)): _won_ns(case, int(str(who)), own) for who, own in waits.groupby("who")}
    limit_ns = case.limit(LATE_SHARE) * (case.step_ns or 1)
    evidence = {"largest_late_ns": float(max(won.values(), default=0)), "limit_ns": limit_ns}
    late = [who for who, ns in won.items() if ns >= limit_ns and _is_last(case, who, ns)]
    late = [who for who in late if who not in known or _idle_ns(case, who) < MOSTLY * won[who]]
    late.sort(key=lambda who: -won[who])
    return Verdict(tuple(_finding(case, who, waits, won[who], evidence) for who in late), evidence)


def _mostly_untold(rows: pd.DataFrame, waits: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Whether most of the waiting for the same rank in the same step is without a reason, too."""
    untold, every = (each.groupby(["who", "step"])["ns"].sum() for each in (waits, rows))
    shares = untold / every.reindex(untold.index)
    found: npt.NDArray[np.bool_] = (
        shares.reindex(pd.MultiIndex.from_frame(waits[["who", "step"]])).to_numpy(dtype=np.float64) >= MOSTLY
    )
    return found


def _is_last(case: Case, who: int, waited_ns: int) -> bool:
    """Whether no rank that was not recorded may come later still."""
    own = case.members[(case.members["rank"] == who).to_numpy(dtype=bool)]
    if (own["num_seen"] >= own["group_size"]).fillna(False).all():
        return True
    steps = case.steps[(case.steps["rank"] == who).to_numpy(dtype=bool)]
    return bool(steps["exposed_communication_ns"].fillna(0).mean() <= waited_ns)


def _idle_ns(case: Case, who: int) -> float:
    """How much longer than the others' the device of a rank is idle in a step for a reason that was not recorded."""
    rows = case.ledger.entries
    idle = rows[((rows["part"] == "free") & (rows["cause"] == UNEXPLAINED)).to_numpy(dtype=bool)]
    sums = idle.groupby("rank")["ns"].sum().reindex(list(case.run.ranks), fill_value=0) / max(1, len(case.step_numbers))
    return float(sums[who] - sums.drop(who).median())


def _finding(case: Case, who: int, waits: pd.DataFrame, cost_ns: int, evidence: dict[str, float]) -> Finding:
    own = waits[(waits["who"] == who).to_numpy(dtype=bool)]
    most_ns = float(own.groupby(["rank", "step"])["ns"].sum().max())
    of = case.ledger.entries
    every_ns = float(of[(of["who"] == who).to_numpy(dtype=bool)].groupby(["rank", "step"])["ns"].sum().max())
    return Finding(
        rule=RULE.name,
        title=say(
            "The others wait for rank {rank}, and why it comes late was not recorded",
            rank=str(who),
        ),
        subject={"ranks": (who,), "steps": tuple(sorted(int(step) for step in own["step"].unique()))},
        evidence={**evidence, "longest_wait_without_reason_ns": most_ns, "longest_wait_for_it_ns": every_ns},
        actions=fitting(case, ACTIONS if who in case.run.ranks else (ALSO_RECORD, *ACTIONS[1:])),
        cost_ns=cost_ns,
        next=("13_communication", "14_timeline"),
        part="communication",
    )


def _won_ns(case: Case, who: int, waits: pd.DataFrame) -> int:
    """How much shorter the longest of the other ranks of each step is without this waiting, a mean over steps."""
    others = case.steps[(case.steps["rank"] != who).to_numpy(dtype=bool)]
    lengths = others.set_index(["rank", "step"])["duration_ns"].astype("float64")
    less = waits.groupby(["rank", "step"])["ns"].sum().reindex(lengths.index).fillna(0.0)
    longest = pd.DataFrame({"before": lengths, "after": lengths - less}).groupby(level="step").max()
    return round(float((longest["before"] - longest["after"]).mean()))


RULE = Rule(
    name="late-rank",
    title="The others wait for a rank, for no reason on record",
    needs=frozenset({"steps", "collectives"}),
    how_to_collect=COMMUNICATION_BY,
    thresholds=(LATE_SHARE,),
    check=check,
    symptom_of=frozenset({"slow-rank"}),
)
