"""perfkit's own run folder is recognised by its content, read as far as it is whole, and refused when it says nothing."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from perfkit.core.errors import InputError
from perfkit.core.run import Fact, Position, Run
from perfkit.core.source import Source
from perfkit.record.load import load
from perfkit.record.run_folder import write_run


@pytest.fixture
def folder(tmp_path):
    steps = pd.DataFrame({"rank": [0, 1], "step": [1, 1], "duration_ns": [10, 2**62]})
    parts = pd.DataFrame(
        {
            "rank": [0],
            "step": [1],
            "path": pd.Categorical(["<img src=x onerror=alert(1)>"]),
            "amount_ns": pd.array([10], dtype="Int64"),
        }
    )
    full = pd.concat([steps.assign(**dict.fromkeys(columns(), pd.array([None, 5], dtype="Int64")))], axis=1)
    run = Run(
        name="mine",
        kind="simulated",
        format="perfkit-run",
        tables={"steps": full, "step_parts": parts},
        placement={0: Position(data=0), 1: Position(data=1)},
        facts={"num_devices": Fact(value=2, source=Source("simulated", "plan"))},
        notes=("one",),
        clock={1: -7},
    )
    return write_run(run, tmp_path / "deep" / "run")


def columns():
    return (
        "pipeline_stage", "start_ns", "computing_ns", "communication_ns", "overlapped_ns", "exposed_communication_ns", "bubble_ns",
        "free_ns", "copy_ns",
    )  # fmt: skip


def test_a_run_comes_back_as_it_was(folder):
    run = load(folder.parent)
    assert (run.kind, run.notes, dict(run.clock), run.ranks) == ("simulated", ("one",), {1: -7}, (0, 1))
    assert run.facts["num_devices"].value == 2
    assert run.frame("steps")["duration_ns"].tolist() == [10, 2**62]
    assert run.frame("step_parts")["path"].tolist() == ["<img src=x onerror=alert(1)>"]
    assert run.frame("steps")["free_ns"].isna().tolist() == [True, False]


def test_a_table_whose_file_is_gone_is_counted(folder):
    (folder / "step_parts.parquet").unlink()
    run = load(folder)
    assert [(lost.what, lost.count) for lost in run.dropped] == [("table step_parts: its file is missing", 1)]
    assert len(run.frame("steps")) == 2


def test_a_damaged_table_is_an_error_that_names_it(folder):
    (folder / "steps.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(InputError, match=r"steps\.parquet"):
        load(folder).frame("steps")


@pytest.mark.parametrize("change", [{"kind": "guessed"}, {"tables": 7}, {"placement": {"x": {}}}, {"facts": {"a": {}}}])
def test_a_description_that_is_none_is_refused(folder, change):
    document = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(document | change))
    with pytest.raises(InputError, match=r"run\.json"):
        load(folder)
