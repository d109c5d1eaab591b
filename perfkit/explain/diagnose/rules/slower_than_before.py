"""A step loses more to its host, its input or its communication than an earlier run of the same job did.

What is measured: the ledgers of both runs, by rank: what the device waited for its host, for input and for copies, how long data
moved with nothing else, and how long it waited for other ranks; where a recording does not tell moving and waiting apart, both as
communication. Computing is judged where no kernels were recorded; else by operator, which `slow-operators` says. Waiting for a
rank that itself became slower is that rank's, and not told again, nor are transfers that take as long as they did and are hidden
less. Of ranks whose hosts are not known in one of both, all times in which their device does nothing are compared.

What to do: compare what changed between both runs: settings, versions, placement on nodes, the neighbours on host and network.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import BASELINE_BY
from perfkit.explain.diagnose.rule import Finding, Part, Rule, Threshold, Verdict
from perfkit.explain.ledger import growth
from perfkit.explain.ledger.causes import WAITING_UNTOLD, words_of

GROWN_RATIO = Threshold("grown-ratio", 1.1, "ratio to the baseline", "chosen: repeats of one job differ by a few percent")
GROWN_SHARE = Threshold("grown-share", 0.01, "share of the step", "chosen: repeats of one job differ by up to 1 %")

WORDS = {
    growth.COMPUTING: "computes",
    growth.HOST: "waits for its host",
    growth.FEED: "waits for input",
    growth.COPY: "copies memory",
    growth.TRANSFER: "moves data with nothing else",
    growth.WAITING: "waits for other ranks",
    growth.COMMUNICATION: "communicates with nothing else",
    growth.FREE: "does nothing",
}
PARTS: dict[str, Part] = {
    growth.COMPUTING: "computing",
    growth.HOST: "free",
    growth.FEED: "free",
    growth.COPY: "free",
    growth.TRANSFER: "communication",
    growth.WAITING: "communication",
    growth.COMMUNICATION: "communication",
    growth.FREE: "free",
}
MAY_WAIT = (growth.WAITING, growth.COMMUNICATION)
MOST = 0.5
"""Another rank that lost this much of what one waits longer is what it waits for."""
PAGES = {"free": "14_timeline", "communication": "13_communication", "computing": "12_operators"}


def check(case: Case) -> Verdict:
    """What grew on all ranks or on some."""
    if case.baseline is None:
        raise NotMeasuredError("an earlier run to compare with", how_to_collect=BASELINE_BY)
    before = Case(case.baseline, None, case.limits)
    table = growth.growth(case.ledger, before.ledger)
    longer_ns = (case.step_ns or 0) - (before.step_ns or 0)
    evidence = {"step_ns": float(case.step_ns or 0), "baseline_step_ns": float(before.step_ns or 0)}
    if table.empty or longer_ns <= 0:
        return Verdict((), evidence)
    least_ns = case.limit(GROWN_SHARE) * (case.step_ns or 0)
    grown = table[
        (table["grown_ns"] >= least_ns).to_numpy(dtype=bool)
        & (table["now_ns"] >= case.limit(GROWN_RATIO) * table["then_ns"]).to_numpy(dtype=bool)
    ]
    if (grown["kind"] != growth.TRANSFER).any():  # else nothing hides them any more, which is a loss of its own
        grown = grown[~_laid_bare(grown, case, before)]
    judged = [kind for kind in growth.KINDS if kind != growth.COMPUTING or not case.run.has("kernels")]
    findings = [_finding(case, kind, rows, len(set(table["rank"])), longer_ns) for kind in judged if len(rows := _own(kind, grown))]
    return Verdict(tuple(findings), evidence)


def _laid_bare(grown: pd.DataFrame, case: Case, before: Case) -> npt.NDArray[np.bool_]:
    """Which rows are transfers that take as long as they did: nothing hides them while another rank is waited for."""
    now, then = _moving_ns(case), _moving_ns(before)
    more = grown["rank"].map(now - then).to_numpy(dtype=np.float64)
    moved: npt.NDArray[np.bool_] = (grown["kind"] == growth.TRANSFER).to_numpy(dtype=bool)
    return moved & (more < MOST * grown["grown_ns"].to_numpy(dtype=np.float64))


def _moving_ns(case: Case) -> pd.Series:
    """How long data move in the mean step of each rank, with or without something else."""
    rows = case.members
    steps = rows.groupby("rank")["step"].nunique() if len(rows) else pd.Series(dtype="int64")
    return rows.groupby("rank")["transfer_ns"].sum(min_count=1).astype("float64") / steps


def _own(kind: str, grown: pd.DataFrame) -> pd.DataFrame:
    """Rows of a kind; of waiting only where nothing says why the other rank was late: else that rank's own growth is told.

    Nor is what a rank waits longer, or communicates where that may be waiting, its own where another one lost most of as much.
    """
    rows: pd.DataFrame = grown[(grown["kind"] == kind).to_numpy(dtype=bool)]
    if kind not in MAY_WAIT:
        return rows
    lost = grown[~grown["kind"].isin([*MAY_WAIT, growth.TRANSFER]).to_numpy(dtype=bool)]
    others = np.array(
        [lost.loc[(lost["rank"] != rank).to_numpy(dtype=bool), "grown_ns"].max() for rank in rows["rank"]], dtype=float
    )
    own = np.nan_to_num(others) < MOST * rows["grown_ns"].to_numpy(dtype=float)
    kept: pd.DataFrame = rows[own & ((kind != growth.WAITING) | (rows["cause"] == WAITING_UNTOLD).to_numpy(dtype=bool))]
    return kept


def _finding(case: Case, kind: str, rows: pd.DataFrame, num_ranks: int, longer_ns: int) -> Finding:
    ranks = tuple(sorted(int(rank) for rank in rows["rank"]))
    everywhere = len(ranks) == num_ranks
    worst = rows.iloc[int(rows["grown_ns"].to_numpy().argmax())]
    who = (
        say("Every rank")
        if everywhere and num_ranks > 1
        else say("Rank {rank}", rank=str(ranks[0]))
        if len(ranks) == 1
        else say("{count} ranks: each", count=len(ranks))
    )
    cause = words_of(str(worst["cause"]))
    return Finding(
        rule=RULE.name,
        title=say(
            "{who} {does} up to {grown_ns} of the mean step longer than in the baseline ({cause})",
            who=who,
            does=WORDS[kind],
            grown_ns=float(worst["grown_ns"]),
            cause=cause,
        ),
        subject={"ranks": ranks, "causes": (str(worst["cause"]),)},
        evidence={
            "now_ns": float(worst["now_ns"]),
            "baseline_ns": float(worst["then_ns"]),
            "grown_ns": float(worst["grown_ns"]),
            "step_longer_ns": float(longer_ns),
            "share_of_ranks": len(ranks) / max(1, num_ranks),
        },
        actions=(
            "compare settings, versions of driver and framework, and the placement on nodes with those of the earlier run",
            "look for other jobs on the same hosts and network",
        ),
        cost_ns=min(longer_ns, round(float(worst["grown_ns"]))),
        next=(PAGES[PARTS[kind]], "21_compare"),
        part=PARTS[kind],
    )


RULE = Rule(
    name="slower-than-before",
    title="More is lost than in the baseline",
    needs=frozenset({"steps"}),
    how_to_collect=BASELINE_BY,
    thresholds=(GROWN_RATIO, GROWN_SHARE),
    check=check,
    explains=frozenset({"exposed-communication", "gradient-allreduce-tail"}),
)
