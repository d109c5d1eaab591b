"""A statistic is named where it stands: a number that is a mean or a median of steps, and no step's own, has the word beside it."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from perfkit.core import quantity
from perfkit.core.resources import data_folder
from perfkit.face.cli import main
from perfkit.face.widgets.answer import Whole
from perfkit.face.widgets.status import NothingYet
from perfkit.face.widgets.table import Table, table_content
from perfkit.record.load import load
from tests.face.test_one_answer import told_in
from tests.page_cells import run_page, views

FEED = data_folder() / "traces" / "mindinsight_feed"
WAITS_MS = (3, 11, 13, 17, 31, 37, 53, 59)
"""Before each step: no two are alike, nor are their mean and median, and neither is a step's own."""
WORDS = {"mean": ("mean", "average"), "median": ("median", "middle")}


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled recording of a slow feed with other waiting times, in units of 10 ns as its profiler writes them."""
    folder = tmp_path_factory.mktemp("named") / "feed"
    shutil.copytree(FEED, folder)
    table = pd.read_csv(folder / "step_trace_raw_0_detail_time.csv").head(len(WAITS_MS) + 1)
    begin = int(table["start_point"].iloc[0])
    for at, wait in zip(table.index, (0, *WAITS_MS), strict=True):
        computed = int(table.loc[at, "fp_and_bp"]) + int(table.loc[at, "tail"])
        shift = begin + wait * 100_000 - int(table.loc[at, "fp_point"])
        points = [name for name in table.columns if name.endswith("point")]
        table.loc[at, points] = table.loc[at, points] + shift
        table.loc[at, ["start_point", "iteration_interval"]] = begin, wait * 100_000
        table.loc[at, "total"], begin = wait * 100_000 + computed, begin + wait * 100_000 + computed
        table.loc[at, "end_point"] = begin
    table.to_csv(folder / "step_trace_raw_0_detail_time.csv", index=False)
    (folder / "device_queue_profiling_0.txt").unlink()
    (folder / "minddata_pipeline_raw_0.csv").unlink()
    return folder


@pytest.fixture(scope="module")
def statistics(recording: Path) -> Mapping[str, list[float]]:
    """The means and medians of what steps took and waited, over all steps and over all but the first."""
    steps = load(str(recording)).frame("steps").sort_values("step")
    lengths = steps["duration_ns"].to_numpy(dtype=np.float64)
    waits = lengths - lengths[0]
    series = [part for whole in (lengths, waits) for part in (whole, whole[1:])]
    assert len(lengths) == len(WAITS_MS) + 1
    return {"mean": [float(part.mean()) for part in series], "median": [float(np.median(part)) for part in series[1::2]]}


def unnamed(text: str, where: str, statistics: Mapping[str, list[float]]) -> Iterator[str]:
    """The numbers of a text that are such a statistic, where neither the text nor what stands over it (`where`) names it."""
    for kind, shown in told_in(text):
        for name, values in statistics.items():
            said = any(word in f"{where} {text}".lower() for word in WORDS[name])
            if kind == "ns" and not said and any(shown.is_of(value) for value in values):
                yield f"{name} in {text!r} under {where!r}"


def printed(*command: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(list(command)) == 0
    return out.getvalue()


@pytest.mark.parametrize("command", [["summary"], ["diagnose"]], ids=lambda command: command[0])
def test_in_the_terminal(command: list[str], recording: Path, statistics: Mapping[str, list[float]]):
    found = []
    for block in printed(*command, str(recording)).split("\n\n"):
        head, *lines = block.splitlines() or [""]
        found += [*unnamed(head, "", statistics), *(one for line in lines for one in unnamed(line, head, statistics))]
    assert found == []


def of_page(whole: Whole, statistics: Mapping[str, list[float]]) -> Iterator[str]:
    for text in (whole.text, *whole.notes):
        for sentence in text.split(". "):
            yield from unnamed(sentence, "", statistics)
    for name, shown in whole.tables.items():
        content = table_content(name, shown if isinstance(shown, Table) else Table(frame=shown))
        rows = zip(*([f"{text} {column['unit']}" for text in column["text"]] for column in content["columns"]), strict=True)
        for row in rows:
            for cell, column in zip(row, content["columns"], strict=True):
                over = f"{content['title']} {column['label']} {' '.join(other for other in row if other != cell)}"
                yield from unnamed(cell, over, statistics)


@pytest.mark.parametrize("name", ["00_start_here", "11_step_breakdown", "16_data_feed", "14_timeline"])
def test_on_pages(
    name: str, recording: Path, statistics: Mapping[str, list[float]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))
    monkeypatch.setenv("PERFKIT_WAIT_FOR_PANELS", "1")
    found: list[str] = []
    for view in views(run_page(name, path=recording)).values():
        with contextlib.suppress(NothingYet):  # what waits for a button
            found += of_page(view.wait(), statistics)
    assert found == []


def test_a_number_without_its_word_is_found(statistics: Mapping[str, list[float]]):
    mean, median = (quantity.text("ns", statistics[name][0]) for name in WORDS)
    assert list(unnamed(f"a step takes {mean}", "", statistics))
    assert list(unnamed(f"a step takes {median}, the mean", "", statistics))
    assert not list(unnamed(f"a step takes {mean} on average, {median} in the median", "", statistics))
    assert json.dumps(mean) != json.dumps(median)
