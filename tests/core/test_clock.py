"""Clocks that were put wrong on purpose are found again, by whichever way the ranks are connected."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.core import clock
from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.core.units import NS_PER_S
from perfkit.record.format import Sink
from perfkit.record.load import load

EPOCH_NS = 1_700_000_000 * NS_PER_S
HOURS_2_NS = 7200 * NS_PER_S
TP_DP = {"tp0": (0, 1), "tp1": (2, 3), "tp2": (4, 5), "tp3": (6, 7), "dp0": (0, 2, 4, 6), "dp1": (1, 3, 5, 7)}


def made(groups, wrong=None, *, span_ns=10 * NS_PER_S, num_each=60, jitter_ns=0, late=0.0, operation="all_reduce", seed=0) -> Run:
    """A run in which the members of every operation end together, seen by clocks `wrong` = {rank: (offset_ns, drift)}."""
    random = np.random.default_rng(seed)
    sink = Sink()
    for group, members in groups.items():
        ends = EPOCH_NS + np.sort(random.integers(0, span_ns, num_each))
        for rank in members:
            offset_ns, drift = (wrong or {}).get(rank, (0, 0.0))
            mine = ends + random.integers(-jitter_ns, jitter_ns + 1, num_each)
            mine = mine + (random.random(num_each) < late) * random.integers(0, 50_000_000, num_each)
            shown = mine + offset_ns + np.rint((mine - EPOCH_NS) * drift).astype(np.int64)
            waits = random.integers(1000, 5_000_000, num_each)
            sink.add(
                "collectives",
                rank=rank,
                step=0,
                name=[f"op{index}" for index in range(num_each)],
                operation=operation,
                group=group,
                group_size=len(members),
                start_ns=shown - waits,
                duration_ns=waits,
            )
    return Run(name="made", kind="measured", format="made", tables=sink.tables())


def errors_ns(run: Run, wrong) -> dict[int, float]:
    """How far moments of each rank are from the truth after alignment, less what is common to all ranks."""
    clocks = clock.estimate(run)
    moments = EPOCH_NS + np.linspace(0, 10 * NS_PER_S, 50).astype(np.int64)
    off = {}
    for rank, found in clocks.items():
        offset_ns, drift = wrong.get(rank, (0, 0.0))
        shown = moments + offset_ns + np.rint((moments - EPOCH_NS) * drift).astype(np.int64)
        off[rank] = found.common_ns(shown) - moments
    common = np.median(np.stack(list(off.values())), axis=0)
    return {rank: float(np.abs(error - common).max()) for rank, error in off.items()}


@pytest.mark.parametrize("groups", [{"world": tuple(range(8))}, TP_DP, {f"pair{rank}": (rank, rank + 1) for rank in range(7)}])
@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {3: (HOURS_2_NS, 0.0)},
        {0: (-HOURS_2_NS, 0.0)},
        {5: (0, 50e-6)},
        {5: (HOURS_2_NS, 50e-6), 2: (-3_000_000, -20e-6)},
    ],
)
def test_offset_and_drift_are_found_to_less_than_2_us(groups, wrong):
    found = errors_ns(made(groups, wrong, jitter_ns=1000, num_each=200), wrong)
    assert set(found) == set(range(8))
    assert max(found.values()) < 2000


def test_without_jitter_and_drift_the_offset_is_exact():
    clocks = clock.estimate(made(TP_DP, {3: (HOURS_2_NS, 0.0)}))
    assert {rank: found.offset_ns for rank, found in clocks.items()} == {**dict.fromkeys(range(8), 0), 3: HOURS_2_NS}
    assert all(found.drift == 0.0 for found in clocks.values())
    assert all(found.residual_ns == 0.0 for found in clocks.values())


def test_some_late_ends_do_not_move_a_clock():
    wrong = {2: (40_000_000, 0.0)}
    assert max(errors_ns(made({"world": (0, 1, 2, 3)}, wrong, late=0.2, jitter_ns=500, num_each=300), wrong).values()) < 2000


def test_jitter_is_no_drift():
    clocks = clock.estimate(made(TP_DP, jitter_ns=20_000, num_each=100))
    assert all(found.drift == 0.0 for found in clocks.values())
    assert all(5_000 < found.residual_ns < 20_000 for found in clocks.values())


def test_the_error_is_within_a_few_times_the_stated_uncertainty():
    wrong = {1: (5_000_000, 0.0)}
    clocks = clock.estimate(made({"world": (0, 1)}, wrong, jitter_ns=10_000, num_each=400))
    off = abs((clocks[1].offset_ns - clocks[0].offset_ns) - 5_000_000)
    assert off < 5 * max(found.uncertainty_ns for found in clocks.values())


def test_aligned_shifts_only_the_start_and_keeps_rows_of_unknown_clocks_as_unknown():
    run = made({"world": (0, 1, 2)}, {2: (HOURS_2_NS, 0.0)})
    frame = run.frame("collectives")
    clocks = dict(clock.estimate(run))
    del clocks[0]
    common = clock.aligned(frame, clocks)
    assert common.loc[common["rank"] == 0, "start_ns"].isna().all()
    ends = (common["start_ns"] + common["duration_ns"])[common["rank"] != 0]
    assert (ends.groupby(common["name"], observed=True).nunique() == 1).all()
    pd.testing.assert_frame_equal(common.drop(columns="start_ns"), frame.drop(columns="start_ns"))


@pytest.mark.parametrize("operation", ["broadcast", "send", "receive", "send_receive", "other"])
def test_operations_that_need_not_end_together_are_not_used(operation: str):
    assert clock.estimate(made(TP_DP, operation=operation)) == {}


def test_a_name_that_several_groups_share_is_not_used():
    run = made({"world": tuple(range(4))})
    frame = run.frame("collectives").assign(group_size=pd.array([2] * len(run.frame("collectives")), dtype="Int64"))
    assert clock.estimate(replace(run, tables={"collectives": frame})) == {}


def test_ranks_that_share_no_operation_with_the_others_have_no_clock():
    assert set(clock.estimate(made({"a": (0, 1, 2), "b": (3, 4)}))) == {0, 1, 2}


@pytest.mark.parametrize("groups", [{}, {"alone": (0,)}])
def test_a_run_without_common_operations_has_no_clocks(groups):
    assert clock.estimate(made(groups)) == {}


@settings(max_examples=40, deadline=None)
@given(
    offsets=st.lists(st.integers(-(10**13), 10**13), min_size=8, max_size=8),
    drifts=st.lists(st.floats(-80e-6, 80e-6), min_size=8, max_size=8),
    seed=st.integers(0, 1000),
)
def test_any_offsets_and_drifts_are_undone(offsets, drifts, seed):
    wrong = dict(enumerate(zip(offsets, drifts, strict=True)))
    assert max(errors_ns(made(TP_DP, wrong, seed=seed, num_each=100), wrong).values()) < 2000


def test_a_run_that_was_loaded_knows_its_clocks():
    run = load(data_folder() / "traces" / "torch_npu_2rank")
    assert set(run.clock) == {0, 1}
    shifted = run.frame("collectives").assign(offset_ns=lambda rows: rows["rank"].map(run.clock))
    ends = shifted["start_ns"] + shifted["duration_ns"] + shifted["offset_ns"]
    spread = (ends.groupby(shifted["name"], observed=True).max() - ends.groupby(shifted["name"], observed=True).min()).median()
    assert spread < 20_000
