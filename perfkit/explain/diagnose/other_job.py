"""Other job: what says that a baseline is no earlier run of the same job, so that what grew may be its model or its batch.

Two recordings of one job run the same operators: of bundled ones of one job 96 % and more of the computing time is in operators
that the other one has, of two jobs mostly less than half. Sizes that both state are compared, too.
"""

from __future__ import annotations

import re

import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import joined, say
from perfkit.core.units import format_count
from perfkit.explain.compare.settings import changed
from perfkit.explain.diagnose.case import Case

LEAST_SHARED = 0.8
"""Another release fuses some operators, another strategy splits some: a fifth of the time."""
BATCH = re.compile(r"(?<!micro_)batch_size|seq_?len")
MORE_WORK = 0.02
"""Steps of one job run the same kernels, but for some that an allocator or a log adds."""
FEW_TOLD = 4


def told(case: Case, before: Case) -> list[str]:
    """Why the baseline may be of another job, in sentences; none if nothing says so."""
    sizes = [
        say("{key} is {new} here and {old} there", **{name: str(row[name]) for name in ("key", "old", "new")})
        for row in changed(before.run, case.run)
        if row["group"] == "architecture" or BATCH.search(row["key"])
    ]
    notes: list[str] = []
    if sizes:
        notes.append(say("the baseline may be of another job: {differing}", differing=joined(sizes[:FEW_TOLD], ", ")))
    if (shared := shared_share(case, before)) is not None:
        if shared < LEAST_SHARED:
            form = "the baseline may be of another job: {shared_share} of the computing time is in operators that both ran"
            notes.append(say(form, shared_share=shared))
        elif abs(_kernels_a_step(case) / _kernels_a_step(before) - 1.0) > MORE_WORK:
            form = "a rank runs {here} kernels a step here and {there} in the baseline: the work is not the same"
            counts = {"here": _kernels_a_step(case), "there": _kernels_a_step(before)}
            notes.append(say(form, **{name: format_count(round(count)) for name, count in counts.items()}))
    return notes


def shared_share(case: Case, before: Case) -> float | None:
    """The share of the computing time that is in operators which both ran, of the run that has less; None where one has none."""
    here, there = _by_operator(case), _by_operator(before)
    if here.empty or there.empty:
        return None
    return min(float(one[one.index.isin(other.index)].sum() / one.sum()) for one, other in ((here, there), (there, here)))


def _by_operator(case: Case) -> pd.Series:
    """Computing time by operator; empty where no kernels were recorded."""
    if not case.run.has("kernels"):
        return pd.Series(dtype="float64")
    try:
        rows = case.computing
    except NotMeasuredError:
        return pd.Series(dtype="float64")
    return rows.groupby("op", observed=True)["duration_ns"].sum().astype("float64")


def _kernels_a_step(case: Case) -> float:
    """The kernels that compute in the mean step of a rank."""
    rows = case.computing
    return len(rows) / max(1, len(rows[["rank", "step"]].drop_duplicates()))
