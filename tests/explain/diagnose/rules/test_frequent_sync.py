"""Calls of the host that wait for the device inside the step."""

from dataclasses import replace

import pandas as pd
import pytest

from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.case import Case
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


def test_calls_inside_of_a_call_are_not_counted_again():
    """`aten::item` copies and then waits: neither is a wait of its own."""
    run = with_calls(HEALTHY, 5)
    outer = run.tables["host"].assign(name="aten::item", duration_ns=1000)
    inner = [
        outer.assign(name=name, start_ns=outer["start_ns"] + begin, duration_ns=length)
        for name, begin, length in (("cudaMemcpyDtoH", 100, 200), ("cudaStreamSynchronize", 400, 500))
    ]
    (found,) = judged(replace(run, tables={**run.tables, "host": pd.concat([outer, *inner])})).findings
    assert found.evidence["calls_a_step"] == 5
    assert found.subject["operators"] == ("aten::item",)


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


def test_ranks_with_half_of_the_most_calls_are_named_and_win_together_what_the_last_of_them_is_late():
    """Ranks idle 20, 15 and 10 us before each of 29 kernels, and wait before 12, 6 and 5 of them: the last too seldom to be named.

    Without these calls rank 0 idles 17 x 20 = 340 us of 580, and rank 1 23 x 15 = 345 us: the step wins 235 us.
    """
    run = Training(noise=0.0, gap_us={0: 20.0, 1: 15.0, 2: 10.0}).run()
    sink = Sink()
    for rank, per_step in ((0, 12), (1, 6), (2, 5)):
        kernels = run.frame("kernels", ranks=[rank])
        kernels = kernels[kernels["kind"] == "computing"]
        ends = [int(start) for _, rows in kernels.groupby("step") for start in rows["start_ns"].iloc[1 : 1 + per_step]]
        sink.add(
            "host", rank=rank, name="cudaStreamSynchronize", kind="call", start_ns=[end - 500 for end in ends], duration_ns=500
        )
    (found,) = judged(replace(run, tables={**run.tables, **sink.tables()})).findings
    assert found.subject["ranks"] == (0, 1)
    assert found.evidence["calls_a_step"] == 12
    assert found.evidence["idle_after_calls_ns"] == 12 * 20_000
    assert found.cost_ns == pytest.approx(235_000, rel=0.01)


def waiting_for_every_kernel(ranks, steps=4, kernels=10):
    """Kernels of 100 us, each launched when the one before has ended, from 5 to 10 us after it; it begins another 10 us later."""
    sink = Sink()
    for rank in range(ranks):
        for step in range(1, steps + 1):
            begin = (step - 1) * kernels * 120_000
            starts = [begin + 20_000 + at * 120_000 for at in range(kernels)]
            sink.add("steps", rank=rank, step=step, start_ns=begin, duration_ns=kernels * 120_000, computing_ns=kernels * 100_000)
            common = {"rank": rank, "step": step, "name": "MatMul", "kind": "computing", "start_ns": starts, "stream": "0"}
            sink.add("kernels", **common, type="MatMul", duration_ns=100_000)
            launches = [start - 15_000 for start in starts]
            sink.add(
                "launches",
                **common,
                duration_ns=100_000,
                call="cudaLaunchKernel",
                thread="1",
                launch_ns=launches,
                launch_duration_ns=5_000,
            )
            sink.add(
                "host", rank=rank, thread="1", name="cudaStreamSynchronize", kind="call", duration_ns=90_000,
                start_ns=[start + 11_000 for start in starts],
            )  # fmt: skip
            sink.add("host", rank=rank, thread="1", name="cudaLaunchKernel", kind="call", start_ns=launches, duration_ns=5_000)
    return run_of(sink)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_step_wins_the_gaps_behind_all_its_waits_but_that_for_its_last_kernel(ranks):
    """Nine gaps of 20 us: one rank is timed anew, of two that do not meet the idle times at the calls are taken out."""
    run = waiting_for_every_kernel(ranks)
    assert (Case(run).moments is not None) == (ranks == 1)
    (found,) = judged(run).findings
    assert "ranks" not in found.subject
    assert found.evidence["calls_a_step"] == 9
    assert found.evidence["idle_after_calls_ns"] == found.cost_ns == 9 * 20_000


def waiting_in(waiting_steps, steps=6, kernels=30):
    """Kernels of 100 us in a row, launched ahead; in some steps each is launched when a call has waited for the one before."""
    sink = Sink()
    begin = 0
    for step in range(1, steps + 1):
        waits = step in waiting_steps
        every = 120_000 if waits else 100_000
        starts = [begin + 20_000 + at * every for at in range(kernels)]
        launches = [start - 15_000 for start in starts] if waits else [begin + at * 6_000 for at in range(kernels)]
        length = 20_000 + kernels * every
        sink.add("steps", rank=0, step=step, start_ns=begin, duration_ns=length, computing_ns=kernels * 100_000)
        common = {"rank": 0, "step": step, "name": "MatMul", "kind": "computing", "start_ns": starts, "stream": "0"}
        sink.add("kernels", **common, type="MatMul", duration_ns=100_000)
        calls = {"call": "cudaLaunchKernel", "thread": "1", "launch_ns": launches, "launch_duration_ns": 5_000}
        sink.add("launches", **common, duration_ns=100_000, **calls)
        of_host = {"rank": 0, "thread": "1", "kind": "call"}
        sink.add("host", **of_host, name="cudaLaunchKernel", start_ns=launches, duration_ns=5_000)
        if waits:
            ends = [start + 101_000 for start in starts]
            sink.add("host", **of_host, name="cudaStreamSynchronize", start_ns=[end - 90_000 for end in ends], duration_ns=90_000)
        begin += length
    return run_of(sink)


def test_calls_that_wait_in_some_steps_only_are_named_with_these_and_win_what_they_are_longer():
    """29 of 30 waits a step, each of 20 us, in steps 2 and 5 of six: a mean step wins 29 x 20 x 2 / 6 = 193 us of 3.22 ms."""
    (found,) = judged(waiting_in({2, 5})).findings
    assert found.subject["steps"] == (2, 5)
    assert found.evidence["calls_a_step"] == 29
    assert found.evidence["usual_calls_a_step"] == 0
    assert found.cost_ns == pytest.approx(29 * 20_000 * 2 / 6, rel=0.05)


def test_as_many_calls_in_every_step_are_of_no_step():
    (found,) = judged(waiting_in(set(range(1, 7)))).findings
    assert "steps" not in found.subject
