"""What a format reads only when it is asked for is read once: a kept run gives it without its files, and gives the same."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.record import _kept_later, _state, store
from perfkit.record.formats.kineto import kineto
from perfkit.record.load import load

SAMPLE = data_folder() / "traces" / "kineto_resnet"
TABLES = ("host", "launches")
COLUMNS = ["name", "start_ns"]


@pytest.fixture(autouse=True)
def reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """How often the two sides of a recording were read; runs of any size are kept."""
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(_state, "MIN_BYTES", 0)
    count = {"host": 0, "device": 0}
    for side, name in (("host", "read_host"), ("device", "read_recording")):
        real = getattr(kineto, name)

        def counted(*content, side=side, real=real):
            count[side] += 1
            return real(*content)

        monkeypatch.setattr(kineto, name, counted)
    return count


@pytest.fixture(scope="module")
def direct() -> dict[str, pd.DataFrame]:
    """The tables as they are read from the recording."""
    run = load(SAMPLE, cache=False)
    return {table: run.frame(table) for table in TABLES}


def assert_same(run: Run, direct: dict[str, pd.DataFrame]) -> None:
    for table in TABLES:
        pd.testing.assert_frame_equal(run.frame(table), direct[table])


def test_the_host_side_of_a_kept_run_is_read_once_and_without_the_device_side(reads: dict[str, int], direct):
    load(SAMPLE)
    reads.update(host=0, device=0)
    kept = load(SAMPLE)
    assert_same(kept, direct)
    assert reads == {"host": 1, "device": 0}
    again = load(SAMPLE)
    assert_same(again, direct)
    assert next(iter(again.pieces("host", rank=0, columns=COLUMNS))).columns.tolist() == COLUMNS
    assert reads == {"host": 1, "device": 0}


def test_what_is_asked_for_while_a_run_is_converted_is_kept_too(reads: dict[str, int]):
    first = load(SAMPLE)
    rows = first.frame("launches", ranks=[0], columns=COLUMNS)
    pd.testing.assert_frame_equal(load(SAMPLE).frame("launches", ranks=[0], columns=COLUMNS), rows)
    assert reads == {"host": 1, "device": 1}
    assert load(SAMPLE).frame("host", ranks=[7]).empty


def test_rows_that_disappear_while_they_are_read_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store, "ROWS_PER_GROUP", 100)
    expected = load(SAMPLE).frame("host", ranks=[0], columns=COLUMNS)
    pieces = load(SAMPLE).pieces("host", rank=0, columns=COLUMNS)
    found = [next(pieces)]
    shutil.rmtree(tmp_path / "cache" / _kept_later.KIND)
    found += list(pieces)
    assert sum(map(len, found)) == len(expected)
    joined = pd.concat([frame.astype({"name": "object"}) for frame in found], ignore_index=True)
    pd.testing.assert_frame_equal(joined, expected.astype({"name": "object"}))


def test_without_a_recipe_everything_is_read_again_and_the_rows_are_kept(tmp_path: Path, reads: dict[str, int], direct):
    load(SAMPLE)
    (manifest,) = (tmp_path / "cache" / "runs").glob("*/manifest.json")
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"recipe": None}))
    reads.update(host=0, device=0)
    assert_same(load(SAMPLE), direct)
    assert reads["device"] == 1
    assert_same(load(SAMPLE), direct)
    assert reads["device"] == 1


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(monkeypatch: pytest.MonkeyPatch, direct):
    load(SAMPLE)

    def full(*_args):
        raise OSError("no space left on device")

    monkeypatch.setattr(store, "write_table", full)
    assert_same(load(SAMPLE), direct)
