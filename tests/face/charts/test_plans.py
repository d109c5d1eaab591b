"""Charts of strategies: rows carry the numbers, structure stays."""

from __future__ import annotations

from types import SimpleNamespace

from perfkit.core.breakdown import Breakdown
from perfkit.core.source import Source
from perfkit.face.charts import plans, spec
from perfkit.predict.plans.search.comparison import Comparison
from perfkit.predict.plans.search.search_result import Mark

SOURCE = Source("assumed", "this test")
MARK = Mark(3, 2, 1, 100.0, 2.0, 2**31, True, lambda: None)


def comparison(*marks):
    found = SimpleNamespace(marks={f"<b>dp {index}</b>": mark for index, mark in enumerate(marks, 2)}, memory_limit_bytes=2**32)
    return Comparison(found=found, plans=())


def predicted(step, peak_bytes):
    return SimpleNamespace(breakdown=step, peak_memory_bytes=peak_bytes)


def test_marks_keep_their_names_as_text_and_rare_sizes_share_a_colour():
    lighter = MARK._replace(tokens_per_s_per_device=90.0, peak_memory_bytes=2**30)
    rows = plans.scatter_rows(comparison(MARK, lighter))
    assert rows["plans"][0]["plan"] == "<b>dp 2</b>"
    assert (rows["plans"][0]["tp"], rows["plans"][0]["pp"], rows["plans"][0]["gib"]) == ("other", "2", 2.0)
    assert [row["gib"] for row in rows["front"]] == [1.0, 2.0]
    assert rows["limit"] == [{"gib": 4.0}]


def test_other_strategies_change_rows_only():
    one, two = (spec.split(plans.plan_scatter(plans.scatter_rows(comparison(*[MARK] * count)))) for count in (1, 5))
    assert one.digest == two.digest
    assert one.datasets != two.datasets


def test_parts_of_a_step_are_stacked_in_one_order_and_sum_to_it():
    step = Breakdown("s", {"bubble": 1.0, "computing/forward/matmul": 2.0, "computing/forward/attention": 1.0, "free": 0.5}, SOURCE)
    rows = plans.step_rows({"a": predicted(step, 2**31)})["steps"]
    assert [row["part"] for row in rows] == ["forward", "bubble", "host"]
    assert sum(row["seconds"] for row in rows) == step.total
    one, other = (
        {name: predicted(step.scale(times), None) for name, times in each.items()} for each in ({"a": 1}, {"a": 1, "b": 2})
    )
    first, second = (spec.split(plans.step_bars(plans.step_rows(each))) for each in (one, other))
    assert first.digest == second.digest


def test_a_bar_has_its_step_behind_it_and_the_peak_where_it_is_known():
    step = Breakdown("s", {"bubble": 1.0, "free": 1.5}, SOURCE)
    rows = plans.step_rows({"a": predicted(step, 2**31), "b": predicted(step.scale(2), None)})
    assert rows["totals"] == [
        {"name": "a", "seconds": 2.5, "label": "2.500 s, 2.00 GiB"},
        {"name": "b", "seconds": 5.0, "label": "5.000 s"},
    ]


def test_reasons_are_drawn_most_frequent_first():
    rows = plans.rejected_rows({"few": 2, "many": 10})
    assert [row["reason"] for row in rows["reasons"]] == ["many", "few"]
    assert spec.split(plans.rejected_bars(rows)).datasets["reasons"]
