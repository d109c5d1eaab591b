"""A price does not depend on how finely a recording tells its times: any script that merges traces makes them floating-point."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from benchmarks.diagnosis._causes import Cause, joined, put_in
from benchmarks.diagnosis._real_cases import bases, read
from benchmarks.diagnosis._rewritten import stretched
from benchmarks.diagnosis._timed_anew import Recording
from perfkit.core.run import Run
from perfkit.explain.diagnose import diagnose

GRID_NS = 250
"""Microseconds of today are kept to a quarter of one by a floating-point number of 64 bits."""
MOMENTS = ("start_ns", "launch_ns", "time_ns")


def rounded(run: Run) -> Run:
    """The run with every moment on the grid, and lengths as they are."""

    def coarse(rows: pd.DataFrame) -> pd.DataFrame:
        columns = [name for name in MOMENTS if name in rows]
        return rows.assign(**{name: ((rows[name] + GRID_NS // 2) // GRID_NS) * GRID_NS for name in columns})

    tables = {name: coarse(run.frame(name)) if name != "steps" else run.frame(name) for name in run.tables}
    return replace(run, tables=tables, cache_key="")


@pytest.mark.parametrize(
    "cause",
    [Cause("slow computing", 6, ranks=(4,)), Cause("pause", 15, ranks=(6,), steps=(1, 3, 5)), Cause("late data", 8, ranks=(0,))],
    ids=lambda cause: cause.name,
)
def test_times_that_were_floating_point_numbers_change_no_price(cause: Cause):
    recording = Recording(read(next(base for base in bases() if base.name == "DLRM, 8 ranks, 6 steps")))
    run = stretched(recording, joined([put_in(recording, cause)]))
    exact, coarse = (diagnose(each) for each in (run, rounded(run)))
    first, again = exact.findings[0], coarse.findings[0]
    assert (again.rule, again.subject) == (first.rule, first.subject)
    assert again.cost_ns == pytest.approx(first.cost_ns, rel=0.03)
