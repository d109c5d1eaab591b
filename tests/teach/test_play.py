"""The fault game as it is played: looks cost minutes, answers are judged, teams have the points of their members."""

from __future__ import annotations

import pytest

from perfkit.core.errors import InputError
from perfkit.teach import game
from perfkit.teach.play import guess, join, judged, play, submit, take_look, team_of
from perfkit.teach.session import session_of


def true_guess():
    true = game.case("1", 1, 2024, "s01").truths[0]
    return guess(1, true.kind, ",".join(map(str, true.ranks)), f"{true.cost_ms:.1f} ms", true.action)


def test_a_look_costs_minutes_and_opens_a_table(here):
    assert play(here, "1").looks() == {}
    assert take_look(here, "1", "ranks") == "Parts of a step by rank is open below; 25 min are left."
    assert list(play(here, "1").looks()) == ["Parts of a step by rank: today and last week"]
    assert "25 of 30 min are left" in play(here, "1").told()[0]


def test_an_answer_is_judged_and_the_next_round_opens(here):
    assert judged(here, "1") is None
    said = true_guess()
    assert submit(here, "1", [said]).startswith("100 of 100")
    assert "round 2" in play(here, "1").told()[0]
    points, perfkit_said = judged(here, "1").told()
    assert points == "Round 1: 100 of 100 points."
    assert perfkit_said.startswith("perfkit diagnose said")
    assert judged(here, "1").to_frame().iloc[0]["what to do"] == said.action


@pytest.mark.parametrize("typed", [("", "", "", ""), ("jitter", "", "much", ""), ("slow_rank", "left", "", "")])
def test_what_cannot_be_read_is_told_and_does_not_close_the_round(here, typed):
    with pytest.raises(InputError):
        submit(here, "1", [guess(1, *typed)])
    assert play(here, "1").round.number == 1


def test_a_team_is_joined_and_sees_its_points(here):
    submit(here, "1", [true_guess()])
    assert join(here, " red ") == "You play for red."
    other = session_of("s02")
    join(other, "red")
    assert team_of(other) == "Team red, 2 members: 100 points in all."
    assert join(other, "") == "You play for yourself."
    assert team_of(other) == ""
