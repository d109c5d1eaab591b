"""Calls of the host that wait for the device inside the step."""

from dataclasses import replace

import pytest

from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules.frequent_sync import RULE
from perfkit.record.format import Sink
from tests.explain.diagnose.made import Training, run_of

HEALTHY = Training().run()


def judged(run, baseline=None):
    return diagnose(run, baseline, only=[RULE])


def seconds_won(changed, healthy=HEALTHY):
    """What a step really wins without the fault, in ns."""
    return changed.steps()["duration_ns"].mean() - healthy.steps()["duration_ns"].mean()


def test_without_its_tables_nothing_is_measured():
    result = judged(run_of(Sink()))
    assert result.findings == result.healthy == ()
    assert result.not_measured[0].how_to_collect


def with_calls(run, per_step):
    kernels = run.frame("kernels", ranks=[0])
    kernels = kernels[kernels["kind"] == "computing"]
    starts = [int(start) for _, rows in kernels.groupby("step") for start in rows["start_ns"].iloc[1 : 1 + per_step]]
    sink = Sink()
    sink.add("host", rank=0, name="cudaStreamSynchronize", kind="call", start_ns=starts, duration_ns=1000)
    return replace(run, tables={**run.tables, **sink.tables()})


def test_one_call_a_step_is_healthy():
    result = judged(with_calls(HEALTHY, 1))
    assert result.findings == ()
    assert result.healthy[0].evidence["calls_a_step"] == 1


def test_many_calls_inside_the_step_are_named():
    (found,) = judged(with_calls(HEALTHY, 8)).findings
    assert found.evidence["calls_a_step"] == 8
    assert found.subject["operators"] == ("cudaStreamSynchronize",)


def test_without_the_host_nothing_is_measured():
    assert judged(HEALTHY).not_measured


def calls_in_gaps(per_step, *, before_us, gap_us=10.0):
    """Calls that end so long before a kernel of rank 0 starts, which idles for `gap_us` before every kernel."""
    run = Training(noise=0.0, gap_us={0: gap_us}).run()
    kernels = run.frame("kernels", ranks=[0])
    kernels = kernels[kernels["kind"] == "computing"]
    starts = [int(start) for _, rows in kernels.groupby("step") for start in rows["start_ns"].iloc[1 : 1 + per_step]]
    sink = Sink()
    ends = [start - round(before_us * 1000) for start in starts]
    sink.add("host", rank=0, name="cudaStreamSynchronize", kind="call", start_ns=[end - 500 for end in ends], duration_ns=500)
    return replace(run, tables={**run.tables, **sink.tables()})


@pytest.mark.parametrize("before_us", [0.0, 4.0, 10.0])
def test_gaps_that_a_waiting_call_ends_in_are_lost_whole(before_us):
    (found,) = judged(calls_in_gaps(8, before_us=before_us)).findings
    assert found.evidence["idle_after_calls_ns"] == pytest.approx(8 * 10_000)


def test_four_calls_a_step_are_too_many_and_three_are_not():
    assert judged(calls_in_gaps(4, before_us=4.0)).findings
    assert judged(calls_in_gaps(3, before_us=4.0)).findings == ()
