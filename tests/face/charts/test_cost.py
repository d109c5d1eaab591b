"""Charts of a model's cost and of a breakdown: rows carry the breakdown, structure stays."""

from __future__ import annotations

import pandas as pd
import pytest

from perfkit.core.breakdown import Breakdown
from perfkit.core.source import Source
from perfkit.face.charts import breakdown, cost, coverage, spec, theme

SOURCE = Source("assumed", "this test")
FORWARD = Breakdown("FLOP", {"layers/qkv": 4e9, "head": 1e9}, SOURCE)


def test_flops_rows_sum_to_the_breakdowns_and_change_no_structure():
    passes = {"forward": FORWARD, "backward": FORWARD.scale(2)}
    assert sum(row["gflop"] for row in cost.flops_rows(passes)) == pytest.approx(15.0)
    first, second = (spec.split(cost.flops_bars({"forward": part})) for part in (FORWARD, FORWARD.scale(3)))
    assert first.digest == second.digest
    assert first.datasets != second.datasets


def test_a_legend_says_nothing_of_what_is_not_drawn():
    def legend(chart):
        drawn = spec.split(chart)
        assert drawn.spec["encoding"]["color"]["legend"]["values"] == {"expr": "present"}
        assert drawn.params == {"present": chart.to_dict()["params"][0]["value"]}  # the same in a notebook of altair's own
        return drawn.params["present"]

    nothing = FORWARD.scale(0)
    assert legend(cost.flops_bars({"forward": FORWARD, "recompute": nothing})) == ["forward"]
    assert legend(cost.flops_bars({"forward": FORWARD, "recompute": FORWARD})) == ["forward", "recompute"]
    parts = {"computing/forward": 2.0, "computing/recompute": 0.0, "computing/optimizer": 1.0}
    bars = breakdown.bars({"a": Breakdown("ns", parts, SOURCE)})
    assert legend(bars) == ["computing/forward", "computing/optimizer"]
    scale = spec.split(bars).spec["encoding"]["color"]["scale"]
    colors = dict(zip(scale["domain"], scale["range"], strict=True))
    assert [colors[part] for part in parts] == theme.path_colors(parts)


def test_what_comes_and_goes_changes_no_structure():
    nothing = FORWARD.scale(0)
    first, second = (spec.split(cost.flops_bars({"forward": FORWARD, "recompute": part})) for part in (nothing, FORWARD))
    assert first.digest == second.digest
    assert first.params != second.params
    without, complete = (
        {"computing/forward": 2.0, "free": 1.0},
        {"free": 1.0, "communication/exposed": 3.0, "computing/forward": 2.0},
    )
    first, second = (spec.split(breakdown.bars({"a": Breakdown("ns", parts, SOURCE)})) for parts in (without, complete))
    assert first.digest == second.digest
    assert second.params["present"] == ["computing/forward", "communication/exposed", "free"]
    assert second.datasets["parts"]["order"] == [6, 4, 0]  # as they are stacked


def test_parameters_are_drawn_in_billions():
    rows = cost.parameter_rows(Breakdown("parameters", {"embedding": 131_072_000}, SOURCE))
    assert rows == [{"part": "embedding", "billions": 0.131072, "share": 1.0}]


def test_the_roof_meets_the_peak_at_the_ridge():
    products = pd.DataFrame(
        {"part": ["qkv"], "intensity_flop_per_byte": [100.0], "attainable_flops_per_s": [1.6e14], "bound": ["memory"]}
    )
    rows = cost.roofline_rows(products, peak_flops_per_s=376e12, memory_bytes_per_s=1.6e12)
    assert rows["roof"][1] == {"intensity": 235.0, "tflops": 376.0}
    assert rows["products"][0]["tflops"] == 160.0


def test_bars_of_several_breakdowns_share_one_order_of_parts():
    rows = breakdown.bar_rows({"a": FORWARD, "b": Breakdown("FLOP", {"head": 5.0}, SOURCE)})
    assert len({row["order"] for row in rows if row["path"] == "head"}) == 1
    assert spec.split(breakdown.bars({"a": FORWARD})).datasets["parts"]["name"] == ["a", "a"]


def test_what_was_not_told_apart_is_said_in_words():
    mixed = Breakdown("ns", {"computing": 1}, SOURCE, frozenset({"bubble", "communication/exposed"}))
    assert mixed.unmeasured_text == "Not told apart by this recording: bubble, communication/exposed."
    assert FORWARD.unmeasured_text == ""


def test_coverage_says_its_state_by_colour_and_by_symbol():
    table = pd.DataFrame({"rank": [0, 0], "part": ["kernels", "links"], "state": ["present", "missing"], "file": ["k.csv", None]})
    cells = spec.split(coverage.coverage_map(table)).datasets["coverage"]
    assert cells["symbol"] == ["●", "–"]
    assert cells["file"] == ["k.csv", "no file"]


def test_ranks_that_are_missing_are_one_row():
    table = pd.DataFrame({"rank": [0, 1], "part": ["kernels", "kernels"], "state": ["present", "present"], "file": [None, None]})
    cells = spec.split(coverage.coverage_map(table, missing=range(2, 8))).datasets["coverage"]
    assert (cells["rank"], cells["state"]) == (["0", "1", "2–7"], ["present", "present", "missing"])
    assert spec.split(coverage.coverage_map(table, missing=(2, 5))).datasets["coverage"]["rank"][-1] == "2 others"
