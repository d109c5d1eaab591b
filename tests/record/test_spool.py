"""Frames that wait in a file, runs that are read with little memory, and the limit of it."""

import pickle

import pandas as pd
import pytest

from perfkit.core import settings
from perfkit.core.errors import InputError
from perfkit.core.run import LazyTables
from perfkit.core.units import GIB
from perfkit.project.sample import data_folder
from perfkit.record.format import Sink
from perfkit.record.load import load
from perfkit.record.readers.spool import Spool

FRAMES = [pd.DataFrame({"a": range(start, start + 5), "b": pd.Categorical(list("xyxyz"))}) for start in (0, 5, 10)]
SAMPLE = data_folder() / "traces" / "kineto_resnet"
SMALL = "3KiB"


@pytest.fixture(params=["1B", "4GiB"])
def spool(request, monkeypatch):
    monkeypatch.setenv("PERFKIT_MEMORY_LIMIT", request.param)
    made = Spool()
    for frame in FRAMES:
        made.append(frame)
    assert made.is_spilled == (request.param == "1B")
    return made


def test_frames_come_back_in_order_as_often_as_wanted(spool):
    assert len(spool) == 15
    for _ in range(2):
        pd.testing.assert_frame_equal(pd.concat(list(spool)), pd.concat(FRAMES))


def test_a_spool_can_be_sent_to_another_process(spool):
    pd.testing.assert_frame_equal(pd.concat(list(pickle.loads(pickle.dumps(spool)))), pd.concat(FRAMES))


def test_where_no_file_can_be_written_frames_stay_in_memory(monkeypatch):
    def refuse(**_):
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("PERFKIT_MEMORY_LIMIT", "1B")
    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    spool = Spool()
    for frame in FRAMES:
        spool.append(frame)
    assert not spool.is_spilled
    pd.testing.assert_frame_equal(pd.concat(list(spool)), pd.concat(FRAMES))


def test_a_large_table_is_read_in_parts_that_sum_up_to_it(monkeypatch):
    monkeypatch.setenv("PERFKIT_MEMORY_LIMIT", "1B")
    sink = Sink()
    for rank in range(3):
        sink.add("kernels", rank=rank, name=["b", "a"], kind="computing", duration_ns=[1, 2])
    assert not sink.small_tables()
    table = sink.large_tables()["kernels"]
    assert (table.num_rows, table.ranks) == (6, {0, 1, 2})
    pd.testing.assert_frame_equal(table.read(None, None), sink.tables()["kernels"])
    assert table.parts is not None
    assert sum(map(len, table.parts())) == 6
    assert table.read([1], ["name", "duration_ns"]).to_dict("list") == {"name": ["b", "a"], "duration_ns": [1, 2]}


@pytest.mark.parametrize("name", ["kineto_resnet", "torch_npu_2rank"])
def test_a_run_read_with_little_memory_and_then_from_the_cache_is_the_same_run(name, monkeypatch, tmp_path):
    path = data_folder() / "traces" / name
    whole = load(path, cache=False)
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path))
    monkeypatch.setenv("PERFKIT_MEMORY_LIMIT", SMALL)
    monkeypatch.setattr("perfkit.record._state.MIN_BYTES", 0)
    monkeypatch.setattr("perfkit.record.store.FEW_ROWS", 0)
    monkeypatch.setattr("perfkit.record.format._PART_ROWS", 1)
    spilled, kept = load(path), load(path)
    assert isinstance(spilled.tables, LazyTables)
    assert len(list(tmp_path.rglob("kernels*.parquet"))) > 1
    for table in whole.tables:
        if table in ("host", "launches"):
            continue
        pd.testing.assert_frame_equal(spilled.frame(table), whole.frame(table))
        pd.testing.assert_frame_equal(kept.frame(table), whole.frame(table))
    assert [note for note in spilled.notes if "PERFKIT_MEMORY_LIMIT" in note]
    assert not [note for note in whole.notes if "PERFKIT_MEMORY_LIMIT" in note]


def test_the_memory_limit_is_half_of_the_free_memory_unless_it_is_set(monkeypatch):
    monkeypatch.delenv("PERFKIT_MEMORY_LIMIT", raising=False)
    monkeypatch.setattr(settings, "free_memory_bytes", lambda: 8 * GIB)
    assert settings.memory_limit_bytes() == 4 * GIB
    monkeypatch.setenv("PERFKIT_MEMORY_LIMIT", "1.5 GiB")
    assert settings.memory_limit_bytes() == 3 * GIB // 2


@pytest.mark.parametrize("text", ["much", "0", "-4GiB"])
def test_a_memory_limit_that_is_no_size_is_refused(text, monkeypatch):
    monkeypatch.setenv("PERFKIT_MEMORY_LIMIT", text)
    with pytest.raises(InputError, match="PERFKIT_MEMORY_LIMIT"):
        settings.memory_limit_bytes()
