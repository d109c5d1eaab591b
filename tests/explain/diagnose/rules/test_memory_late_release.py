"""Memory that is held after its last use, or that grows."""

import numpy as np

from perfkit.core.resources import data_folder
from perfkit.explain.diagnose.rules.memory_late_release import RULE
from perfkit.record.load import load
from tests.explain.diagnose.made import MS, added, changed, healthy, judged, lacks, stays_healthy


def growing(per_step, steps=6):
    run = healthy()
    starts = np.arange(steps) * 100 * MS
    tables = dict(run.tables)
    one = tables["steps"][tables["steps"]["rank"] == 0].head(steps)
    tables["steps"] = one.assign(start_ns=starts, duration_ns=100 * MS)
    curve = [
        {
            "rank": 0,
            "component": "PTA",
            "time_ns": int(start) + at * 10 * MS,
            "allocated_bytes": 1000 + per_step * number + at * 500,
        }
        for number, start in enumerate(starts)
        for at in (1, 5)
    ]
    return added(type(run)(name="made", kind="measured", format="made", tables=tables), memory_curve=curve)


def test_memory_that_every_step_adds_to_is_named_and_a_saw_tooth_is_not():
    (found,) = judged(RULE, growing(200)).findings
    assert found.subject["ranks"] == (0,)
    assert found.evidence["growth_a_step_bytes"] == 200
    assert stays_healthy(RULE, growing(0))["growth_a_step_bytes"] == 0


def test_growth_is_the_median_of_what_steps_add_and_a_share_of_the_peak_of_the_largest_component():
    """Six steps begin with 1500, 1700, ... 2500 bytes and end with 2000 more; another component holds 700 all the time."""
    run = growing(200)
    other = [{"rank": 0, "component": "HCCL", "time_ns": at * 50 * MS, "allocated_bytes": 700} for at in range(12)]
    for recording in (run, added(run, memory_curve=other)):
        (found,) = judged(RULE, recording).findings
        assert found.evidence["growth_a_step_bytes"] == 200
        assert found.evidence["growth_a_step_share_of_peak"] == 200 / 4500


def test_memory_that_one_step_does_not_add_to_does_not_grow():
    run = growing(200)
    flat = run.frame("memory_curve")
    later = (flat["time_ns"] >= 300 * MS).to_numpy()
    flat["allocated_bytes"] = flat["allocated_bytes"] - 200 * later
    assert stays_healthy(RULE, changed(run, "memory_curve", allocated_bytes=flat["allocated_bytes"]))["growth_a_step_bytes"] == 0


def test_a_tracker_shows_what_is_held_longest():
    # The sample's tasks need 22 MiB at once; 42 MiB are allocated then, and Gelu_1 keeps 8 MiB for 18 tasks too long.
    (found,) = judged(RULE, load(data_folder() / "traces" / "memory_tracker")).findings
    assert found.evidence["live_peak_bytes"] - found.evidence["use_peak_bytes"] == 20 * 2**20
    assert found.subject["operators"][0] == "Gelu_1"
    assert found.cost_ns is None


def test_two_steps_show_no_growth():
    assert lacks(RULE, growing(200, steps=2)) == "uses of memory blocks, or memory over three steps"
