"""Ahead: what was made before it was asked for is what asking gives, and nothing of it shows until then."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest

from perfkit.face import widgets
from perfkit.face.widgets.entries import Button
from perfkit.face.widgets.step_view import StepView
from perfkit.face.widgets.steps import Step
from perfkit.face.widgets.worker import go_on
from perfkit.project.sample import demo
from tests.face.widgets.test_steps import bars, table
from tests.page_cells import opened_page, views

_seq = itertools.count(1)


@pytest.fixture(autouse=True)
def _however_slow_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfkit.face.widgets.step_view.LONGEST_S", 60.0)


def move(view: StepView, **values: Any) -> str:
    """Set controls as the page does, one request after another; the sentence of the answer."""
    view.on_message({"type": "set", "seq": next(_seq), "values": values})
    return str(view.wait().text)


def counted(**words: Any) -> tuple[Step, list[int]]:
    """A step that answers with the value of its slider, and the values that its function was called for."""
    calls: list[int] = []

    @widgets.step(n=widgets.Slider(1, 9, default=3), ahead=True, **words)
    def squares(n: int) -> Any:
        calls.append(n)
        if n == 8:
            raise ValueError("no eight")
        return f"{n} is {n * n}", {"Bars": bars(table(n))}, {"By rank": table(n)}

    squares.wait()
    return squares, calls


def test_a_slider_that_goes_on_finds_its_next_answer_made():
    squares, calls = counted()
    assert (move(squares.view, n=4), calls) == ("4 is 16", [3, 4, 5])
    assert (move(squares.view, n=5), calls) == ("5 is 25", [3, 4, 5, 6])
    assert len(squares.wait().tables["By rank"].frame) == 5
    assert (move(squares.view, n=3), calls) == ("3 is 9", [3, 4, 5, 6, 3, 1])
    assert (move(squares.view, n=9), calls[6:]) == ("9 is 81", [9]), "there is nothing beyond the end"


def test_a_slider_that_turns_finds_the_answer_that_it_left():
    squares, calls = counted()
    move(squares.view, n=4)
    assert (move(squares.view, n=3), calls) == ("3 is 9", [3, 4, 5, 2])
    assert (move(squares.view, n=4), calls) == ("4 is 16", [3, 4, 5, 2, 5])
    assert squares.value[0] == "4 is 16"
    assert len(squares.wait().tables["By rank"].frame) == 4


def test_a_slider_turns_from_what_is_impossible_to_the_answer_before_it():
    squares, calls = counted()
    move(squares.view, n=7)
    with pytest.raises(ValueError, match="no eight"):
        move(squares.view, n=8)
    del calls[:]
    assert (move(squares.view, n=7), calls) == ("7 is 49", [6])


def test_an_answer_that_was_left_is_made_anew_where_it_may_be_another_one_now():
    told = ["first"]
    button = Button(label="Change", run=lambda: told.append("second") or "")

    @widgets.step(n=widgets.Slider(1, 9, default=3), buttons=(button,), ahead=True)
    def words(n: int) -> Any:
        return f"{told[-1]} {n}", {"Bars": bars(table(n))}

    words.wait()
    assert [move(words.view, n=4), move(words.view, n=3)] == ["first 4", "first 3"]
    words.view.on_message({"type": "act", "name": words.view.actions[0]["name"], "values": {}})
    assert words.view.wait().text == "second 3"
    assert [move(words.view, n=2), move(words.view, n=4)] == ["second 2", "second 4"], "neither what was made nor what was left"


def test_nothing_that_was_left_is_kept_for_a_step_without_the_word():
    calls: list[int] = []

    @widgets.step(n=widgets.Slider(1, 9, default=3))
    def alone(n: int) -> Any:
        calls.append(n)
        return f"{n}", {"Bars": bars(table(n))}

    alone.wait()
    assert [move(alone.view, n=4), move(alone.view, n=3), move(alone.view, n=4)] == ["4", "3", "4"]
    assert calls == [3, 4, 3, 4]


def test_what_was_made_changes_nothing_until_it_is_asked_for():
    squares, _ = counted()
    move(squares.view, n=4)
    assert (squares.view.state, squares.value[0], squares.view.data["sentence"]) == ({"n": 4}, "4 is 16", "4 is 16")
    squares.view.on_message({"type": "undo"})
    assert (squares.wait().text, squares.view.state) == ("3 is 9", {"n": 3})


def test_an_error_ahead_is_told_where_it_is_asked_for():
    squares, calls = counted()
    move(squares.view, n=6)
    assert move(squares.view, n=7) == "7 is 49"
    assert squares.view.status == {"state": "result"}
    assert calls[-1] == 8
    with pytest.raises(ValueError, match="no eight"):
        move(squares.view, n=8)
    assert move(squares.view, n=7) == "7 is 49"


def test_a_question_in_the_middle_of_it_gets_its_own_answer():
    begun, let = threading.Event(), threading.Event()

    @widgets.step(n=widgets.Slider(1, 9, default=3), ahead=True)
    def squares(n: int) -> Any:
        if n == 5:
            begun.set()
            assert let.wait(30)
        return f"{n} is {n * n}", {"Bars": bars(table(n))}

    squares.wait()
    view = squares.view
    for asked, answer in ((2, "2 is 4"), (5, "5 is 25")):  # another value than the one that is made, and that one itself
        let.set()
        assert move(view, n=3) == "3 is 9"
        begun.clear()
        let.clear()
        view.on_message({"type": "set", "seq": next(_seq), "values": {"n": 4}})
        assert begun.wait(30)
        view.on_message({"type": "set", "seq": next(_seq), "values": {"n": asked}})
        let.set()
        assert (view.wait().text, view.state) == (answer, {"n": asked})


def test_a_search_that_is_made_ahead_shows_no_progress_and_ends_with_the_next_question():
    begun, told = threading.Event(), []

    @widgets.step(n=widgets.Slider(1, 9, default=3), ahead=True)
    def search(n: int) -> Any:
        done = 0
        while n == 5 and go_on("plans", done, 10, "plans"):
            begun.set()
            done = min(done + 1, 9)
        return f"{n} after {done}", {"Bars": bars(table(n))}

    search.wait()
    view = search.view
    view.observe(lambda change: told.append(change["new"]["state"]), names="status")
    view.on_message({"type": "set", "seq": next(_seq), "values": {"n": 4}})
    assert begun.wait(30)
    assert set(told) <= {"result"}, "what nobody asked for is not said"
    assert move(view, n=2) == "2 after 0"


def test_nothing_is_made_ahead_for_two_sliders_at_once_or_without_the_word():
    calls: list[tuple[int, int]] = []

    @widgets.step(n=widgets.Slider(1, 9, default=3), m=widgets.Slider(1, 9, default=3), ahead=True)
    def products(n: int, m: int) -> Any:
        calls.append((n, m))
        return f"{n * m}", {"Bars": bars(table(n))}

    products.wait()
    move(products.view, n=4, m=5)
    assert calls == [(3, 3), (4, 5)]
    plain: list[int] = []

    @widgets.step(n=widgets.Slider(1, 9, default=3))
    def alone(n: int) -> Any:
        plain.append(n)
        return f"{n}", {"Bars": bars(table(n))}

    alone.wait()
    move(alone.view, n=4)
    assert plain == [3, 4]


def test_what_follows_the_slider_is_filled_ahead_as_it_will_be():
    calls: list[tuple[int, int, str]] = []
    words = widgets.Choice(lambda n: ["small", "any"] if n < 5 else ["large", "any"])

    @widgets.step(n=widgets.Slider(1, 9, default=3), double=widgets.Number(lambda n: 2 * n), size=words, ahead=True)
    def doubled(n: int, double: int, size: str) -> Any:
        calls.append((n, double, size))
        return f"{n} {double} {size}", {"Bars": bars(table(n))}

    doubled.wait()
    assert move(doubled.view, n=4) == "4 8 small"
    assert calls[-1] == (5, 10, "large")
    assert move(doubled.view, n=5) == "5 10 large"
    assert calls == [(3, 6, "small"), (4, 8, "small"), (5, 10, "large"), (6, 12, "large")]


PAGES = {
    ("03_parallel_strategy", "which_strategies_fit"): {"limit_gib": (40, 41, 42, 41), "largest_tensor": (2, 4, 8, 4)},
    ("06_pipeline_balance", "what_the_pipeline_does"): {
        "num_stages": (2, 4, 5, 4),
        "num_microbatches": (30, 31, 32, 31),
        "num_chunks": (1, 2, 4),
    },
}


@pytest.mark.parametrize(("name", "step"), list(PAGES))
def test_every_slider_of_a_page_gives_ahead_what_it_gives_anew(name: str, step: str, tmp_path, monkeypatch):
    monkeypatch.setenv("PERFKIT_PROJECT", str(demo(tmp_path / "demo").folder))
    monkeypatch.setenv("PERFKIT_WAIT_FOR_PANELS", "1")
    view = views(opened_page(name))[step]
    view.wait()
    start, taken = dict(view.state), []
    take = view._ahead.take
    monkeypatch.setattr(view._ahead, "take", lambda given: taken.append(take(given)) or taken[-1])
    for path, values in PAGES[name, step].items():
        move(view, **{path: start[path]})
        found = {}
        for value in values:
            move(view, **{path: value})
            found[value] = (view.data["sentence"], view.data["datasets"], view.data["params"], view.details["tables"])
        with monkeypatch.context() as anew:
            anew.setattr("perfkit.face.widgets.step_view.LONGEST_S", -1.0)
            for value in values:
                view._ahead.forget()
                move(view, **{path: value})
                assert (view.data["sentence"], view.data["datasets"], view.data["params"], view.details["tables"]) == found[value]
    assert any(taken), "what was made ahead was taken"
