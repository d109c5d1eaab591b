"""A window shows at most two slices a pixel, and never another time or count than the store has."""

import shutil
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.run import Run, empty
from perfkit.core.schema import TABLES, pandas_dtype
from perfkit.core.units import THIN_SPACE
from perfkit.record import _state, tiles
from perfkit.record.load import load

SAMPLES = data_folder() / "traces"
EPOCH_NS = 1_736_408_883_704_643_212


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache that keeps runs of any size."""
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(_state, "MIN_BYTES", 0)
    monkeypatch.setattr(tiles, "_OPENED", OrderedDict())
    return tmp_path / "cache"


def table(kind_of: str, /, **columns: object) -> pd.DataFrame:
    rows = len(columns["start_ns"])
    full = {column.name: columns.get(column.name, [None] * rows) for column in TABLES[kind_of].columns} | {"rank": [0] * rows}
    return pd.DataFrame(
        {column.name: pd.Series(full[column.name], dtype=pandas_dtype(column)) for column in TABLES[kind_of].columns}
    )


def run_of(starts: list[int], durations: list[int], **columns: object) -> Run:
    given_columns = {"name": ["k"] * len(starts), "kind": ["computing"] * len(starts), "stream": ["7"] * len(starts)} | columns
    kernels = table("kernels", start_ns=starts, duration_ns=durations, **given_columns)
    return Run(name="made", kind="measured", format="made", tables={"kernels": kernels})


def whole(lanes: list[tiles.Lane]) -> tuple[int, int]:
    return min(lane.start_ns for lane in lanes), max(lane.end_ns for lane in lanes) + 1


@pytest.mark.parametrize("sample", ["torch_npu_2rank", "kineto_resnet"])
@pytest.mark.parametrize("pixels", [4, 50, 2000, 10**7])
def test_the_whole_of_a_recording_has_the_counts_and_busy_times_of_the_store(sample: str, pixels: int):
    run = load(SAMPLES / sample)
    found = tiles.lanes(run)
    frame = tiles.window(run, found, *whole(found), pixels)
    assert tuple(frame.columns) == tiles.COLUMNS
    sums = frame.groupby("lane")[["count", "busy_ns"]].sum()
    assert sums["count"].tolist() == [lane.count for lane in found]
    assert sums["busy_ns"].tolist() == [lane.busy_ns for lane in found]
    assert frame.groupby("lane").size().max() <= 2 * pixels
    kernels = run.frame("kernels")
    device = [lane for lane in found if lane.process == "device"]
    assert sum(lane.count for lane in device) == len(kernels)
    assert sum(lane.busy_ns for lane in device) == int(kernels["duration_ns"].sum())


@pytest.mark.parametrize("sample", ["torch_npu_2rank", "kineto_resnet"])
def test_tiles_from_the_cache_and_from_memory_are_equal(sample: str, folder: Path):
    read, kept, bare = load(SAMPLES / sample), load(SAMPLES / sample), load(SAMPLES / sample, cache=False)
    found = tiles.lanes(bare)
    assert tiles.lanes(kept) == tiles.lanes(read) == found
    assert list(folder.glob("timelines/*/tiles.json"))
    start_ns, end_ns = whole(found)
    for part in (1, 7, 1000):
        window = (start_ns + (end_ns - start_ns) // 3, start_ns + (end_ns - start_ns) // 3 + (end_ns - start_ns) // part)
        pd.testing.assert_frame_equal(tiles.window(kept, found, *window, 300), tiles.window(bare, found, *window, 300))


def test_the_deepest_zoom_is_the_events_to_the_ns():
    run = load(SAMPLES / "torch_npu_2rank")
    lanes = [lane for lane in tiles.lanes(run, ranks=[0]) if lane.thread == "2"]
    kernels = run.frame("kernels", ranks=[0]).query("stream == '2'").sort_values("start_ns")
    shift = run.clock.get(0, 0)
    for row in kernels.iloc[::20].to_dict("records"):
        start_ns = int(row["start_ns"]) + shift
        shown = tiles.window(run, lanes, start_ns, start_ns + int(row["duration_ns"]), 10**6)
        assert shown[["start_ns", "end_ns", "name", "count"]].to_dict("records") == [
            {"start_ns": start_ns, "end_ns": start_ns + int(row["duration_ns"]), "name": row["name"], "count": 1}
        ]


events = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 3000) | st.integers(0, 10**6)), min_size=1, max_size=80)


@settings(max_examples=60, deadline=None)
@given(events, st.integers(-(10**5), 10**6), st.integers(1, 10**6), st.integers(4, 60))
def test_any_window_has_at_most_two_slices_a_pixel_and_every_event_in_it(rows, start, length, pixels):
    run = run_of([EPOCH_NS + first for first, _ in rows], [duration for _, duration in rows])
    lanes = tiles.lanes(run)
    window = (EPOCH_NS + start, EPOCH_NS + start + length)
    frame = tiles.window(run, lanes, *window, pixels)
    assert frame.groupby("lane").size().max() <= 2 * pixels or frame.empty
    assert ((frame["start_ns"] < window[1]) & (frame["end_ns"] >= window[0])).all()
    inside = [1 for first, duration in rows if first >= start and first + duration <= start + length and first < start + length]
    assert frame["count"].sum() >= len(inside)
    assert (frame["busy_ns"] <= frame["end_ns"] - frame["start_ns"]).all()


@settings(max_examples=30, deadline=None)
@given(events, st.integers(0, 10**6))
def test_a_slice_is_the_same_in_two_windows_that_show_it(rows, shift):
    run = run_of([first for first, _ in rows], [duration for _, duration in rows])
    lanes = tiles.lanes(run)
    first, second = (tiles.window(run, lanes, begin, begin + 10**6, 50) for begin in (0, shift))
    both = first[(first["start_ns"] < shift + 10**6) & (first["end_ns"] > shift)]
    assert set(both.itertuples(index=False, name=None)) <= set(second.itertuples(index=False, name=None))


def test_merged_slices_are_called_by_their_number_and_mixed_kinds_are_named_so():
    run = run_of([index * 10 for index in range(12_481)], [5] * 12_481)
    (lane,) = tiles.lanes(run)
    (row,) = tiles.window(run, [lane], 0, 10**9, 4).to_dict("records")
    assert row["name"] == f"12{THIN_SPACE}481 slices"
    assert (row["kind"], row["count"], row["busy_ns"], row["end_ns"]) == ("computing", 12_481, 5 * 12_481, 124_805)
    mixed = run_of([0, 10], [5, 5], kind=["computing", "copy"])
    assert tiles.window(mixed, tiles.lanes(mixed), 0, 10**9, 4)["kind"].tolist() == [tiles.MIXED]


def test_host_threads_have_lanes_of_their_own_by_depth():
    host = table(
        "host",
        start_ns=[0, 10, 200],
        duration_ns=[100, 20, 5],
        name=["step", "<img src=x onerror=alert(1)>", "step"],
        kind=["mark", "operator", "mark"],
        thread=["main", "main", None],
    )
    run = Run(name="made", kind="measured", format="made", tables={"host": host})
    lanes = tiles.lanes(run)
    assert [(lane.process, lane.thread, lane.depth, lane.count) for lane in lanes] == [
        ("host", "", 0, 1),
        ("host", "main", 0, 1),
        ("host", "main", 1, 1),
    ]
    assert tiles.window(run, lanes, 0, 300, 300)["name"].tolist() == ["step", "step", "<img src=x onerror=alert(1)>"]


def test_ranks_are_shown_on_the_common_clock():
    run = replace(run_of([1000], [10]), clock={0: -300})
    (lane,) = tiles.lanes(run)
    assert (lane.start_ns, lane.end_ns) == (700, 710)
    assert tiles.window(run, [lane], 700, 710, 10)[["start_ns", "end_ns"]].to_numpy().tolist() == [[700, 710]]
    assert tiles.window(run, [lane], 1000, 1010, 10).empty


def test_events_without_a_start_are_on_no_lane():
    run = run_of([None, 5], [10, 10])
    assert [lane.count for lane in tiles.lanes(run)] == [1]


def test_a_run_without_events_has_no_lanes_and_empty_windows():
    run = Run(name="made", kind="measured", format="made", tables={"kernels": empty("kernels")})
    assert tiles.lanes(run) == []
    frame = tiles.window(run, [], 0, 10, 100)
    assert tuple(frame.columns) == tiles.COLUMNS
    assert frame.empty


@pytest.mark.parametrize("window", [(10, 10, 100), (10, 5, 100), (0, 10, 3)])
def test_a_window_without_length_or_pixels_is_refused(window: tuple[int, int, int]):
    with pytest.raises(ValueError, match="a window needs"):
        tiles.window(run_of([0], [1]), [], *window)


def test_a_lane_of_another_run_is_named():
    (lane,) = tiles.lanes(run_of([0], [1], stream=["8"]))
    with pytest.raises(InputError, match="rank 0 has no thread '8' of 'device'"):
        tiles.window(run_of([0], [1]), [lane], 0, 10, 10)


def test_tiles_survive_the_deletion_of_the_cache(folder: Path):
    load(SAMPLES / "torch_npu_2rank")
    run = load(SAMPLES / "torch_npu_2rank")
    lanes = tiles.lanes(run)
    before = tiles.window(run, lanes, *whole(lanes), 100)
    shutil.rmtree(folder)
    pd.testing.assert_frame_equal(tiles.window(run, lanes, *whole(lanes), 100), before)


@pytest.mark.parametrize("damage", [b"", b"{}", b"[1]", b'{"threads": [{"lanes": [], "levels": [0], "file": "x"}]}'])
def test_a_damaged_index_is_no_worse_than_none(folder: Path, damage: bytes, monkeypatch: pytest.MonkeyPatch):
    run = load(SAMPLES / "torch_npu_2rank")
    lanes = tiles.lanes(run)
    for index in folder.glob("timelines/*/tiles.json"):
        index.write_bytes(damage)
    monkeypatch.setattr(tiles, "_OPENED", OrderedDict())
    assert tiles.lanes(run) == lanes


@pytest.mark.slow
def test_a_million_events_a_lane_stay_exact(monkeypatch: pytest.MonkeyPatch):
    random = np.random.default_rng(1)
    starts = np.cumsum(random.integers(0, 4000, 10**6)) + EPOCH_NS
    durations = random.integers(0, 4000, 10**6)
    run = run_of(starts.tolist(), durations.tolist())
    lanes = tiles.lanes(run)
    frame = tiles.window(run, lanes, *whole(lanes), 2000)
    assert frame["count"].sum() == 10**6
    assert frame["busy_ns"].sum() == durations.sum()
    assert frame.groupby("lane").size().max() <= 4000
