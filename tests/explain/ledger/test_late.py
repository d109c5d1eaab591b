"""Who is waited for: never oneself, and never an innocent, whatever part of a recording is missing."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pandas as pd
import pytest

from perfkit.core.run import Run
from perfkit.explain.ledger import NOBODY, causes, ledger
from perfkit.predict.simulate import simulate
from tests.explain.diagnose.made import Training
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
