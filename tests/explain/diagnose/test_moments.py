"""Hosts and devices timed anew: nothing gone changes nothing, and what was put into a recording is won when it is gone again."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from benchmarks.diagnosis._causes import Cause, put_in
from benchmarks.diagnosis._real_cases import bases
from benchmarks.diagnosis._rewritten import WAIT_CALL, stretched
from benchmarks.diagnosis._timed_anew import Recording, Stretched
from perfkit.core.run import Run
from perfkit.explain.diagnose import blocking, work
from perfkit.explain.diagnose.case import Case
from perfkit.record.load import load

FOLDERS = {base.folder.name: base.folder for base in bases()}
WITH_HOSTS = ("resnet50_num_workers_4", "nccl_parser_config", "dlrm_8xV100", "kineto_resnet", "negative_queue_length")


@cache
def recording(name: str) -> Recording:
    return Recording(stretched(Recording(load(FOLDERS[name], cache=False)), Stretched()))


def step_ns(run: Run) -> float:
    return float(run.frame("steps").groupby("step")["duration_ns"].max().mean())


@pytest.mark.parametrize("name", WITH_HOSTS)
def test_without_any_change_the_recorded_times_come_out(name: str):
    case = Case(recording(name).run)
    moments = case.moments
    assert moments is not None
    times = moments.timed(work.EMPTY, work.EMPTY, {})
    for rank in case.detail_ranks:
        assert moments.idle_ns(rank, times) == moments.idle_ns(rank)
    assert moments.won_ns(work.EMPTY, work.EMPTY, {}) == 0


@pytest.mark.parametrize("name", WITH_HOSTS)
def test_longer_kernels_win_what_they_cost_when_they_are_as_short_as_before(name: str):
    base = recording(name)
    longer = stretched(base, put_in(base, Cause("slow computing", 1.5)))
    true_ns = step_ns(longer) - step_ns(base.run)
    case = Case(longer)
    won_ns = work.won_ns(case, case.computing, fraction=1 / 3)
    assert won_ns == pytest.approx(true_ns, rel=0.1, abs=0.005 * step_ns(base.run))


@pytest.mark.parametrize("name", ["resnet50_num_workers_4", "kineto_resnet"])
def test_calls_that_wait_win_what_they_cost_when_none_waits(name: str):
    base = recording(name)
    waiting = stretched(base, put_in(base, Cause("blocking calls", 40)))
    case = Case(waiting)
    calls = blocking.before_last(case, case.detail_ranks[0])
    won_ns = work.price(case, [work.loss(work.EMPTY, waits=calls)])
    assert won_ns == pytest.approx(step_ns(waiting) - step_ns(base.run), rel=0.2)


@pytest.mark.parametrize("name", WITH_HOSTS)
def test_no_device_idles_more_for_calls_that_wait_than_the_step_wins_without_them(name: str):
    case = Case(recording(name).run)
    calls = [own for rank in case.detail_ranks if (own := blocking.calls(case, rank)) is not None]
    won_ns = work.price(case, [work.loss(work.EMPTY, waits=own) for own in calls])
    assert max(blocking.lost_ns(case).values()) == pytest.approx(won_ns, rel=0.05)


def test_a_call_that_was_put_in_returns_when_its_kernel_ends_on_the_clock_of_its_rank():
    base = recording("dlrm_8xV100")
    run = stretched(base, put_in(base, Cause("blocking calls", 10)))
    for rank in run.ranks:
        host, kernels = run.frame("host", ranks=[rank]), run.frame("kernels", ranks=[rank])
        calls = host[(host["name"] == WAIT_CALL).to_numpy(dtype=bool)]
        returned = (calls["start_ns"] + calls["duration_ns"]).to_numpy(dtype=np.int64)
        ends = np.sort((kernels["start_ns"] + kernels["duration_ns"]).to_numpy(dtype=np.int64))
        behind = returned - ends[np.searchsorted(ends, returned, side="right") - 1]
        assert (behind <= 2_010).sum() >= 10, "a clock that drifts rounds"
