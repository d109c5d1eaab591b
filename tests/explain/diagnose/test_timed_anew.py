"""The benchmark on real recordings: nothing stretched changes nothing, and what is stretched moves what waits for it by as much."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest

from benchmarks.diagnosis._causes import Cause, put_in
from benchmarks.diagnosis._real_cases import bases, cases
from benchmarks.diagnosis._rewritten import stretched
from benchmarks.diagnosis._timed_anew import Recording, Stretched
from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules import slow_link
from perfkit.record.load import load

MS = 1_000_000
FOLDERS = {base.folder.name: base.folder for base in bases()}


@cache
def recording(name: str) -> Recording:
    return Recording(load(FOLDERS[name], cache=False))


def step_ns(run) -> pd.Series:
    return run.frame("steps").groupby("step")["duration_ns"].max()


@pytest.mark.parametrize("name", FOLDERS)
def test_a_recording_in_which_nothing_is_stretched_stays_as_it_was(name: str):
    run = recording(name).run
    anew = stretched(recording(name), Stretched())
    for table in ("kernels", "collectives", "launches", "host", "steps", "step_parts"):
        if not run.has(table):
            continue
        before, after = run.frame(table), anew.frame(table)
        if table == "steps":
            before = before.sort_values(["rank", "step"], ignore_index=True)
        for column in before.columns[[pd.api.types.is_numeric_dtype(kind) for kind in before.dtypes]]:
            assert (before[column].fillna(-1).to_numpy() == after[column].fillna(-1).to_numpy()).all(), (table, column)


@pytest.mark.parametrize("name", FOLDERS)
def test_no_piece_of_a_stretched_recording_begins_before_what_it_waits_for(name: str):
    run = stretched(recording(name), put_in(recording(name), Cause("slow computing", 1.5)))
    rows = run.frame("kernels").sort_values(["rank", "stream", "start_ns"])
    ends = (rows["start_ns"] + rows["duration_ns"]).groupby([rows["rank"], rows["stream"].astype(str)]).shift()
    old = recording(name).kernels.loc[rows.index]
    recorded = (old["start_ns"] + old["duration_ns"]).groupby([rows["rank"], rows["stream"].astype(str)]).shift()
    one_after_another = (recorded <= old["start_ns"]).fillna(False).to_numpy(dtype=bool)
    assert (rows["start_ns"][one_after_another] >= ends[one_after_another]).all()
    assert (step_ns(run) >= step_ns(recording(name).run) - 1_000).all(), "a longer kernel makes no step shorter"


def test_a_pause_of_a_host_that_its_device_waits_for_lengthens_the_step_by_itself():
    before = recording("nccl_parser_config")
    after = stretched(before, put_in(before, Cause("pause", 50, steps=(2,))))
    grown = (step_ns(after) - step_ns(before.run)).to_numpy() / MS
    assert grown == pytest.approx([0, 0, 50], abs=3), "launches are late by up to what was queued"


def test_a_rank_that_pauses_in_a_group_lets_all_ranks_wait_for_it():
    before = recording("dlrm_8xV100")
    after = stretched(before, put_in(before, Cause("pause", 8, ranks=(5,))))
    old, new = (run.frame("collectives").groupby("rank")["duration_ns"].sum() for run in (before.run, after))
    longer = new - old
    assert (longer.drop(5) > longer[5]).all(), "who comes late waits least"
    assert longer.drop(5).median() > 2 * MS


@pytest.mark.parametrize("name", FOLDERS)
def test_parts_of_every_stretched_step_sum_to_it_and_the_recording_itself_is_left_alone(name: str):
    recorded = recording(name).run
    before = {table: recorded.frame(table).copy() for table in recorded.tables}
    run = stretched(recording(name), put_in(recording(name), Cause("slow transfers", 2)))
    sums = run.frame("step_parts").groupby(["rank", "step"])["amount_ns"].sum()
    steps = run.frame("steps").set_index(["rank", "step"])["duration_ns"]
    assert np.abs(sums - steps.reindex(sums.index)).max() <= 0.001 * steps.max()
    for table, rows in before.items():
        pd.testing.assert_frame_equal(recorded.frame(table), rows)


def test_there_are_sixty_cases_of_six_bases():
    assert len(list(cases())) >= 60
    assert len({base.name for base, _, _ in cases()}) >= 6


def test_the_one_transfer_of_a_step_that_is_slow_on_all_ranks_is_named_but_not_the_step_in_which_they_connect():
    before = recording("alexnet")
    after = stretched(before, put_in(before, Cause("slow transfers", 3, steps=(3,))))
    told = [[finding.subject["steps"] for finding in diagnose(run, only=(slow_link.RULE,)).findings] for run in (before.run, after)]
    assert told == [[], [(4,)]]
