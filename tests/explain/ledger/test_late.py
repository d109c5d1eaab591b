"""Who is waited for: never oneself, and never an innocent, whatever part of a recording is missing."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pandas as pd
import pytest

from perfkit.core.run import Run
from perfkit.explain.ledger import NOBODY, causes, ledger
from perfkit.predict.simulate import simulate
from perfkit.record.format import Sink
from tests.explain.diagnose.made import US, Training, run_of
from tests.explain.ledger.test_ledger import dense_plan


@cache
def stalled() -> Run:
    plan = dense_plan(data=2, tensor=2)
    return simulate(replace(plan, model=replace(plan.model, num_layers=2)), faults=("data_stall:3:60",), steps=2, seed=1)


def without(run: Run, table: str, rank: int) -> Run:
    """A run that lacks a table of one rank."""
    rows = run.tables[table]
    return replace(run, tables={**run.tables, table: rows[(rows["rank"] != rank).to_numpy(dtype=bool)]})


def waiting(run: Run, torn: int | None = None) -> pd.DataFrame:
    """What all ranks of a run but a torn one wait, without what is less than a hundredth of all waiting."""
    entries = ledger(run).entries
    entries = entries[(entries["rank"] != torn).to_numpy(dtype=bool)]
    waits = entries[entries["cause"].str.startswith("waiting/").to_numpy()]
    assert (waits["who"] != waits["rank"]).all()
    sums = waits.groupby(["cause", "who"])["ns"].sum()
    return sums[sums > sums.sum() / 100].reset_index()


def blamed(run: Run) -> set[int]:
    return set(waiting(run)["who"]) - {NOBODY}


@pytest.mark.parametrize("torn", range(3))
def test_without_the_kernels_of_one_rank_the_slow_one_is_blamed_still(torn: int):
    run = Training(ranks=3, factors={2: 1.3}).run()
    assert blamed(run) == blamed(without(run, "kernels", torn)) == {2}


@pytest.mark.parametrize("torn", range(4))
def test_waiting_is_followed_through_a_rank_without_kernels(torn: int):
    waits = waiting(without(stalled(), "kernels", torn), torn)
    assert blamed(stalled()) == set(waits["who"]) == {3}


def test_why_a_rank_without_kernels_was_late_is_not_told():
    entries = ledger(without(stalled(), "kernels", 3)).entries
    assert set(entries.loc[entries["who"] == 3, "cause"]) == {causes.WAITING_UNTOLD}


@pytest.mark.parametrize("torn", range(4))
def test_without_the_collectives_of_one_rank_others_are_late_for_no_reason_but_it(torn: int):
    waits = waiting(without(stalled(), "collectives", torn))
    assert set(waits.loc[waits["cause"] != causes.WAITING_UNTOLD, "who"]) <= {3}


def test_what_a_rank_without_kernels_waited_before_all_met_does_not_count_twice():
    """All meet at 100 us, for which rank 0 waits 80 and rank 1 50; then rank 1 waits 30 for rank 2, and rank 0 40 for rank 1.

    So 30 of rank 0's 40 us go back to rank 2, and why rank 1 took 10 more nobody knows: its kernels are not recorded. Before, all
    ranks meet without waiting, which compares their clocks.
    """
    together = [(rank, "all", 3, start, start + 5) for start in (-30, -20, -10) for rank in range(3)]
    sink = Sink()
    for rank, group, members, start, end in (
        *together, (0, "all", 3, 20, 110), (1, "all", 3, 50, 110), (2, "all", 3, 100, 110),
        (1, "late", 2, 130, 170), (2, "late", 2, 160, 170), (0, "later", 2, 140, 190), (1, "later", 2, 180, 190),
    ):  # fmt: skip
        common = {
            "rank": rank,
            "step": 1,
            "name": f"{group} {end}",
            "start_ns": (100 + start) * US,
            "duration_ns": (end - start) * US,
        }
        sink.add("collectives", **common, operation="all_reduce", group=group, group_size=members)
        if rank != 1:
            sink.add("kernels", **common, kind="communication", stream="1")
    for rank, start, end in ((0, 0, 20), (0, 110, 140), (2, 0, 100), (2, 110, 160)):
        span = {"start_ns": (100 + start) * US, "duration_ns": (end - start) * US}
        sink.add("kernels", rank=rank, step=1, name="MatMul", kind="computing", stream="0", **span)
    for rank in range(3):
        sink.add("steps", rank=rank, step=1, start_ns=70 * US, duration_ns=220 * US)
    entries = ledger(run_of(sink)).entries
    waits = entries[(entries["rank"] == 0) & entries["cause"].str.startswith("waiting/")]
    assert waits.set_index(["cause", "who"])["ns"].to_dict() == {
        (causes.KERNELS, 2): 80 * US,
        (causes.WAITING_UNTOLD, 2): 30 * US,
        (causes.WAITING_UNTOLD, 1): 10 * US,
    }


@pytest.mark.parametrize("pieces", [1, 4])
def test_what_others_had_computed_while_they_waited_is_no_reason_why_the_late_one_is_late_again(pieces: int):
    """Rank 1 stands still. The others compute on beside the first gradients, so at the next ones it has more to do than they."""
    waits = waiting(Training(ranks=4, layers=8, stop_us={1: 2_500}, pieces=pieces, noise=0.0).run())
    assert set(waits["who"]) == {1}
    assert waits.loc[waits["cause"] == causes.KERNELS, "ns"].sum() < 0.05 * waits["ns"].sum()
