"""Page 05 without a browser: what settings free and cost, patterns checked, and the choice as configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit.core.errors import InputError
from perfkit.face.panels import open_panel
from perfkit.face.panels.recompute import CHOICES, FINE, PANEL, State, compute, start, view
from perfkit.predict.plans.balance.recompute_curve import least_seconds

ROUND5 = str(Path(__file__).parents[3] / "data" / "case13b" / "round5.yaml")


@pytest.fixture(scope="module")
def result():
    return compute(State())


def test_silu_and_mul_free_216_mib_a_layer(result):
    assert "free 216 MiB a layer and micro batch" in view(result).text


def test_settings_are_ordered_as_the_guides_order_them(result):
    order = ("none", "Silu and Mul", "fine list", "all layers")
    times = [result.settings[name].step_time_s for name in order]
    peaks = [result.settings[name].peak_bytes for name in order]
    assert times == sorted(times)
    assert peaks == sorted(peaks, reverse=True)
    assert times[0] < times[1] < times[2]


def test_the_exact_curve_is_never_below_the_greedy_one(result):
    ground = result.ground
    for point in ground.greedy:
        assert least_seconds(ground.exact, point.saved_bytes).seconds <= point.seconds + 1e-12
    assert ground.greedy[-1].saved_bytes < ground.whole.saved_bytes


def test_the_fine_list_is_that_of_the_guides_and_names_20_operators():
    checks = compute(State(choice="fine list")).checks
    assert len(FINE) == len(checks) == 20
    assert all(check.matched for check in checks)


def test_a_pattern_that_names_nothing_is_marked_with_what_was_meant():
    answer = view(compute(State(choice="my patterns", patterns="attention_normi.rcast\nfeed_forward\\.mul\n<img src=x>"))).whole()
    rows = answer.tables["patterns"].frame.to_dict("records")
    assert [row["operators"] for row in rows] == [0, 1, 0]
    assert rows[0]["names"] == r"names nothing; meant attention_norm\.rcast?"
    assert rows[2]["pattern"] == "<img src=x>"
    assert "✗ 2 of 3 patterns name no operator" in answer.text


def test_the_cast_alone_and_the_missing_reshape_are_noted():
    notes = view(compute(State(choice="my patterns", patterns=r"ffn_norm\.rcast"))).notes
    assert any("memory grows" in note for note in notes)
    notes = view(compute(State(choice="Silu and Mul"))).notes
    assert any("w2.reshape" in note for note in notes)


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("dialect", ["mindformers", "mindspeed-core", "megatron", "perfkit"])
def test_every_choice_is_exported_to_every_dialect(choice, dialect):
    code = view(compute(State(choice=choice, dialect=dialect))).whole().code
    assert len(code) == 1
    assert "cannot be written" not in code[0].title


def test_a_file_is_changed_in_place():
    code = view(compute(State(preset=ROUND5, choice="all layers"))).whole().code[0]
    assert code.language == "diff"
    assert "+  recompute: True" in code.text


def test_a_saving_that_no_set_reaches_says_how_much_there_is():
    with pytest.raises(InputError, match="all operators together free"):
        compute(State(choice="exact for a saving", wanted_mib=5000))


def test_the_whole_panel_opens():
    view_ = open_panel(PANEL)
    assert "without recomputation" in view_.wait().text


def test_without_a_project_the_page_starts_with_the_guides_case():
    found = start()
    assert (found.preset, found.choice) == (State().preset, State().choice)
    assert found.limit_gib == 64, "all of the device, where no project sets a limit"
