"""Pictures of answers: every question that has one draws the rows of its answer, as the page does."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import altair as alt
import pandas as pd
import pytest

from perfkit.core import quantity
from perfkit.core.answer import Answer
from perfkit.core.errors import InputError
from perfkit.core.questions import ASKED
from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.explain.compare.names import compare_names
from perfkit.face.charts import theme
from perfkit.face.charts.answers import PICTURES
from perfkit.face.cli._questions import questions
from perfkit.record.load import load
from tests.page_cells import run_page

TRACES = Path(__file__).parents[2] / "data" / "traces"
SAMPLES = {
    "dlrm_8xV100": ("kernels", "collectives", "waiting", "idle", "critical_path", "queue_length", "full_queue", "host_calls",
                    "expert_load", "copies", "modules", "steps"),
    "hta/critical_path/simple_add": ("copy_bandwidth", "kernel_sequences"),
    "hta/cupti_profiler": ("kernel_counters",),
    "torch_npu_db/level1": ("frequency", "memory", "counters"),
}  # fmt: skip


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    return {name: load(TRACES / name, cache=False) for name in SAMPLES}


def rows_of(chart: alt.TopLevelMixin) -> dict[str, list[dict[str, object]]]:
    document = chart.to_dict()  # checked against Vega-Lite's schema
    return {str(name): rows for name, rows in document["datasets"].items()}


def test_every_question_but_sql_has_a_picture():
    assert {*PICTURES} - {"compare_names", "steps"} == set(questions()) - {"sql"}


@pytest.mark.parametrize(("sample", "question"), [(sample, name) for sample, names in SAMPLES.items() for name in names])
def test_an_answer_is_drawn_with_its_rows(runs, sample, question):
    options = {"least": 1} if question == "kernel_sequences" else {}
    answer = getattr(runs[sample], question)(**options)
    drawn = rows_of(answer.plot())
    marks = max(len(rows) for rows in drawn.values())
    assert 0 < marks <= theme.MAX_MARKS
    assert not any(pd.isna(value) for rows in drawn.values() for row in rows for value in row.values())


@pytest.mark.parametrize(("sample", "question"), [(sample, name) for sample, names in SAMPLES.items() for name in names])
def test_no_two_columns_of_an_answer_have_one_title(runs, sample, question):
    titles = Counter(quantity.label(str(name)) for name in getattr(runs[sample], question)().columns)
    assert max(titles.values()) == 1, titles.most_common(1)


def test_added_and_removed_names_are_drawn():
    sides = [load(TRACES / "hta/trace_diff" / name, cache=False) for name in ("control.json.gz", "test.json.gz")]
    drawn = rows_of(compare_names(*sides).plot())
    assert {"added", "more"} <= {row["part"] for row in drawn["bars"]}


def test_a_part_of_an_answer_is_drawn_and_keeps_its_question(runs):
    answer = runs["dlrm_8xV100"].kernels(rank=3)
    part = answer[answer["kind"] == "communication"].nlargest(1, "total_ns")
    assert isinstance(part, Answer)
    assert part.attrs[ASKED] == "kernels"
    assert len(rows_of(part.plot())["operators"]) == 1


def test_kernels_are_drawn_as_the_page_of_operators_draws_them():
    folder = data_folder() / "traces" / "torch_npu_2rank"
    answer = load(folder).kernels(rank=0)
    computing = answer[~answer["kind"].isin(["communication", "copy"])].copy()
    computing["share"] = computing["total_ns"] / computing["total_ns"].sum()
    _sentence, shown = run_page("12_operators", path=folder)["which_take_most"](load(folder), 0, "name", "computing", 20)
    page = next(iter(shown.values()))
    assert _plain(rows_of(computing.plot())["operators"]) == _plain(rows_of(page)["operators"])
    assert _structure(computing.plot()) == _structure(page)


def test_memory_is_drawn_as_the_page_of_memory_draws_it():
    folder = data_folder() / "traces" / "torch_npu_2rank"
    (page,) = run_page("15_memory_profile", path=folder)["how_memory_went"].wait().charts.values()
    answer = load(folder).memory(rank=0)
    assert rows_of(answer.plot())["curve"] == rows_of(page.chart)["curve"]
    assert _structure(answer.plot()) == _structure(page.chart)


@pytest.mark.parametrize("sample", ["dlrm_8xV100", "torch_npu_pp2dp2"])
def test_waiting_is_drawn_as_the_page_of_communication_draws_it(sample: str):
    (page,) = run_page("13_communication", path=TRACES / sample)["who_waits_for_whom"].wait().charts.values()
    assert load(TRACES / sample).waiting().plot().to_dict() == page.chart.to_dict()


@pytest.mark.parametrize("sample", ["cluster_db", "torch_npu_pp2dp2"])
def test_sizes_of_collectives_are_drawn_as_the_page_of_communication_draws_them(sample: str):
    (page,) = run_page("13_communication", path=TRACES / sample)["how_size_costs_time"].wait().charts.values()
    drawn = load(TRACES / sample).collectives().plot().to_dict()
    assert drawn["datasets"]["calls"]
    assert drawn == page.chart.to_dict()


def _plain(rows: list[dict[str, object]]) -> list[tuple[object, ...]]:
    names = ("name", "core", "count", "total_ms", "place")
    return sorted((*(row[name] for name in names[:2]), *(round(float(str(row[name])), 9) for name in names[2:4])) for row in rows)


def _structure(chart: alt.TopLevelMixin) -> dict[str, object]:
    return {name: part for name, part in chart.to_dict().items() if name != "datasets"}


def test_what_has_no_picture_says_what_has(runs):
    with pytest.raises(InputError, match="the answer to sql has no picture; there are pictures of steps, kernels"):
        runs["dlrm_8xV100"].sql("SELECT rank FROM steps").plot()
    with pytest.raises(InputError, match="no row of kernels is left"):
        runs["dlrm_8xV100"].kernels().head(0).plot()
    with pytest.raises(InputError, match="no question of a run gave"):
        Answer(pd.DataFrame({"a": [1]})).plot()
