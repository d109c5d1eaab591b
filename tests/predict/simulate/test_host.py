"""The host of a simulated run launches before the device starts, and what it stops for is in its table."""

from __future__ import annotations

import pytest

from perfkit.explain.idle import idle_breakdown
from perfkit.predict.simulate import simulate
from tests.predict.simulate.plans import TINY


@pytest.fixture(scope="module")
def run():
    return simulate(TINY, ["gc_pause:2:80", "data_stall:0:60", "frequent_sync:6", "memory_fragmentation:1:3"], steps=2)


def test_every_kernel_was_launched_before_it_started_and_in_order(run):
    rows = run.frame("launches")
    assert len(rows) == len(run.frame("kernels"))
    assert (rows["launch_ns"] + rows["launch_duration_ns"] < rows["start_ns"]).all()
    assert (rows.groupby("rank")["launch_ns"].diff().fillna(0) >= 0).all()


def test_idle_time_is_explained_by_what_the_host_did(run):
    stalled, paused, healthy = (idle_breakdown(run, rank=rank, step=2) for rank in (0, 2, 5))
    assert stalled.amount("data") > 60e6 > healthy.amount("data")
    assert paused.amount("host") > 80e6
    free = run.steps().set_index(["rank", "step"])["free_ns"]
    assert stalled.total == free[0, 2]


@pytest.mark.parametrize(
    ("rank", "name", "count"), [(2, "gc: collect generation 2", 2), (1, "cudaFree", 6), (1, "cudaMalloc", 6), (5, "cudaFree", 0)]
)
def test_stops_of_the_host_have_their_rows(run, rank, name, count):
    rows = run.frame("host", ranks=[rank])
    assert (rows["name"].astype(str) == name).sum() == count


def test_synchronisations_are_counted_by_pass(run):
    rows = run.frame("host", ranks=[5], columns=["name"])
    micro_batches = 4
    assert (rows["name"].astype(str) == "cudaStreamSynchronize").sum() == 2 * 2 * micro_batches * 6


def test_ascend_devices_have_calls_of_their_own():
    from dataclasses import replace

    from perfkit.core import catalog

    run = simulate(replace(TINY, hardware=catalog.hardware_named("Ascend-910B2")), steps=1)
    assert set(run.frame("launches")["call"].astype(str)) == {"aclrtLaunchKernel"}
