"""The fault game: the truth of the simulation, the budget, and the score."""

from __future__ import annotations

import pytest

from perfkit.core.errors import InputError
from perfkit.core.units import NS_PER_S
from perfkit.predict.estimate import estimate
from perfkit.predict.simulate import parse_faults
from perfkit.predict.simulate.layout import Layout
from perfkit.teach import class_store, game, rounds
from perfkit.teach.score import Guess, read_ranks, score
from perfkit.teach.views import VIEWS, look

SLOW = game.Truth(kind="slow_rank", ranks=frozenset({2}), cost_ms=55.0, action="swap it")
LINK = game.Truth(kind="slow_link", ranks=frozenset({4, 5}), cost_ms=120.0, action="repair")


def right(truth):
    return Guess(truth.kind, ",".join(map(str, truth.ranks)), truth.cost_ms, truth.action)


def test_last_weeks_run_takes_what_the_estimate_says_of_its_plan():
    steps = game.healthy().steps().groupby("step")["duration_ns"].max() / NS_PER_S
    assert steps.tolist() == pytest.approx([estimate(game.plan()).step_time_s] * len(steps), rel=0.01)


def test_all_right_is_100():
    assert score([right(SLOW)], [SLOW])[0] == 100


def test_a_cost_that_is_a_fifth_off_loses_four_points():
    assert score([Guess("slow_rank", "2", 66.0, "swap it")], [SLOW])[0] == 96


def test_the_wrong_rank_loses_thirty():
    assert score([Guess("slow_rank", "3", 55.0, "swap it")], [SLOW])[0] == 70


def test_the_wrong_kind_is_worth_nothing():
    assert score([Guess("data_stall", "", 55.0, "swap it")], [SLOW])[0] == 0


def test_one_end_of_a_slow_link_is_enough():
    assert score([Guess("slow_link", "4", 120.0, "repair")], [LINK])[0] == 100
    assert score([Guess("slow_link", "3", 120.0, "repair")], [LINK])[0] == 70


def test_several_faults_are_a_mean_and_a_false_one_costs_twenty():
    assert score([right(SLOW)], [SLOW, LINK])[0] == 50
    assert score([right(SLOW), right(LINK)], [SLOW, LINK])[0] == 100
    assert score([right(SLOW), Guess("jitter")], [SLOW, LINK])[0] == 30


def test_a_healthy_run_is_right_to_be_left_alone():
    action = game.pack()["kinds"]["none"]["action"]
    assert score([Guess("none", "", 0.0, action)], [])[0] == 100
    assert score([Guess("slow_rank", "2", 3.0, "swap it")], [])[0] == 0


def test_saying_that_nothing_is_wrong_costs_nothing_more():
    assert score([Guess("none")], [SLOW])[0] == 0


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("3", {3}),
        ("rank 3", {3}),
        ("4-5", {4, 5}),
        ("4, 5", {4, 5}),
        ("4 and 5", {4, 5}),
        ("Stage 1", {4, 5, 6, 7}),
        ("", set()),
        ("all", set()),
    ],
)
def test_places_are_read_as_people_write_them(text, ranks):
    assert read_ranks(text) == ranks


@pytest.mark.parametrize("text", ["left", "9", "<b>", "stage 7", "1e9"])
def test_places_that_do_not_exist_are_refused_in_words(text):
    with pytest.raises(InputError, match="place"):
        read_ranks(text)


def test_every_fault_that_can_be_drawn_exists_in_the_simulation():
    layout = Layout.of(game.plan())
    for level in game.pack()["levels"]:
        for number in range(1, 60):
            drawn = game.drawn_faults(level, number, 2024, "s01")
            kinds = [kind for kind, _ in drawn]
            assert len(set(kinds)) == len(kinds)
            assert len(kinds) in ({game.pack()["levels"][level]["faults"]} | ({0} if level == "2" else set()))
            assert len(parse_faults([text for _, text in drawn], layout)) == len(drawn)


def test_every_level_draws_every_kind_and_some_runs_are_healthy():
    for level in game.pack()["levels"]:
        drawn = [game.drawn_faults(level, number, 1, "x") for number in range(1, 200)]
        assert {kind for faults in drawn for kind, _ in faults} == set(game.pack()["kinds"]) - {"none"}
        assert (() in drawn) == (level == "2")


def test_levels_go_from_one_obvious_fault_to_three_subtle_ones():
    levels = list(game.pack()["levels"].values())
    assert [level["faults"] for level in levels] == sorted(level["faults"] for level in levels)
    assert [level["strength"] for level in levels] == sorted((level["strength"] for level in levels), reverse=True)
    assert (levels[0]["faults"], levels[-1]["faults"]) == (1, 3)


def test_the_truth_is_what_the_simulation_says_and_answering_it_scores_100():
    case = game.case("1", 1, 2024, "s01")
    assert len(case.truths) == 1
    assert case.truths[0].cost_ms > 10
    assert score([right(truth) for truth in case.truths], case.truths)[0] == 100
    assert game.case("1", 1, 2024, "s01").truths == case.truths


def test_every_view_has_a_cost_and_shows_rows():
    case = game.case("1", 1, 2024, "s01")
    assert set(VIEWS) == set(game.pack()["views"])
    for name in VIEWS:
        assert len(look(name, case.today, case.last_week)) >= 5
        assert game.pack()["views"][name]["cost_min"] > 0


def test_a_budget_never_allows_every_view():
    costs = sum(view["cost_min"] for view in game.pack()["views"].values())
    assert all(level["budget_min"] < costs for level in game.pack()["levels"].values())


def test_a_look_costs_once_and_the_budget_ends(tmp_path):
    store = class_store(tmp_path)
    now = rounds.current(store, 1, "a", "1")
    assert rounds.look_at(store, 1, "a", now, "steps") == 28
    now = rounds.current(store, 1, "a", "1")
    assert rounds.look_at(store, 1, "a", now, "steps") == 28
    for view in ("kernels", "collectives", "links", "host"):
        rounds.look_at(store, 1, "a", rounds.current(store, 1, "a", "1"), view)
    now = rounds.current(store, 1, "a", "1")
    assert now.left_min == 0
    with pytest.raises(InputError, match="costs 5 min, 0 are left"):
        rounds.look_at(store, 1, "a", now, "free")


def test_an_answer_closes_the_round_and_the_next_one_is_another(tmp_path):
    store = class_store(tmp_path)
    now = rounds.current(store, 1, "a", "1")
    case = rounds.the_case(1, "a", now)
    assert rounds.answer(store, 1, "a", now, [right(truth) for truth in case.truths]) == 100
    again = rounds.current(store, 1, "a", "1", now.number)
    assert again.points == 100
    assert rounds.current(store, 1, "a", "1").number == 2
    assert rounds.current(store, 1, "b", "1").number == 1
    with pytest.raises(InputError, match="answered already"):
        rounds.answer(store, 1, "a", again, [Guess("jitter")])


def test_an_empty_answer_does_not_close_a_round(tmp_path):
    store = class_store(tmp_path)
    with pytest.raises(InputError, match="name what is wrong"):
        rounds.answer(store, 1, "a", rounds.current(store, 1, "a", "1"), [])
    assert rounds.current(store, 1, "a", "1").points is None


def test_four_actions_are_offered_and_one_is_right():
    for name, kind in game.pack()["kinds"].items():
        assert len(set(game.actions_for(name))) == 4
        assert kind["action"] in game.actions_for(name)
