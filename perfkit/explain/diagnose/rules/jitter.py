"""Equal kernels take very different times, with no rank that is always slow: the others wait for whoever is late this time.

What is measured: the k-th kernel of a step against the k-th of the step before of the same rank (log ratio, robust spread; over the
root of two, because both vary). Shapes that change from step to step are not compared, because then numbers of kernels differ.

What to do: look for other jobs on the hosts and devices, bind processes to CPUs, fix clocks, and repeat the measurement.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from perfkit.core import robust
from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose import work
from perfkit.explain.diagnose.advice import BIND, HEALTH, Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import KERNELS_BY, STEPS_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict

JITTER_SPREAD = Threshold(
    name="jitter-spread",
    value=0.06,
    unit="robust spread of equal kernels, log ratio",
    origin="chosen: healthy bundled recordings have up to 0.035, and noise of 5 % is healthy",
)

MIN_STEPS = 3
"""Two changes between equal kernels; of one there is no spread."""
LEAST_NS = 10_000
"""Shorter kernels vary with the resolution of the recording."""

ACTIONS: tuple[Action, ...] = ("look for other jobs on hosts and devices, and for changing clocks", HEALTH, BIND)


def check(case: Case) -> Verdict:
    """The spread of equal kernels over steps."""
    rows = _numbered(case)
    if rows.empty:
        raise NotMeasuredError(say("equal kernels in {count} steps", count=MIN_STEPS), how_to_collect=STEPS_BY)
    logs = pd.Series(np.log(rows["duration_ns"].to_numpy(dtype=np.float64)), index=rows.index)
    # Distances from a median of few steps, one of which is the median, would be too large or too small.
    changes = logs.groupby([rows["rank"], rows["place"]]).diff().dropna()
    spread = robust.sigma(changes[changes != 0], middle=0.0) / math.sqrt(2.0)
    short_ns, long_ns = case.steps.groupby("step")["duration_ns"].max().quantile([0.1, 0.9])
    evidence = {"spread_of_equal_kernels_ratio": spread}
    if short_ns:  # where calls share their numbers most steps may be left without a kernel
        evidence["step_p90_over_p10"] = float(long_ns / short_ns)
    if spread < case.limit(JITTER_SPREAD):
        return Verdict((), evidence)
    # Without the spread every kernel takes the median time of its place among ranks of equal work, at its rank's own speed.
    own = logs - logs.groupby([rows["rank"].map(case.roles), rows["place"]]).transform("median")
    own = own - own.groupby(rows["rank"]).transform("median")
    table = rows.assign(gone=1.0 - np.exp(-own))
    cost_ns = work.price(case, [work.loss(table, fraction=table["gone"], alone=True)])
    finding = Finding(
        rule=RULE.name,
        title=say(
            "Equal kernels differ by {spread_of_equal_kernels_ratio} from step to step, on no rank in particular", **evidence
        ),
        subject={"ranks": ()},
        evidence={**evidence, "cost_of_spread_ns": cost_ns},
        actions=fitting(case, ACTIONS),
        severity=work.severity_of(case, cost_ns),
        cost_ns=cost_ns,
        next=("11_step_breakdown",),
        part="step",
    )
    return Verdict((finding,), evidence)


def _numbered(case: Case) -> pd.DataFrame:
    """Computing kernels with their place in the step, of ranks whose steps all have the same number of them."""
    rows = case.computing[["rank", "step", "start_ns", "duration_ns", "op"]]
    counts = rows.groupby(["rank", "step"]).size().unstack("step")
    equal = counts.index[(counts.nunique(axis=1) == 1).to_numpy() & counts.notna().all(axis=1).to_numpy()]
    if counts.shape[1] < MIN_STEPS or not len(equal):
        return rows.iloc[:0].assign(place=0)
    rows = rows[rows["rank"].isin(np.asarray(equal))]
    rows = rows.assign(place=rows.groupby(["rank", "step"]).cumcount())
    return rows[(rows["duration_ns"] >= LEAST_NS).to_numpy(dtype=bool)]


RULE = Rule("jitter", "Equal kernels take different times", frozenset({"steps", "kernels"}), KERNELS_BY, (JITTER_SPREAD,), check)
