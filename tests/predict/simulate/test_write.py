"""What is written is read back with equal tables, and what was interrupted is not read at all."""

from __future__ import annotations

import json

import pytest

from perfkit.core.errors import InputError
from perfkit.face.export.write import write
from perfkit.predict.simulate.run import prepare
from perfkit.predict.simulate.truth import truth
from perfkit.record import run_folder
from perfkit.record.load import load
from tests.predict.simulate.plans import TINY


@pytest.fixture(scope="module")
def prepared():
    return prepare(TINY, ["slow_rank:5:1.3", "clock_skew:3:250"], steps=2)


def test_the_run_folder_gives_every_table_back(prepared, tmp_path):
    run = prepared.run()
    document = truth(prepared)
    read = load(write(run, tmp_path / "run", truth=document))
    assert (read.kind, read.format) == ("simulated", "perfkit-run")
    assert read.placement == run.placement
    for table in run.tables:
        ours, theirs = run.frame(table), read.frame(table)
        assert len(ours) == len(theirs)
        for column in ours:
            assert ours[column].astype(object).where(ours[column].notna(), None).tolist() == (
                theirs[column].astype(object).where(theirs[column].notna(), None).tolist()
            ), (table, column)
    assert json.loads((tmp_path / "run" / "faults.json").read_text()) == document


def test_the_truth_names_the_culprit_and_what_it_costs(prepared):
    slow, skew = truth(prepared)["faults"]
    assert (slow["kind"], slow["ranks"], skew["performance_fault"]) == ("slow_rank", [5], False)
    assert slow["cost_ns_per_step"] == slow["alone_cost_ns_per_step"] > 0.1 * truth(prepared)["step_ns"]
    assert skew["cost_ns_per_step"] == 0


def test_an_interrupted_write_leaves_nothing(prepared, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(run_folder.store, "write_table", stop)
    with pytest.raises(KeyboardInterrupt):
        write(prepared.run(), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_something_is_not_written_to(prepared, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty"):
        write(prepared.run(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
