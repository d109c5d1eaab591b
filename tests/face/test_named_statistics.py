"""A statistic is named where it stands: a mean, median or percentile that is no step's or rank's own has the word beside it."""

from __future__ import annotations

import contextlib
import csv
import html
import io
import itertools
import json
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
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
PERCENTILES = (1, 5, 10, 25, 75, 90, 95, 99)
WORDS |= {f"p{share}": (f"p{share} ", f"p{share}_", f"{share}th", "percentile") for share in PERCENTILES}
LOG_LINE = (
    " iteration {step:8d}/    1000 | consumed samples: 40 | elapsed time per iteration (ms): {ms} | learning rate: 1.500E-04 | "
    "global batch size:     4 | lm loss: 3.282511E+01 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)


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
    made = {"mean": [float(part.mean()) for part in series], "median": [float(np.median(part)) for part in series[1::2]]}
    return made | percentiles(series, others={*lengths.tolist(), *waits.tolist(), *made["mean"], *made["median"]})


def percentiles(series: Iterable[npt.NDArray[np.float64]], others: Collection[float]) -> dict[str, list[float]]:
    """The percentiles of each of some series that are like none of the other numbers."""
    found: dict[str, list[float]] = {}
    for share, part in itertools.product(PERCENTILES, series):
        value = float(np.percentile(part, share))
        if not any(abs(value - other) <= 0.006 * abs(other) for other in others):
            found.setdefault(f"p{share}", []).append(value)
    return found


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training log of 23 steps of which no two take alike, nor as long as a percentile of them."""
    path = tmp_path_factory.mktemp("log") / "train.log"
    times_ms = np.exp(np.random.default_rng(9).uniform(np.log(900), np.log(2700), 23)).round(1)
    path.write_text("".join(LOG_LINE.format(step=step, ms=ms) for step, ms in enumerate(times_ms.tolist(), 1)))
    return path


@pytest.fixture(scope="module")
def statistics_of_log(log: Path) -> Mapping[str, list[float]]:
    """The percentiles of the log's steps, as many first ones left out as somebody may leave out."""
    times = load(str(log)).frame("steps").sort_values("step")["duration_ns"].to_numpy(dtype=np.float64)
    assert len(times) == 23
    found = percentiles([times[first:] for first in range(4)], others=times.tolist())
    assert {"p10", "p90", "p95"} <= set(found)
    return found


@pytest.fixture(scope="module")
def of_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cluster analysis of four ranks and eight steps, of which no two times are alike."""
    folder = tmp_path_factory.mktemp("ranks") / "ranks"
    folder.mkdir()
    columns = next(csv.reader((data_folder() / "traces/cluster_16card/cluster_step_trace_time.csv").open()))
    draw, rows = np.random.default_rng(5), []
    for step, rank in itertools.product(range(2, 10), range(4)):
        computing, exposed, hidden, free = np.exp(draw.uniform(np.log(2e4), np.log(9e5), 4)).round(3).tolist()
        whole = computing + exposed + free
        rows.append((step, "rank", rank, computing, exposed, hidden, exposed + hidden, free, whole, 0.0, exposed))
    pd.DataFrame(rows, columns=columns).to_csv(folder / "cluster_step_trace_time.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def statistics_of_ranks(of_ranks: Path) -> Mapping[str, list[float]]:
    """Means and medians over all steps, over the steps of a rank and over the ranks of a step, that are like nothing else.

    And the percentiles of all durations: with those of every rank and step there would be one near any number.
    """
    steps, raw = load(str(of_ranks)).frame("steps"), set()
    made: dict[str, set[float]] = {"mean": set(), "median": set()}
    for name in ("duration_ns", "computing_ns", "exposed_communication_ns", "overlapped_ns", "free_ns"):
        table = steps.pivot(index="step", columns="rank", values=name).to_numpy(dtype=np.float64)
        raw |= set(table.ravel().tolist())
        for part, (word, of) in itertools.product((table, table[1:], table[2:]), (("mean", np.mean), ("median", np.median))):
            made[word] |= {float(of(part)), *of(part, axis=0).tolist(), *of(part, axis=1).tolist()}
    others = {"mean": raw | made["median"], "median": raw | made["mean"]}
    durations = steps["duration_ns"].to_numpy(dtype=np.float64)
    return percentiles([durations], others=raw | made["mean"] | made["median"]) | {
        word: [value for value in values if not any(abs(value - other) <= 0.006 * other for other in others[word])]
        for word, values in made.items()
    }


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


def of_terminal(text: str, statistics: Mapping[str, list[float]]) -> Iterator[str]:
    for block in text.split("\n\n"):
        head, *lines = block.splitlines() or [""]
        yield from (*unnamed(head, "", statistics), *(one for line in lines for one in unnamed(line, head, statistics)))


@pytest.mark.parametrize("command", ["summary", "diagnose"])
def test_in_the_terminal(command: str, recording: Path, statistics: Mapping[str, list[float]]):
    assert list(of_terminal(printed(command, str(recording)), statistics)) == []


def test_percentiles_of_a_log(log: Path, statistics_of_log: Mapping[str, list[float]]):
    assert list(of_terminal(printed("summary", str(log)), statistics_of_log)) == []
    assert unnamed_on("01_baseline", log, statistics_of_log) == []
    page = views(run_page("01_baseline", path=log))
    shown = page["how_long_a_step_is"].wait()
    assert list(unnamed(str(quantity.text("ns", statistics_of_log["p10"][1])), "", statistics_of_log)), "the law sees one"
    assert "p10" in table_content("steps", shown.tables[next(iter(shown.tables))])["columns"][3]["label"]


@pytest.mark.parametrize("command", ["summary", "diagnose"])
def test_in_the_terminal_over_ranks(command: str, of_ranks: Path, statistics_of_ranks: Mapping[str, list[float]]):
    assert min(len(statistics_of_ranks[word]) for word in ("mean", "median")) >= 30
    assert list(of_terminal(printed(command, str(of_ranks)), statistics_of_ranks)) == []


def test_in_a_report_over_ranks(of_ranks: Path, statistics_of_ranks: Mapping[str, list[float]], tmp_path: Path):
    printed("report", str(of_ranks), "--out", str(tmp_path / "report.html"))
    page = re.sub(r"<(script|style)\b.*?</\1>", "", (tmp_path / "report.html").read_text(), flags=re.DOTALL)
    found, title, header = [], "", []
    for kind, inner in re.findall(r"<(h\d|p|li|tr)\b[^>]*>(.*?)</\1>", page, flags=re.DOTALL):
        cells = [html.unescape(re.sub(r"<[^>]+>", " ", cell)).strip() for cell in re.split(r"</t[hd]>", inner)]
        if kind.startswith("h"):
            title = cells[0]
        elif "<th" in inner:
            header = cells
        else:
            words = [*header, *[""] * len(cells)] if kind == "tr" else [""] * len(cells)
            row = " ".join(cells) if kind == "tr" else ""
            found += [
                one
                for cell, over in zip(cells, words, strict=False)
                for one in unnamed(cell, f"{title} {over} {row}", statistics_of_ranks)
            ]
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


@pytest.fixture(autouse=True)
def _no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))
    monkeypatch.setenv("PERFKIT_WAIT_FOR_PANELS", "1")


def unnamed_on(name: str, path: Path, statistics: Mapping[str, list[float]]) -> list[str]:
    found: list[str] = []
    for view in views(run_page(name, path=path)).values():
        with contextlib.suppress(NothingYet):  # what waits for a button
            found += of_page(view.wait(), statistics)
    return found


@pytest.mark.parametrize("name", ["00_start_here", "11_step_breakdown", "16_data_feed", "14_timeline", "20_findings"])
def test_on_pages(name: str, recording: Path, statistics: Mapping[str, list[float]]):
    assert unnamed_on(name, recording, statistics) == []


@pytest.mark.parametrize("name", ["00_start_here", "11_step_breakdown", "17_cluster", "20_findings"])
def test_on_pages_over_ranks(name: str, of_ranks: Path, statistics_of_ranks: Mapping[str, list[float]]):
    assert unnamed_on(name, of_ranks, statistics_of_ranks) == []


def test_a_comparison_over_ranks(of_ranks: Path, statistics_of_ranks: Mapping[str, list[float]]):
    page = views(run_page("21_compare", old_path=of_ranks, path=of_ranks))
    assert list(of_page(page["what_changed"].wait(), statistics_of_ranks)) == []


def test_a_number_without_its_word_is_found(statistics: Mapping[str, list[float]]):
    mean, median = (quantity.text("ns", statistics[name][0]) for name in ("mean", "median"))
    assert list(unnamed(f"a step takes {mean}", "", statistics))
    assert list(unnamed(f"a step takes {median}, the mean", "", statistics))
    assert not list(unnamed(f"a step takes {mean} on average, {median} in the median", "", statistics))
    assert json.dumps(mean) != json.dumps(median)
