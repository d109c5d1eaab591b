"""Page 03 without a browser: the search under live limits, plans side by side, a plan by hand, stopping, saving."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.face.panels import _strategy_state, open_panel, parallel_strategy
from perfkit.face.panels._strategy_state import State
from perfkit.face.panels.parallel_strategy import PANEL, choose, compute, view
from perfkit.face.widgets.worker import Cancelled, Progress
from perfkit.project.experiments import ExperimentLog
from perfkit.project.sample import demo


def datasets(answer, chart):
    return answer.charts[chart].chart.datasets


def test_the_guides_13b_is_searched_on_16_devices_first():
    result = compute(State())
    answer = view(result).whole()
    assert "fit 58.0 GiB. Best on 16 devices: dp " in answer.text
    assert [item.name.split(":")[0] for item in result.compared] == ["1 plan", "2 plan", "3 rule of thumb"]
    marks = datasets(answer, "strategies")
    assert len(marks["plans"]) > 50
    assert [row["label"] for row in marks["chosen"]] == ["1", "2", "3"]
    assert all(row["gib"] <= 58.0 for row in marks["plans"])


def test_the_bars_of_a_plan_sum_to_its_step():
    result = compute(State())
    rows = datasets(view(result).whole(), "steps")["steps"]
    for item in result.compared:
        assert sum(row["seconds"] for row in rows if row["plan"] == item.name) == pytest.approx(item.estimate.step_time_s)


def test_the_reasons_add_up_to_all_combinations_that_lost():
    result = compute(State())
    reasons = datasets(view(result).whole(), "rejected")["reasons"]
    assert sum(row["count"] for row in reasons) == result.found.searched - result.found.feasible
    assert [row["count"] for row in reasons] == sorted((row["count"] for row in reasons), reverse=True)


def test_a_lower_limit_leaves_fewer_plans():
    wide, narrow = compute(State()).found, compute(replace(State(), limit_gib=30.0)).found
    assert 0 < narrow.feasible < wide.feasible
    assert narrow.plans[0].estimate.step_time_s >= wide.plans[0].estimate.step_time_s


def test_every_mark_can_be_compared_and_taken_out_again():
    answer = view(compute(State())).whole()
    for mark in datasets(answer, "strategies")["plans"][::40]:
        chosen = choose(State(), "strategies", mark)
        assert chosen.chosen == (mark["id"], "l0") or mark["id"] == "l0"
        first = compute(chosen).compared[0]
        assert first.estimate.tokens_per_s_per_device == pytest.approx(mark["tokens"])
        assert choose(chosen, "strategies", mark).chosen == ("l0",)


def test_four_plans_at_most_are_compared_the_newest_first():
    state = State()
    for rank in (2, 3, 4, 5):
        state = choose(state, "plans", {"rank": rank})
    assert state.chosen == ("l4", "l3", "l2", "l1")
    assert len(compute(replace(state, compare_own=True)).compared) == 4


def test_other_limits_forget_what_was_chosen_but_sliders_of_the_own_plan_do_not():
    state = choose(State(), "plans", {"rank": 3})
    assert replace(state, own_tensor=2).chosen == state.chosen
    assert replace(state, limit_gib=40.0).chosen == ()


def test_a_plan_by_hand_stands_beside_the_others_or_says_all_that_is_wrong():
    own = replace(State(), compare_own=True, own_tensor=2, own_pipeline=2, own_level=1, own_recompute="full")
    last = compute(own).compared[-1]
    assert last.name.startswith("4 by hand: dp 4 tp 2 pp 2")
    assert last.plan.recompute.all_layers
    wrong = view(compute(replace(own, own_tensor=16, own_pipeline=2, own_chunks=3))).whole()
    assert "tp x cp x pp does not divide the devices" in wrong.notes[-1]
    assert "attention heads" in wrong.notes[-1]


def test_the_first_plan_is_shown_as_configuration_of_every_dialect():
    for dialect, mark in (
        ("mindformers", "data_parallel"),
        ("megatron", "--pipeline-model-parallel-size"),
        ("perfkit", "[parallel]"),
    ):
        (code,) = view(compute(replace(State(), dialect=dialect))).whole().code
        assert mark in code.text


def test_where_nothing_fits_the_nearest_plan_and_its_parts_are_shown():
    answer = view(compute(replace(State(), limit_gib=6.0, devices=8))).whole()
    assert answer.text.startswith("No plan fits 6.00 GiB. The nearest is")
    assert any("What fills its fullest stage" in note for note in answer.notes)
    assert answer.tables["compared"].frame["fits"].iloc[0].startswith("no, ")


def test_a_prime_number_of_devices_names_all_reasons():
    with pytest.raises(InputError) as raised:
        compute(replace(State(), devices=97))
    assert len(raised.value.problems) >= 3


def test_another_device_brings_its_memory_as_the_limit():
    state = replace(State(), device="A100-80GB-SXM")
    assert state.limit_gib == catalog.hardware_named("A100-80GB-SXM").memory_bytes / 2**30


def test_a_stopped_search_shows_what_it_has(monkeypatch):
    monkeypatch.setattr("perfkit.predict.plans.search._search_columns.CHUNK", 500)
    _strategy_state._searched.clear()
    progress, calls = Progress(lambda *_: None), itertools.count()
    check = progress.check

    def stop_at_the_third():
        if next(calls) == 2:
            progress.cancel(by_visitor=True)
        check()

    monkeypatch.setattr(progress, "check", stop_at_the_third)
    answer = view(compute(State(), progress)).whole()
    assert answer.text.startswith("Stopped early: ")
    assert not _strategy_state._searched


def test_a_newer_question_ends_a_search_without_an_answer():
    _strategy_state._searched.clear()
    progress = Progress(lambda *_: None)
    progress.cancel()
    with pytest.raises(Cancelled):
        compute(State(), progress)


def test_the_first_plan_is_saved_with_its_prediction(tmp_path, monkeypatch):
    folder = demo(tmp_path / "d").folder
    monkeypatch.chdir(folder)
    state = parallel_strategy.start()
    ExperimentLog(folder).start("another strategy")
    assert parallel_strategy.save_plan(state).startswith("Saved to round 6")
    document = ExperimentLog(folder).show("json")
    last = document["rounds"][-1]
    assert last["prediction"] == pytest.approx(compute(state).compared[0].estimate.tokens_per_s_per_device)
    assert last["configs"]


def test_the_panel_answers_as_a_page_would_show_it():
    panel = open_panel(PANEL)
    assert "combinations" in panel.wait().text
    panel.set({"limit_gib": 31})
    assert "fit 31.0 GiB" in panel.wait().text
