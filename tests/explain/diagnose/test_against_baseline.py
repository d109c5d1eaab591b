"""A recording beside a copy with one cause put in: computing, host, communication and feed are each named, with what they cost."""

from __future__ import annotations

from functools import cache

import pandas as pd
import pytest

from benchmarks.diagnosis._causes import put_in
from benchmarks.diagnosis._real_cases import NEAR, Base, Cause, bases, judged
from benchmarks.diagnosis._rewritten import stretched
from benchmarks.diagnosis._timed_anew import Recording
from perfkit.explain.diagnose import diagnose
from perfkit.explain.ledger import growth, ledger
from perfkit.record.load import load
from tests.explain.diagnose.made import Training

BASES = {base.name: base for base in bases()}
DLRM, ALEXNET, SMALL = "DLRM, 8 ranks, 1 step", "AlexNet, 2 NPUs, 4 steps", "small model, 2 of 8 NPUs, 1 step"
NAMED = [
    (ALEXNET, Cause("late data", 12)),
    (ALEXNET, Cause("slow computing", 1.6, ranks=(1,))),
    (SMALL, Cause("slow host", 3)),
    (DLRM, Cause("late data", 10, ranks=(2,))),
    (DLRM, Cause("slow host", 2)),
]


@pytest.mark.parametrize(("base", "cause"), NAMED, ids=[f"{base}: {cause.name}" for base, cause in NAMED])
def test_what_became_slower_than_in_the_baseline_is_named_with_its_cost_and_nobody_else_is_blamed(base: str, cause: Cause):
    verdict = judged(BASES[base], cause, with_baseline=True)
    assert verdict.right
    assert verdict.innocents == ()
    assert cause.ranks == (1,) or verdict.cost_ratio == pytest.approx(1, abs=NEAR)


@cache
def recording(base: Base) -> Recording:
    return Recording(load(base.folder))


@pytest.mark.parametrize(("cause", "grows", "stays"), [
    (Cause("late data", 10, ranks=(2,)), growth.WAITING, growth.TRANSFER),
    (Cause("slow transfers", 5), growth.TRANSFER, growth.WAITING),
])  # fmt: skip
def test_waiting_for_one_rank_and_slow_transfers_are_told_apart(cause: Cause, grows: str, stays: str):
    read = recording(BASES[DLRM])
    table = growth.growth(ledger(stretched(read, put_in(read, cause))), ledger(read.run))
    others = table[~table["rank"].isin(cause.ranks)]
    sums: pd.Series = others.groupby("kind")["grown_ns"].sum()
    assert sums[grows] > 5_000_000
    assert sums.get(stays, 0) < 0.2 * sums[grows]


def test_a_baseline_of_another_job_is_said_and_one_of_the_same_is_not():
    alexnet, dlrm = (load(BASES[name].folder) for name in (ALEXNET, DLRM))
    small = load(BASES[SMALL].folder)
    assert any("another job" in note for note in diagnose(small, alexnet).notes)
    assert not any("another job" in note for run in (alexnet, dlrm, small) for note in diagnose(run, run).notes)


def test_more_work_than_in_the_baseline_is_said():
    fewer, more = (Training(ranks=2, layers=layers).run() for layers in (4, 5))
    assert any("the work is not the same" in note for note in diagnose(more, fewer).notes)
    assert not any("work" in note for note in diagnose(fewer, Training(ranks=2, layers=4, noise=0.02).run()).notes)
