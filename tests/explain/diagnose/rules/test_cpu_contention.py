"""Launch calls that are held up."""

import numpy as np
import pytest

from perfkit.explain.diagnose.rules.cpu_contention import RULE
from tests.explain.diagnose.made import US, Training, added, judged, lacks, stays_healthy

STOP_US = 600.0
RUN = Training(ranks=1, steps=6, stop_us={0: STOP_US}).run()


def launched(run, held_us):
    """The run with launches 5 us long just before each kernel; those after an idle time began `held_us` before it."""
    kernels = run.tables["kernels"].sort_values("start_ns")
    before = np.concatenate([[0], (kernels["start_ns"] + kernels["duration_ns"]).to_numpy()[:-1]])
    idle = (kernels["start_ns"].to_numpy() - before > 500 * US) & (np.arange(len(kernels)) > 0) & (kernels["step"].diff() == 0)
    took = np.where(idle, max(5, held_us) * US, 5 * US)
    return added(
        run,
        launches=[
            {
                "rank": 0, "step": int(row["step"]), "name": str(row["name"]), "kind": str(row["kind"]), "call": "cudaLaunchKernel",
                "start_ns": int(row["start_ns"]), "duration_ns": int(row["duration_ns"]),
                "launch_ns": int(row["start_ns"]) - int(length), "launch_duration_ns": int(length),
            }
            for row, length in zip(kernels.to_dict("records"), took, strict=True)
        ],
    )  # fmt: skip


def test_launches_in_which_the_device_idles_are_named_with_that_time():
    (found,) = judged(RULE, launched(RUN, STOP_US)).findings
    assert found.subject["ranks"] == (0,)
    assert found.evidence["longest_call_ns"] == STOP_US * US
    assert found.cost_ns == pytest.approx(STOP_US * US, rel=0.2)


def test_the_same_idle_time_with_short_launches_is_no_contention():
    assert stays_healthy(RULE, launched(RUN, 5))["held_up_calls_a_step"] == 0


def test_launches_that_all_take_as_long_are_not_held_up():
    slow = launched(RUN, STOP_US)
    slow.tables["launches"]["launch_duration_ns"] = int(STOP_US * US)
    assert stays_healthy(RULE, slow)["held_up_calls_a_step"] == 0


def test_a_call_that_blocks_while_the_device_works_costs_nothing():
    busy = launched(Training(ranks=1, steps=6).run(), 5)
    rows = busy.tables["launches"]
    long = rows["launch_duration_ns"].where(np.arange(len(rows)) % 7 != 6, 900 * US)
    rows["launch_duration_ns"] = long
    assert stays_healthy(RULE, busy)["idle_in_held_up_calls_ns"] < 10 * US


def test_without_launches_it_is_not_measured():
    assert lacks(RULE, RUN) == "calls that launch kernels"
