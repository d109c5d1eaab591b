"""PyTorch memory timelines: a recorded one against a plain reading, the form of sums, and damaged files."""

import gzip
import json
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfkit.core.errors import InputError
from perfkit.record.formats.memory.torch_memory_timeline import CATEGORIES
from perfkit.record.load import load

SAMPLE = Path(__file__).parents[2] / "data" / "traces" / "torch_memory_timeline" / "memory_timeline.raw.gz"
sample = cache(load)


@cache
def plain() -> list[list[int]]:
    events: list[list[int]] = json.loads(gzip.decompress(SAMPLE.read_bytes()))
    return events


def test_levels_of_every_category_equal_a_plain_reading():
    curve = sample(SAMPLE).frame("memory_curve")
    first = min(event[0] for event in plain() if event[0] >= 0)
    for number, name in enumerate(CATEGORIES):
        levels: dict[int, int] = {}
        level = 0
        for time, _, size, category in plain():
            if category == number:
                level += size
                levels[max(time, first)] = level
        rows = curve[curve["component"] == name]
        assert dict(zip(map(int, rows["time_ns"]), map(int, rows["allocated_bytes"]), strict=True)) == levels


def test_the_total_is_the_sum_of_the_categories_at_the_end_and_at_its_peak():
    curve = sample(SAMPLE).frame("memory_curve")
    total = curve[curve["component"] == "total"].set_index("time_ns")["allocated_bytes"]
    assert int(total.iloc[-1]) == sum(event[2] for event in plain())
    moment = int(total.idxmax())
    parts = curve[(curve["component"] != "total") & (curve["time_ns"] <= moment)]
    assert int(parts.groupby("component", observed=True)["allocated_bytes"].last().sum()) == int(total.max()) == 3082832104


def test_sums_give_the_same_curve_as_events(tmp_path: Path):
    times = [1696966047097422633, 1696966047098586959]
    rows = [[0, 100, 0, 0, 0, 0, 0, 0, 5], [0, 100, 0, 0, 0, 70, 0, 0, 5]]
    (tmp_path / "rank2.json").write_text(json.dumps([times, rows]))
    run = load(tmp_path)
    assert run.ranks == (2,)
    curve = run.frame("memory_curve").astype({"component": str})
    assert sorted(curve[curve["time_ns"] == times[1]][["component", "allocated_bytes"]].itertuples(index=False, name=None)) == [
        ("activation", 70),
        ("parameter", 100),
        ("total", 175),
        ("unknown", 5),
    ]


def test_sums_of_another_width_are_refused(tmp_path: Path):
    (tmp_path / "a.json").write_text(json.dumps([[1696966047097422633], [[0, 1]]]))
    with pytest.raises(InputError, match="must have 9 columns"):
        load(tmp_path)


def test_events_of_unknown_categories_are_counted(tmp_path: Path):
    events = [[-1, 1, 10, 7], [1696966047097422633, 2, 5, 9], [1696966047097422634, 2, 5, 0]]
    (tmp_path / "a.raw.json").write_text(json.dumps(events))
    run = load(tmp_path)
    assert [(lost.what, lost.count) for lost in run.dropped] == [("event of an unknown action or category", 1)]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(length=st.integers(20, 64_682), packed=st.booleans())
def test_a_file_cut_at_any_byte_gives_its_complete_events(tmp_path: Path, length: int, packed: bool):
    content = SAMPLE.read_bytes() if packed else gzip.decompress(SAMPLE.read_bytes())
    (tmp_path / "a.raw.json").write_bytes(content[:length])
    try:
        run = load(tmp_path)
    except InputError:
        return
    assert run.dropped
    assert int(run.frame("memory_curve")["allocated_bytes"].max()) <= 3082832104
