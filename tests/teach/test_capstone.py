"""The capstone: a change is chosen before its evidence is shown, once."""

from __future__ import annotations

import pytest

from perfkit.core.errors import InputError
from perfkit.teach import capstone
from perfkit.teach.capstone import choose_next, next_options, walk
from perfkit.teach.session import session_of


def test_the_six_rounds_lead_from_1860_to_2562():
    rounds = capstone.rounds()
    assert [one.reported for one in rounds] == [1860, 2136, 2189, 2210, 2353, 2562]
    assert all(len(set(capstone.options(one.number, 1, "a"))) == 4 for one in rounds)
    assert all(one.change in capstone.options(one.number, 1, "a") for one in rounds)


def test_who_chooses_right_in_all_rounds_has_all_points(here):
    for one in capstone.rounds():
        assert one.change in next_options(here)
        choose_next(here, one.change, str(one.reported))
    told, *notes = walk(here).told()
    assert told == "All six rounds are done: 1860 became 2562 tokens/s/device, 1.38 times."
    assert notes[-1] == "120 of 120 points."
    assert set(walk(here).to_frame()["points"]) == {20}
    assert set(walk(here).to_frame()["off by"]) == {"0 %"}
    assert next_options(here) == ()


def test_a_wrong_change_is_explained_and_the_walk_goes_on(here):
    wrong, why = next(iter(capstone.rounds()[0].instead.items()))
    assert choose_next(here, wrong, "") == "Something else was done; see why below."
    told, *notes = walk(here).told()
    assert any(why in note for note in notes)
    assert told.startswith("Round 1")


def test_choosing_twice_for_one_round_is_refused(here):
    first = capstone.rounds()[0].change
    choose_next(here, first, "")
    with pytest.raises(InputError, match="choose one of the four"):
        choose_next(here, first, "")


@pytest.mark.parametrize("text", ["many", "-5", "1e999", "nan"])
def test_an_expectation_that_is_no_number_is_told(here, text):
    with pytest.raises(InputError, match="tokens/s/device"):
        choose_next(here, capstone.rounds()[0].change, text)
    assert walk(here).choices == ()


def test_students_walk_apart(here):
    choose_next(here, capstone.rounds()[0].change, "")
    assert walk(session_of("s02")).choices == ()
