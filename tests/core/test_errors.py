"""Errors say everything at once and survive the way between processes."""

from __future__ import annotations

import pickle

from perfkit.core.errors import InputError, NotMeasuredError, PerfkitError


def test_every_problem_is_in_the_message():
    error = InputError("run.yaml", ["a = 0 must be positive", "b is missing"])
    assert str(error) == "run.yaml: 2 problems\n  - a = 0 must be positive\n  - b is missing"
    assert error.problems == ("a = 0 must be positive", "b is missing")


def test_one_problem_is_not_called_problems():
    assert str(InputError("x", ["y"])).startswith("x: 1 problem\n")


def test_problems_may_come_from_a_generator():
    assert InputError("x", (str(number) for number in range(3))).problems == ("0", "1", "2")


def test_what_was_not_measured_says_how_to_collect_it():
    error = NotMeasuredError("memory curve", how_to_collect="set profile_memory: True")
    assert str(error) == "not measured: memory curve. To collect it: set profile_memory: True"


def test_errors_cross_from_one_process_to_another():
    for error in (InputError("x", ["a", "b"]), NotMeasuredError("m", how_to_collect="h")):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)


def test_all_errors_of_users_have_one_base():
    assert issubclass(InputError, PerfkitError)
    assert issubclass(NotMeasuredError, PerfkitError)
