"""Tables of the host are the same in pieces, from a temporary file, and as a whole."""

from __future__ import annotations

import pandas as pd
import pytest

from perfkit.core.resources import data_folder
from perfkit.record.format import Sink
from perfkit.record.load import load
from perfkit.record.readers import host_tables
from perfkit.record.tiles import lanes

SAMPLE = data_folder() / "traces" / "kineto_resnet"
COLUMNS = ["name", "kind", "thread", "start_ns", "duration_ns"]


def plain(frames: list[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat([frame.astype(dict.fromkeys(("name", "kind", "thread"), "object")) for frame in frames], ignore_index=True)


@pytest.mark.parametrize("limit", ["256MiB", "1KiB"])
def test_pieces_that_wait_in_a_file_are_the_whole_table(monkeypatch: pytest.MonkeyPatch, limit: str):
    whole = load(SAMPLE, cache=False)
    monkeypatch.setattr(host_tables, "_MANY_ROWS", 10)
    monkeypatch.setenv("PERFKIT_MEMORY_LIMIT", limit)
    apart = load(SAMPLE, cache=False)
    for rank in whole.ranks:
        expected = whole.frame("host", ranks=[rank], columns=COLUMNS)
        pd.testing.assert_frame_equal(plain(list(apart.pieces("host", rank=rank, columns=COLUMNS))), plain([expected]))
        assert apart.frame("launches", ranks=[rank]).equals(whole.frame("launches", ranks=[rank]))
    assert apart.frame("host").shape == whole.frame("host").shape
    assert [lane.count for lane in lanes(apart)] == [lane.count for lane in lanes(whole)]


def test_a_rank_that_has_no_host_side_has_no_rows():
    run = load(SAMPLE, cache=False)
    assert sum(map(len, run.pieces("host", rank=99, columns=COLUMNS))) == 0
    assert list(run.frame("launches", ranks=[99]).columns) == list(run.frame("launches").columns)


def test_launch_times_keep_every_nanosecond():
    rows = load(SAMPLE, cache=False).frame("launches")
    starts = load(SAMPLE, cache=False).frame("host")["start_ns"]
    assert set(rows["launch_ns"].dropna()) <= set(starts)


@pytest.mark.parametrize(("most_rows", "reads"), [(1_000_000, 8), (3, 24)])
def test_small_ranks_are_read_once_and_large_ones_make_room(monkeypatch: pytest.MonkeyPatch, most_rows: int, reads: int):
    asked: list[int] = []

    def read(rank: int) -> tuple[list[pd.DataFrame]]:
        asked.append(rank)
        return ([pd.DataFrame({"name": ["a", "b"], "kind": "call", "thread": "1", "start_ns": [rank, 9], "duration_ns": 1})],)

    monkeypatch.setattr(host_tables, "_MANY_ROWS", most_rows)
    sink = Sink()
    host_tables.offer(sink, range(8), read, ["host"], counted=["host"])
    for _ in range(3):
        assert [sink.later["host"].read([rank], None)["start_ns"].tolist() for rank in range(8)] == [[rank, 9] for rank in range(8)]
    assert len(asked) == reads
