"""What a timeline says of calls: what ran inside of what adds up, and a kernel leads to its launch and its line of code."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from perfkit.core.resources import data_folder
from perfkit.face.widgets.timelines import _flows as flows
from perfkit.face.widgets.timelines._flame import MAX_BOXES, Flame
from perfkit.face.widgets.timelines._selection import detailed, inside, selected
from perfkit.face.widgets.timelines.data import Timeline, open_timeline
from perfkit.record import tiles
from perfkit.record.load import load


@pytest.fixture(scope="module")
def timeline(tmp_path_factory) -> Timeline:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFKIT_CACHE", str(tmp_path_factory.mktemp("cache")))
        run = load(data_folder() / "traces" / "kineto_resnet")
        return open_timeline(run, [run.ranks[0]])


def added_up(timeline: Timeline, start_ns: int, end_ns: int) -> Flame:
    nested = Flame()
    for unit, rows in inside(timeline, timeline.units, start_ns, end_ns):
        nested.add(unit, rows)
    return nested


@pytest.mark.parametrize("part", [(0.0, 1.0), (0.3, 0.6), (0.5, 0.501)])
def test_outermost_calls_add_up_to_when_a_thread_was_in_any_and_none_is_longer_than_what_it_ran_in(timeline, part):
    first_ns, last_ns = timeline.span_ns
    start_ns, end_ns = (first_ns + round(share * (last_ns - first_ns)) for share in part)
    root = added_up(timeline, start_ns, end_ns).finish()
    hosts = [unit for unit in timeline.units if unit.process == "host"]
    busy_ns = 0
    for unit in hosts:
        rows = pd.concat([rows for _, rows in inside(timeline, [unit], start_ns, end_ns)] or [pd.DataFrame()])
        spans = sorted(zip(rows["until_ns"] - rows["inside_ns"], rows["until_ns"], strict=True)) if len(rows) else []
        reached = start_ns
        for begin_ns, until_ns in spans:
            busy_ns += max(0, until_ns - max(begin_ns, reached))
            reached = max(reached, until_ns)
    assert sum(node.total_ns for node in root.inside.values()) == busy_ns > 0
    todo = list(root.inside.values())
    while todo:
        node = todo.pop()
        assert 0 <= node.own_ns <= node.total_ns
        todo += node.inside.values()


def test_every_box_lies_on_the_one_that_it_ran_in(timeline):
    boxes = added_up(timeline, *timeline.span_ns).boxes()
    assert 0 < len(boxes) <= MAX_BOXES
    slack = 1e-9
    for box in boxes:
        assert 0 <= box["left"] <= box["left"] + box["width"] <= 1 + slack
        below = [one for one in boxes if one["depth"] == box["depth"] - 1]
        around = [
            one
            for one in below
            if one["left"] <= box["left"] + slack and box["left"] + box["width"] <= one["left"] + one["width"] + slack
        ]
        assert bool(around) == (box["depth"] > 0)


def test_what_has_no_host_has_no_flame(timeline):
    device = [unit.id for unit in timeline.units if unit.process == "device"]
    start, end = (timeline.offset(moment) for moment in timeline.span_ns)
    assert selected(timeline, {"start": start, "end": end, "units": device})["flame"] == []


def test_a_kernel_tells_the_line_of_code_in_which_its_thread_was_when_it_launched_it(timeline):
    told, rank = 0, min(timeline.opened)
    links, _ = flows.launch_links(timeline, rank, *timeline.span_ns, side="start_ns", limit=40)
    hosts = {unit.thread: unit for unit in timeline.units if unit.process == "host"}
    devices = {unit.thread: unit for unit in timeline.units if unit.process == "device"}
    for _, call, kernel in links:
        fields = dict(_details(timeline, devices[kernel.thread], kernel.start_ns))
        host = hosts[call.thread]
        around = set(tiles.events(host.source, host.lanes, call.start_ns, call.start_ns + 1)["name"].astype(str))
        shown = {fields[name] for name in ("Code",) if name in fields}
        shown |= {frame for name in ("Through", "From") for frame in fields.get(name, "").split(" \u2190 ") if frame}
        assert shown <= around
        assert bool(shown) == any(".py(" in name for name in around)
        told += bool(shown)
    assert told > 0


def _details(timeline: Timeline, unit: Any, start_ns: int) -> list[tuple[str, str]]:
    start = timeline.offset(start_ns)
    lanes = range(len(unit.lanes))
    found = [detailed(timeline, {"unit": unit.id, "lane": lane, "start": start, "end": start + 1, "count": 1}) for lane in lanes]
    return next(reply["fields"] for reply in found if reply["fields"][0][1])
