"""The messages of the timeline: what goes to the browser is what the store holds, at every zoom and after every question."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perfkit.core import clock
from perfkit.core.errors import NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.core.run import Dropped, Run
from perfkit.core.schema import TABLES, pandas_dtype
from perfkit.core.units import format_ns
from perfkit.face import widgets
from perfkit.face.widgets.page_state import page_state
from perfkit.face.widgets.status import NothingYet
from perfkit.face.widgets.timelines import _counters as counting
from perfkit.face.widgets.timelines import _flows as flows
from perfkit.face.widgets.timelines import _grid as grid
from perfkit.face.widgets.timelines import _search as searching
from perfkit.face.widgets.timelines import _tiles as wire
from perfkit.face.widgets.timelines import data as _timeline_data
from perfkit.face.widgets.timelines import view as timeline_page
from perfkit.face.widgets.timelines._address import address_of, slice_at
from perfkit.face.widgets.timelines._marks import keep, read_marks
from perfkit.face.widgets.timelines._selection import as_csv, detailed, selected
from perfkit.face.widgets.timelines.beside import timeline_beside
from perfkit.face.widgets.timelines.data import OVERLAP, Timeline, described, open_timeline
from perfkit.face.widgets.timelines.events import PART, searchable, walked, whole
from perfkit.face.widgets.timelines.view import TimelineView
from perfkit.project import create_project
from perfkit.record import tiles
from perfkit.record.format import Sink
from perfkit.record.load import load
from tests import two_ranks

SAMPLES = data_folder() / "traces"
EPOCH_NS = 1_736_408_883_704_643_212
HOSTILE = "<img src=x onerror=alert(1)>"
COLUMNS = ("start", "end", "count", "busy", "lane", "name", "kind")


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PERFKIT_PROJECT", raising=False)


@pytest.fixture(scope="module")
def profile() -> Run:
    return load(two_ranks.by_tables())


@pytest.fixture(scope="module")
def kineto() -> Run:
    return load(SAMPLES / "kineto_resnet")


def made(kernels: dict[str, Any], **changes: Any) -> Run:
    rows = len(kernels["start_ns"])
    same = {"rank": 0, "name": "k", "kind": "computing", "stream": "7"}
    full: dict[str, Any] = {name: [value] * rows for name, value in same.items()} | kernels
    frame = pd.DataFrame(
        {
            column.name: pd.Series(full.get(column.name, [None] * rows), dtype=pandas_dtype(column))
            for column in TABLES["kernels"].columns
        }
    )
    return replace(Run(name="made", kind="measured", format="made", tables={"kernels": frame}), **changes)


def tiles_of(timeline: Timeline, width: int) -> list[dict[str, np.ndarray]]:
    """All tiles of one width over the whole run, as the page gets them; `starts` and `ends` from the base."""
    size = grid.width_ns(width)
    start_ns, end_ns = timeline.span_ns
    first, last = (start_ns - timeline.base_ns) // size, (end_ns - timeline.base_ns) // size
    found = []
    for begin in range(first, last + 1, grid.MAX_TILES):
        request = {"width": width, "first": begin, "last": min(last, begin + grid.MAX_TILES - 1)}
        header, buffers = wire.reply(timeline, {**request, "units": [unit.id for unit in timeline.units]})
        types = ["<f8"] * 4 + ["<i4"] * 3
        arrays = {name: np.frombuffer(data, dtype) for name, data, dtype in zip(COLUMNS, buffers, types, strict=True)}
        for tile in header["tiles"]:
            part = slice(tile["begin"], tile["begin"] + tile["count"])
            rows = {name: array[part] for name, array in arrays.items()}
            at = int(tile["base_ns"]) - timeline.base_ns
            assert at == tile["index"] * size
            found.append({**rows, "tile": tile, "size": size, "names": header["names"], "kinds": header["kinds"]})
    return found


@pytest.mark.parametrize("width", [-1, 0, 1, 2, 3, 5, 8, 12, grid.MAX_WIDTH])
def test_on_every_level_the_tiles_sum_to_the_store(profile, width):
    timeline = open_timeline(profile)
    counts = dict.fromkeys((unit.id for unit in timeline.units), 0)
    busy = dict.fromkeys(counts, 0.0)
    for tile in tiles_of(timeline, width):
        begins_here = (tile["start"] >= 0) & (tile["start"] < tile["size"])
        counts[tile["tile"]["unit"]] += int(tile["count"][begins_here].sum())
        busy[tile["tile"]["unit"]] += float(tile["busy"][begins_here].sum())
    for unit in timeline.units:
        assert counts[unit.id] == sum(lane.count for lane in unit.lanes)
        assert busy[unit.id] == sum(lane.busy_ns for lane in unit.lanes)


def test_a_narrow_tile_holds_the_events_to_the_nanosecond():
    starts = [EPOCH_NS + 2 * number for number in range(400)]
    timeline = open_timeline(made({"start_ns": starts, "duration_ns": [1] * 400}))
    unit = next(unit for unit in timeline.units if unit.process == "device")
    index = (EPOCH_NS - timeline.base_ns) // grid.width_ns(-9)
    header, buffers = wire.reply(timeline, {"width": -9, "first": index, "last": index + 1, "units": [unit.id]})
    begin = [int(tile["base_ns"]) for tile in header["tiles"] for _ in range(tile["count"])]
    shown = [base + int(start) for base, start in zip(begin, np.frombuffer(buffers[0], "<f8"), strict=True)]
    assert sorted(set(shown)) == starts
    assert set(np.frombuffer(buffers[1], "<f8") - np.frombuffer(buffers[0], "<f8")) == {1.0}


def test_a_merged_slice_has_no_name_and_says_how_many():
    timeline = open_timeline(made({"start_ns": [EPOCH_NS + 10 * n for n in range(5000)], "duration_ns": [5] * 5000}))
    unit = next(unit for unit in timeline.units if unit.process == "device")
    tiles = [tile for tile in tiles_of(timeline, 3) if tile["tile"]["unit"] == unit.id]
    merged = np.concatenate([tile["count"] for tile in tiles]) > 1
    assert merged.any()
    assert (np.concatenate([tile["name"] for tile in tiles])[merged] == -1).all()
    reply = detailed(timeline, {"unit": unit.id, "lane": 0, "start": 0.0, "end": 5e4, "count": 5000, "busy": 25_000.0})
    assert reply["title"] == "5\u2009000 slices"


@pytest.mark.parametrize(
    "request_",
    [
        {"width": 31, "first": 0, "last": 0, "units": []},
        {"width": 0, "first": 0, "last": 64, "units": []},
        {"width": 0, "first": 5, "last": 4, "units": []},
        {"width": 0, "first": 0, "last": 0, "units": [10**6]},
        {"width": 0, "first": 0, "last": 0, "units": ["0"]},
    ],
)
def test_a_request_that_no_page_makes_is_refused(profile, request_):
    with pytest.raises((ValueError, LookupError)):
        wire.reply(open_timeline(profile), request_)


def test_the_states_of_a_device_cover_its_time_once(profile):
    timeline = open_timeline(profile)
    for rank in profile.ranks:
        steps = profile.steps()
        step = steps[steps["rank"] == rank].iloc[0]
        lanes = {unit.thread: unit.lanes[0] for unit in timeline.units if unit.rank == rank and unit.process == OVERLAP}
        kernels = profile.frame("kernels", ranks=[rank])
        first, last = int(kernels["start_ns"].min()), int((kernels["start_ns"] + kernels["duration_ns"]).max())
        assert sum(lane.busy_ns for lane in lanes.values()) == last - first
        # The vendor rounds its sums to whole microseconds of fractions, so they agree to some ns only.
        assert lanes["communication exposed"].busy_ns == pytest.approx(step["exposed_communication_ns"], abs=2000)
        assert lanes["communication hidden"].busy_ns == pytest.approx(step["overlapped_ns"], abs=2000)


@pytest.mark.parametrize("name", ["torch_npu_2rank", "kineto_resnet"])
def test_the_longest_wait_that_is_told_is_the_longest_of_the_store(name):
    timeline = open_timeline(load(data_folder() / "traces" / name))
    unit = next(unit for unit in timeline.units if unit.process == OVERLAP and unit.rank == 0 and "exposed" in unit.label)
    start_ns, end_ns = timeline.span_ns
    slices = tiles.events(unit.source, unit.lanes, start_ns, end_ns)
    longest = slices.loc[(slices["end_ns"] - slices["start_ns"]).idxmax()]
    steps = [step for step in described(timeline)["steps"] if step["rank"] == 0]
    at = timeline.offset(int(longest["start_ns"]))
    (inside,) = [step for step in steps if step["start"] <= at < step["end"]]
    length, place = format_ns(int(longest["end_ns"] - longest["start_ns"])), format_ns(round(at - inside["start"]))
    assert f"The longest, {length}, begins {place} into step {inside['step']}. " in described(timeline)["notes"][0]


def test_the_whole_of_a_unit_comes_in_parts_that_hold_each_event_once(kineto, monkeypatch):
    monkeypatch.setattr("perfkit.face.widgets.timelines.events.PART", 1000)
    assert PART > 1000
    for unit in open_timeline(kineto).units:
        frames = list(whole(unit, unit.lanes, 0, 2**62))
        assert sum(map(len, frames)) == sum(lane.count for lane in unit.lanes)
        assert sum(int(frame["busy_ns"].sum()) for frame in frames) == sum(lane.busy_ns for lane in unit.lanes)


def test_walking_visits_every_slice_of_a_lane_in_both_directions(profile):
    timeline = open_timeline(profile)
    unit = next(unit for unit in timeline.units if unit.process == "device" and unit.thread == "")
    message: dict[str, Any] = {"mode": "lane", "unit": unit.id, "lane": 0, "start": timeline.offset(0), "name": ""}
    onward = []
    while (found := walked(timeline, {**message, "direction": 1})["slice"]) is not None:
        onward.append(found["start"])
        message["start"] = found["start"]
    backward = [message["start"]]
    while (found := walked(timeline, {**message, "direction": -1})["slice"]) is not None:
        backward.append(found["start"])
        message["start"] = found["start"]
    assert len(onward) == unit.lanes[0].count
    assert backward == onward[::-1]


def test_the_longest_of_a_name_is_that_of_all_ranks(profile):
    timeline = open_timeline(profile)
    unit = next(unit for unit in timeline.units if unit.rank == 1 and unit.thread == "2")
    kernels = profile.frame("kernels")
    of_name = kernels[kernels["name"] == kernels.loc[kernels["stream"] == "2", "name"].iloc[0]]
    message = {"mode": "longest", "unit": unit.id, "lane": 0, "start": 0, "direction": 1, "name": of_name["name"].iloc[0]}
    assert walked(timeline, message)["slice"]["busy"] == of_name["duration_ns"].max()


@pytest.mark.parametrize(("text", "regular"), [("allreduce", "(?i)allreduce"), ("hcom_.*1$", "hcom_.*1$"), ("(", r"\(")])
def test_a_search_finds_every_event_that_the_table_has(profile, text, regular):
    timeline = open_timeline(profile)
    search = searching.searched(timeline, text, lambda _: None, lambda: True)
    assert search.done
    assert len(search.starts) == int(profile.frame("kernels")["name"].astype(str).str.contains(regular).sum())
    assert bool(search.problem) == (text == "(")


def test_the_next_hit_goes_round_all_hits(profile):
    timeline = open_timeline(profile)
    search = searching.searched(timeline, "allreduce", lambda _: None, lambda: True)
    message: dict[str, Any] = {"at": timeline.offset(timeline.span_ns[0]), "unit": -1, "direction": 1}
    seen = []
    for _ in range(len(search.starts)):
        found = searching.following(timeline, search, message)
        assert found is not None
        seen.append((found["unit"], found["start"]))
        message |= {"at": found["start"], "unit": found["unit"]}
    assert len(set(seen)) == len(search.starts)
    assert searching.following(timeline, search, message)["start"] == seen[0][1]


def test_a_search_that_nobody_waits_for_ends_early(profile):
    assert not searching.searched(open_timeline(profile), "a", lambda _: None, lambda: False).done


def test_statistics_of_everything_are_those_of_the_tables(profile):
    timeline = open_timeline(profile)
    start_ns, end_ns = timeline.span_ns
    units = [unit.id for unit in searchable(timeline)]
    message = {"start": timeline.offset(start_ns), "end": timeline.offset(end_ns), "units": units}
    reply = selected(timeline, message)
    columns = {column["label"]: column for column in reply["tables"][0]["columns"]}
    kernels = profile.frame("kernels")
    assert sum(columns["count"]["values"]) == len(kernels)
    assert columns["total"]["unit"] == "µs"
    assert sum(columns["total"]["values"]) == pytest.approx(int(kernels["duration_ns"].sum()) / 1000, rel=1e-12)
    lines = as_csv(timeline, message)["text"].splitlines()
    assert len(lines) == len(kernels) + 1


def test_a_range_counts_the_part_of_a_slice_inside_of_it():
    timeline = open_timeline(made({"start_ns": [EPOCH_NS], "duration_ns": [1000]}))
    at = timeline.offset(EPOCH_NS)
    reply = selected(timeline, {"start": at + 100, "end": at + 350, "units": [0]})
    assert {column["label"]: column["values"] for column in reply["tables"][0]["columns"]}["total"] == [250]


def test_csv_disarms_cells_that_a_spreadsheet_would_run():
    timeline = open_timeline(made({"start_ns": [EPOCH_NS], "duration_ns": [10], "name": ["=1+1"]}))
    at = timeline.offset(EPOCH_NS)
    assert ",'=1+1," in as_csv(timeline, {"start": at, "end": at + 10, "units": [0]})["text"]


def test_arrows_lead_from_the_launch_to_its_kernel(kineto):
    timeline = open_timeline(kineto)
    linked = kineto.frame("launches")
    linked = linked[linked["launch_ns"].notna()].reset_index(drop=True)
    row = linked.iloc[0]
    unit = next(unit for unit in timeline.units if unit.process == "device" and unit.thread == row["stream"])
    start_ns = int(row["start_ns"])
    links = flows.of_slice(timeline, unit, start_ns, start_ns + int(row["duration_ns"]), flows.members(timeline))
    launch = next(link for link in links if link[0] == "launch")
    assert (launch[1].start_ns, launch[1].name, launch[2].start_ns) == (int(row["launch_ns"]), row["call"], start_ns)
    drawn = flows.arrows(timeline, [launch])[0]
    assert drawn["to"] == [unit.id, 0, timeline.offset(start_ns)]
    assert timeline.units[drawn["from"][0]].process == "host"


def test_arrows_join_the_members_of_a_collective_on_the_lanes_of_both_ranks(profile):
    timeline = open_timeline(profile)
    links, total = flows.of_window(timeline, *timeline.span_ns, flows.members(timeline))
    drawn = flows.arrows(timeline, links)
    assert len(drawn) == total == len(profile.frame("collectives")) // 2
    assert {tuple(timeline.units[arrow[end][0]].rank for end in ("from", "to")) for arrow in drawn} == {(0, 1)}


def test_many_arrows_are_thinned_and_counted(kineto):
    timeline = open_timeline(kineto)
    links, total = flows.of_window(timeline, *timeline.span_ns, flows.members(timeline))
    assert len(links) == flows.MAX_ARROWS < total


def test_marks_are_kept_in_the_project_by_recording(tmp_path, monkeypatch):
    assert "no tuning project" in keep("a", "5", "note")
    create_project(tmp_path / "project", name="p")
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path / "project"))
    assert keep("a", str(EPOCH_NS), HOSTILE) == ""
    assert keep("a", "7", "early") == ""
    assert read_marks("a") == [{"at": "7", "note": "early"}, {"at": str(EPOCH_NS), "note": HOSTILE}]
    assert read_marks("b") == []
    assert keep("a", "7", "") == ""
    assert [mark["at"] for mark in read_marks("a")] == [str(EPOCH_NS)]
    assert "no moment" in keep("a", "soon", "x")


def test_what_was_lost_is_told_and_noted(profile):
    lost = replace(profile, dropped=(Dropped("events", 12, "a.json"),))
    told = described(open_timeline(lost))
    assert told["dropped"] == [{"what": "events", "count": 12, "file": "a.json"}]
    assert any("12 items" in note for note in told["notes"])


def test_every_rank_says_how_its_clock_was_aligned(profile):
    told = described(open_timeline(profile))
    assert [rank["clock"][:7] for rank in told["ranks"]] == ["clock +", "clock +"]
    assert "\u00b1" in told["ranks"][1]["clock"]
    apart = described(open_timeline(replace(profile, clock={})))
    assert {rank["clock"] for rank in apart["ranks"]} == {"clock not aligned"}
    assert any("could not be aligned" in note for note in apart["notes"])


def test_a_run_without_times_is_not_measured(profile):
    run = replace(profile, tables={"steps": profile.frame("steps")})
    with pytest.raises(NotMeasuredError):
        open_timeline(run)


def test_moments_that_go_to_the_page_are_exact_and_fit_into_json(profile):
    told = described(open_timeline(profile))
    json.dumps(told)
    first = int(told["base_ns"]) + int(told["start"])
    assert first == int(profile.frame("kernels", ranks=[0])["start_ns"].min())


class Sent(list):
    """What a view sent to its page."""

    def __call__(self, content: dict[str, Any], buffers: Any = None) -> None:
        self.append(content)


def test_the_view_answers_what_the_page_asks(profile):
    view = widgets.timeline()
    timeline = view.wait()
    assert isinstance(view, TimelineView)
    assert view.status == {"state": "result"}
    view.send = sent = Sent()
    unit = next(unit for unit in timeline.units if unit.thread == "2")
    view.on_message({"type": "tiles", "seq": 3, "width": 10, "first": 0, "last": 0, "units": [unit.id]})
    view.on_message({"type": "search", "text": "allreduce", "at": 0.0})
    view.on_message({"type": "walk", "mode": "lane", "direction": 1, "unit": unit.id, "lane": 0, "start": 0.0, "name": ""})
    view.on_message({"type": "walk", "mode": "lane", "direction": 1, "unit": 999, "lane": 0, "start": 0.0, "name": ""})
    for waiting in (view._drawing, view._asking, view._searching):
        assert waiting.wait(20)
    kinds = [message["type"] for message in sent]
    assert sorted(set(kinds)) == ["found", "hits", "tiles"]
    assert next(message["seq"] for message in sent if message["type"] == "tiles") == 3
    assert "there is no unit 999" in [message["text"] for message in sent if message["type"] == "found"]


def test_the_address_opens_the_same_view_again(profile):
    view = widgets.timeline()
    timeline = view.wait()
    unit = next(unit for unit in timeline.units if unit.rank == 1 and unit.thread == "2")
    start_ns = unit.lanes[0].start_ns
    chosen = {"unit": unit.id, "lane": 0, "start": str(start_ns)}
    pins = [unit.id for unit in timeline.units if unit.process == "device"][::-1]
    shown = {"slice": chosen, "pins": pins, "filter": "rank 1 stream", "search": "allreduce|MatMul"}
    view.on_message({"type": "view", "start": str(start_ns - 50), "end": str(start_ns + 50), **shown})
    again = widgets.timeline()
    again.wait()
    goto = again.setup["goto"]
    assert (goto["start"], goto["end"]) == (str(start_ns - 50), str(start_ns + 50))
    assert goto["slice"]["start"] == timeline.offset(start_ns)
    assert len(pins) > 1
    assert (goto["pins"], goto["filter"], goto["search"]) == (pins, "rank 1 stream", "allreduce|MatMul")
    view.on_message({"type": "view", "start": "0", "end": "9", "slice": None, "search": ""})
    assert page_state().get("search") == ""


def test_an_address_of_pins_opens_their_ranks_and_leaves_out_lanes_that_are_not_there(profile, monkeypatch):
    for module in (timeline_page, _timeline_data):
        monkeypatch.setattr(module, "MAX_FIRST_RANKS", 1)
    page_state().set({"pins": "1|device|2\n9|device|2\nx\n1|device|2"})
    view = widgets.timeline()
    timeline = view.wait()
    (pinned,) = view.setup["goto"]["pins"]
    assert (timeline.unit(pinned).rank, timeline.unit(pinned).thread) == (1, "2")


def test_an_address_of_something_else_shows_everything(profile):
    page_state().set({"slice": "0|device|2|99|1", "from": "x", "to": "y"})
    view = widgets.timeline()
    view.wait()
    assert view.setup["goto"]["slice"] is None


def test_a_recording_that_cannot_be_read_is_an_error_on_the_page(tmp_path):
    view = TimelineView(str(tmp_path / "missing"))
    with pytest.raises(Exception, match="missing"):
        view.wait()
    assert view.status["state"] == "error"


def drifting(rate: float) -> Run:
    """Two ranks whose all-reduces end together; the clock of the second is 3 ms late and gains `rate` on the first."""
    sink = Sink()
    ends = [EPOCH_NS + 50_000_000 * number for number in range(40)]
    for rank in (0, 1):
        shown = [end + rank * (3_000_000 + round((end - EPOCH_NS) * rate)) for end in ends]
        starts = [end - 1_000_000 * (2 - rank) for end in shown]
        same: dict[str, Any] = {"rank": rank, "name": [f"op{number}" for number in range(40)], "start_ns": starts}
        lengths = [end - start for end, start in zip(shown, starts, strict=True)]
        sink.add("kernels", **same, kind="communication", stream="20", duration_ns=lengths)
        sink.add("collectives", **same, step=0, operation="all_reduce", group="g", group_size=2, duration_ns=lengths)
    run = Run(name="made", kind="measured", format="made", tables=sink.tables())
    return replace(run, clock=clock.offsets(clock.estimate(run)))


def test_a_clock_that_drifts_is_told_and_its_lanes_end_together_after_the_correction():
    timeline = open_timeline(drifting(40e-6))
    ranks = described(timeline)["ranks"]
    drifts = [rank["drift"] for rank in ranks]
    assert sum(abs(drift["rate"]) for drift in drifts if drift) == pytest.approx(40e-6, rel=1e-3)
    assert any("drift 78" in rank["clock"] and "corrected" in rank["clock_title"] for rank in ranks)
    ends = []
    for rank, drift in enumerate(drifts):
        lane = next(unit for unit in timeline.units if unit.rank == rank and unit.process == "device").lanes[0]
        at = timeline.offset(lane.end_ns)
        ends.append(at if drift is None else at - (at - drift["at"]) * drift["rate"] / (1 + drift["rate"]))
        common = round(ends[-1]) + timeline.base_ns
        assert timeline.recorded_ns(rank, common) == pytest.approx(lane.end_ns, abs=1)
    assert ends[0] == pytest.approx(ends[1], abs=3)


def test_a_clock_that_keeps_pace_is_not_changed():
    timeline = open_timeline(drifting(0.0))
    assert [rank["drift"] for rank in described(timeline)["ranks"]] == [None, None]
    assert timeline.recorded_ns(1, EPOCH_NS) == EPOCH_NS


def test_what_was_lost_stands_at_its_rank_and_an_early_end_is_marked(profile):
    coverage = Sink()
    for rank in (0, 1):
        coverage.add("coverage", rank=rank, part="timeline", state="partial" if rank else "present", file=f"{rank}.json")
    tables = {"kernels": profile.frame("kernels"), **coverage.tables()}
    lost = (Dropped("broken event", 3, "1.json"), Dropped("bytes after the last complete event", 77, "1.json"))
    told = described(open_timeline(replace(profile, tables=tables, dropped=lost)))
    assert told["lost"] == 3
    assert told["ranks"][0]["lost"] is None
    assert told["ranks"][0]["cut"] is None
    assert told["ranks"][1]["lost"]["count"] == 3
    last = max(lane.end_ns for unit in open_timeline(profile).units if unit.rank == 1 for lane in unit.lanes)
    assert int(told["base_ns"]) + int(told["ranks"][1]["cut"]) == last


def test_counters_are_units_whose_tiles_hold_every_sample(profile):
    timeline = open_timeline(profile)
    shown = [unit for unit in described(timeline)["units"] if unit["process"] == "counter"]
    assert {unit["rank"] for unit in shown} == {0, 1}
    unit = next(unit for unit in timeline.counters if unit.series.name == "memory PTA allocated")
    for width in (3, 6, 9):
        size = grid.width_ns(width)
        first, last = (int(moment - timeline.base_ns) // size for moment in unit.series.time_ns[[0, -1]])
        total = 0
        for begin in range(first, last + 1, grid.MAX_TILES):
            request = {"width": width, "first": begin, "last": min(last, begin + grid.MAX_TILES - 1), "units": [unit.id]}
            header, buffers = counting.reply(timeline.counters, timeline.base_ns, request)
            total += int(np.frombuffer(buffers[4], "<f8").sum())
            assert header["tiles"][0]["before"] is None or header["tiles"][0]["before"] in unit.series.value
        assert total == len(unit.series.value)
    with pytest.raises(LookupError):
        counting.counter(timeline.counters, "c999")


def test_a_counter_is_walked_told_and_summed_like_a_slice(profile):
    timeline = open_timeline(profile)
    unit = next(unit for unit in timeline.counters if unit.series.name == "memory PTA allocated")
    series, message = unit.series, {"unit": unit.id, "lane": 0, "mode": "lane", "direction": 1, "name": "", "count": 1}
    seen, start = [], timeline.offset(int(series.time_ns[0])) - 1
    while (found := counting.walked(unit, timeline.base_ns, {**message, "start": start})["slice"]) is not None:
        seen.append(found["start"])
        start = found["start"]
    assert seen == [timeline.offset(int(moment)) for moment in series.time_ns]
    back = counting.walked(unit, timeline.base_ns, {**message, "start": start, "direction": -1})["slice"]
    assert back["start"] == seen[-2]
    highest = counting.walked(unit, timeline.base_ns, {**message, "start": start, "mode": "longest"})["slice"]
    assert highest["name"] == "memory PTA allocated: 1.16 GiB"
    assert ("Name", highest["name"]) in detailed(timeline, {**message, **highest})["fields"]
    reply = selected(timeline, {"start": seen[0], "end": seen[-1], "units": [unit.id]})
    columns = {column["label"]: column["text"] for column in reply["tables"][2]["columns"]}
    assert (columns["highest"], columns["samples"]) == (["1.16 GiB"], [str(len(seen) - 1)])
    address = address_of(timeline, {"unit": unit.id, "lane": 0, "start": str(timeline.base_ns + int(seen[5]))})
    assert slice_at(timeline, address)["start"] == seen[5]


def test_a_run_that_lies_nowhere_has_a_timeline_until_another_recording_is_opened():
    page_state.cache_clear()
    page_state().set({"run": str(SAMPLES / "kineto_resnet")})
    run = made({"start_ns": [EPOCH_NS + 10 * n for n in range(5)], "duration_ns": [5] * 5})
    view = widgets.timeline(run)
    assert view.wait().run is run
    page_state().set({"run": str(SAMPLES / "torch_npu_2rank")}, origin=None)  # a picker of the same page
    view.on_message({"type": "view", "start": 0, "end": 50, "path": view.setup["path"]})
    assert view.wait().run is run
    assert page_state().get("run").endswith("torch_npu_2rank"), "nor does it take the picker's away"
    view.on_message({"type": "retry"})
    assert view.wait().run is run
    view.on_message({"type": "run", "path": str(SAMPLES / "kineto_resnet")})
    assert view.wait().run.name == "kineto_resnet"


def test_the_timeline_of_a_path_is_of_that_path_whatever_a_picker_of_the_page_has():
    page_state.cache_clear()
    page_state().set({"run": str(SAMPLES / "kineto_resnet")})
    assert widgets.timeline().wait().run.name == "kineto_resnet"
    view = widgets.timeline(SAMPLES / "torch_npu_2rank")
    page_state().set({"rank": "0"})
    assert view.wait().run.name == "torch_npu_2rank"


def test_the_queues_of_launches_are_counters_whose_area_is_how_long_launches_waited(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path))
    for run in (load(SAMPLES / "kineto_resnet", cache=False), load(SAMPLES / "kineto_resnet"), load(SAMPLES / "kineto_resnet")):
        timeline = open_timeline(run)
        found = [unit for unit in timeline.counters if unit.process == counting.PACE]
        assert found
        area = sum(int((unit.series.value[:-1] * np.diff(unit.series.time_ns)).sum()) for unit in found)
        launched = run.frame("launches", ranks=[*timeline.opened]).dropna(subset=["launch_ns", "start_ns"])
        assert area == (launched["start_ns"] - launched["launch_ns"]).clip(lower=0).sum() > 0


def test_modules_are_nested_rows_that_no_search_and_no_statistics_count_twice():
    run = load(Path(__file__).parents[2] / "data" / "traces" / "tracelens" / "h100", cache=False)
    timeline = open_timeline(run)
    rows = [unit for unit in timeline.units if unit.process == "modules"]
    assert any(len(unit.lanes) > 2 for unit in rows)
    assert not {unit.id for unit in rows} & {unit.id for unit in searchable(timeline)}
    recorded = sum(len(run.frame(table).dropna(subset=["start_ns"])) for table in ("kernels", "host"))
    assert sum(lane.count for unit in searchable(timeline) for lane in unit.lanes) == recorded


def test_a_timeline_beside_another_one_is_empty_until_a_recording_is_picked_and_leaves_the_address_alone():
    page_state.cache_clear()
    picker = widgets.choose_recording(name="beside", optional=True)
    view = timeline_beside(picker)
    with pytest.raises(NothingYet):
        view.wait()
    assert view.status["state"] == "empty"
    assert picker.choose(SAMPLES / "kineto_resnet").value.name == "kineto_resnet"
    assert view.wait().run.name == "kineto_resnet"
    assert (view.setup["beside"], view.setup["run"]) == (True, "kineto_resnet")
    before = dict(page_state().values)
    view.on_message({"type": "view", "start": 0, "end": 50, "path": view.setup["path"]})
    assert page_state().values == before
    view.on_message({"type": "run", "path": str(SAMPLES / "torch_npu_2rank")})
    assert picker.value.name == view.wait().run.name == "torch_npu_2rank"
    assert picker.choose("").value is None
    with pytest.raises(NothingYet):
        view.wait()
    assert view.status["state"] == "empty"
