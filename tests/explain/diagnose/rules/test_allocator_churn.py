"""Memory that goes back to the device inside steps."""

import numpy as np
import pytest

from perfkit.explain.diagnose.rules.allocator_churn import RULE
from tests.explain.diagnose.made import US, Training, added, judged, lacks, stays_healthy

STOP_US = 400.0
RUN = Training(stop_us=dict.fromkeys(range(4), STOP_US)).run()


def curve(drops):
    """A curve of rank 0 whose reserved memory shrinks so often in all."""
    kernels = RUN.tables["kernels"]
    first, last = int(kernels["start_ns"].min()), int(kernels["start_ns"].max())
    times = np.linspace(first, last, 2 * drops + 2).astype(int)
    sizes = [2**30 - (at % 2) * 2**26 for at in range(len(times))]
    return [
        {"rank": 0, "component": "PTA", "time_ns": int(time), "allocated_bytes": 2**29, "reserved_bytes": size}
        for time, size in zip(times, sizes, strict=True)
    ]


def started(run):
    """The run with the starts of its steps, as a profiler that records memory states them."""
    rows = run.tables["steps"]
    starts = run.tables["kernels"].groupby(["rank", "step"])["start_ns"].min().rename("start_ns").reset_index()
    steps = rows.drop(columns="start_ns").merge(starts, on=["rank", "step"])
    return type(run)(name="made", kind="measured", format="made", tables={**run.tables, "steps": steps[list(rows.columns)]})


def frees(number):
    """Calls of rank 0 that end in the idle time of each step."""
    kernels = RUN.tables["kernels"]
    rows = kernels[(kernels["rank"] == 0) & (kernels["type"] == "Swiglu")].drop_duplicates("step")
    ends = (rows["start_ns"] + rows["duration_ns"]).tolist()
    return [
        {"rank": 0, "name": "cudaFree", "kind": "call", "start_ns": int(end), "duration_ns": 300 * US}
        for end in ends
        for _ in range(number)
    ]


def test_memory_that_shrinks_once_a_step_is_common_and_eight_times_is_not():
    assert stays_healthy(RULE, added(started(RUN), memory_curve=curve(5)))["most_returns_a_step"] == 1
    (found,) = judged(RULE, added(started(RUN), memory_curve=curve(48))).findings
    assert found.subject["ranks"] == (0,)
    assert found.evidence["most_returns_a_step"] == pytest.approx(8, abs=0.5)


def test_calls_that_free_memory_cost_the_idle_time_at_them():
    (found,) = judged(RULE, added(RUN, host=frees(5))).findings
    assert found.evidence["most_returns_a_step"] == pytest.approx(5, abs=1)
    assert 0 <= (found.cost_ns or 0) <= STOP_US * US * 1.1


def test_without_memory_and_calls_it_is_not_measured():
    assert lacks(RULE, RUN) == "memory reserved over time, or calls that free it"
