"""What recording costs."""

import pytest

from perfkit.explain.diagnose.rules.profiler_overhead import RULE
from perfkit.record.format import Sink
from tests.explain.diagnose.made import US, Training, added, judged, lacks, run_of, stays_healthy, won_ns

STOP_US = 900.0
RUN = Training(stop_us=dict.fromkeys(range(4), STOP_US)).run()


def flushes(name):
    """Host events of rank 0 that fill the idle time after the fourth kernel of each step."""
    kernels = RUN.tables["kernels"]
    rows = kernels[(kernels["rank"] == 0) & (kernels["type"] == "Swiglu")].drop_duplicates("step")
    return [
        {
            "rank": 0,
            "name": name,
            "kind": "call",
            "start_ns": int(row["start_ns"] + row["duration_ns"]),
            "duration_ns": round(STOP_US * US),
        }
        for row in rows.to_dict("records")
    ]


def logged(step_ns):
    sink = Sink()
    sink.add("steps", rank=0, step=[1, 2, 3, 4], duration_ns=step_ns)
    return run_of(sink)


def test_idle_times_in_which_the_profiler_flushes_are_its_cost():
    (found,) = judged(RULE, added(RUN, host=flushes("Buffer Flush"))).findings
    assert found.cost_ns == pytest.approx(won_ns(RUN), rel=0.15)
    assert found.severity == "low"


def test_the_same_idle_times_in_other_calls_are_not():
    assert lacks(RULE, added(RUN, host=flushes("aten::copy_"))) == "times of the profiler itself, or steps without it"


def test_a_log_without_a_profiler_tells_what_it_costs():
    usual = round(RUN.steps()["duration_ns"].mean() * 0.8)
    (found,) = judged(RULE, RUN, logged(usual)).findings
    assert found.evidence["longer_than_without_ns"] == pytest.approx(0.25 * usual, rel=0.02)
    same = judged(RULE, RUN, logged(round(RUN.steps()["duration_ns"].mean())))
    assert same.findings == ()
    assert stays_healthy(RULE, added(Training().run(), host=[{**flushes("Buffer Flush")[0], "start_ns": 0}])) is not None
