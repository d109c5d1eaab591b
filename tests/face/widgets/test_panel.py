"""Panels without a browser: state by path, one answer to the newest question, and the six states."""

from __future__ import annotations

import threading
from dataclasses import replace

import altair as alt
import pandas as pd
import pytest

from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.face.charts import theme
from perfkit.face.widgets._drawn_tables import KEPT
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.control import Choice, Number, Slider
from perfkit.face.widgets.page_state import PageState, page_state
from perfkit.face.widgets.panel import Action, Answer, Empty, Panel
from perfkit.face.widgets.status import NothingYet
from perfkit.face.widgets.table import Table
from perfkit.face.widgets.worker import check, running
from tests.panels import open_panel


def chart_of(frame: pd.DataFrame) -> alt.Chart:
    bars = alt.Chart(alt.NamedData("rows")).mark_bar().encode(x="rank:O", y="ms:Q")
    return theme.with_rows(bars, {"rows": frame.to_dict("records")})


def ranks(state):
    if state["n"] == 13:
        raise ValueError("boom")
    if state["n"] == 0:
        raise NothingYet("no rank")
    if state["n"] == 2:
        raise NotMeasuredError("ranks", how_to_collect="profile: True")
    if state["n"] == 3:
        raise InputError("ranks", ["a = 1 must be 2", "b = 2 must be 3"])
    return pd.DataFrame({"rank": range(state["n"]), "ms": [float(rank) for rank in range(state["n"])]})


def shown(frame):
    return {"bars": Figure(chart_of(frame), title="Ranks", alt="bars")}, {"ranks": Table(frame)}, f"{len(frame)} ranks"


PANEL = Panel(
    compute=ranks,
    view=shown,
    start={"n": 4, "rank": None},
    controls=(Slider("n", low=0, high=64), Choice("rank", options=lambda state: tuple(range(state["n"])))),
    empty=Empty(action="Use four", fill=lambda state: {**state, "n": 4}),
    on_row=lambda state, _table, row: {**state, "rank": row["rank"]},
    on_select=lambda state, _chart, datum: {**state, "rank": datum["rank"]},
    shared=("n",),
)


def failed(view):
    with pytest.raises(Exception) as error:  # noqa: PT011  the type is what the caller looks at
        view.wait()
    return error.value


def test_a_panel_answers_without_a_browser():
    view = open_panel(PANEL)
    assert view.wait().text == "4 ranks"
    assert view.status["state"] == "result"
    assert view.data["datasets"]["bars"]["rows"] == {"rank": [0, 1, 2, 3], "ms": [0.0, 1.0, 2.0, 3.0]}
    assert view.data["alt"] == {"bars": "bars"}


def test_new_rows_leave_the_structure_alone():
    view = open_panel(PANEL)
    view.wait()
    before = view.frame
    view.set({"n": 6})
    assert view.wait().text == "6 ranks"
    assert view.frame == before
    assert len(view.data["datasets"]["bars"]["rows"]["rank"]) == 6


@pytest.mark.parametrize(
    ("count", "state"), [(0, "empty"), (2, "unmeasured"), (3, "error"), (13, "error")], ids=["empty", "unmeasured", "input", "bug"]
)
def test_each_way_to_fail_is_a_state_and_the_panel_goes_on(count, state):
    view = open_panel(PANEL)
    view.set({"n": count})
    failed(view)
    assert view.status["state"] == state
    view.set({"n": 5})
    assert view.wait().text == "5 ranks"
    assert view.status["state"] == "result"


def test_an_input_error_lists_all_problems_and_no_traceback():
    view = open_panel(PANEL)
    view.set({"n": 3})
    failed(view)
    assert view.status["problems"] == ["a = 1 must be 2", "b = 2 must be 3"]
    assert view.status["title"] == "ranks: 2 problems"
    assert "details" not in view.status


def test_a_bug_says_that_it_is_one_and_folds_the_traceback():
    view = open_panel(PANEL)
    view.set({"n": 13})
    assert isinstance(failed(view), ValueError)
    assert "bug in perfkit" in view.status["title"]
    assert "Traceback" in view.status["details"]


def test_the_button_of_an_empty_panel_fills_it():
    view = open_panel(PANEL, state={"n": 0, "rank": None})
    failed(view)
    assert view.status["action"] == "Use four"
    view.on_message({"type": "action"})
    assert view.wait().text == "4 ranks"


def test_a_chosen_row_or_mark_makes_the_next_state():
    view = open_panel(PANEL)
    view.wait()
    view.on_message({"type": "row", "table": "ranks", "row": 2})
    view.wait()
    assert view.state["rank"] == 2
    view.on_message({"type": "select", "chart": "bars", "datum": {"rank": 1}})
    view.wait()
    assert view.state["rank"] == 1


def test_a_row_is_the_one_that_stood_there_when_it_was_clicked():
    """The page shows the tables before until the newest arrive: what is clicked there is not what the newest have in its place."""
    shown = Panel(
        title="steps",
        start={"first": 0, "row": None},
        compute=lambda state: state["first"],
        view=lambda first: Answer({}, {"rows": pd.DataFrame({"row": range(first, first + 3)})}, ""),
        controls=(Slider("first", low=0, high=100),),
        on_row=lambda state, _table, row: {**state, "row": row["row"]},
    )
    view = open_panel(shown)
    view.wait()
    versions = [view.details["version"]]
    for first in range(10, 10 * (KEPT + 1), 10):
        view.set({"first": first})
        view.wait()
        versions.append(view.details["version"])
    for version, meant in ((versions[1], 11), (versions[-1], 10 * KEPT + 1), (versions[0], 10 * KEPT + 1)):  # the last: forgotten
        view.on_message({"type": "row", "table": "rows", "row": 1, "version": version})
        view.wait()
        assert view.state["row"] == meant


def test_an_option_that_is_gone_gives_way_to_the_first_and_is_named():
    view = open_panel(PANEL)
    view.set({"rank": 3})
    view.wait()
    view.set({"n": 1})
    view.wait()
    assert view.state["rank"] == 0
    assert view.controls[1]["note"] == "3 is not available here; 0 is shown"


def of_unreadable(state):
    raise InputError(state["run"], ["is no recording"])


def test_controls_that_do_not_need_the_unreadable_run_are_there_to_choose_another():
    controls = (Choice(path="run", options=["a", "b"]), Choice(path="rank", options=of_unreadable))
    view = open_panel(Panel(start={"run": "a", "rank": 0}, controls=controls, compute=of_unreadable, view=shown))
    with pytest.raises(InputError, match="is no recording"):
        view.wait()
    assert [control["name"] for control in view.controls] == ["run"]


def test_what_options_read_is_read_beside_the_page_with_progress():
    threads, told = [], []

    def read_slowly(_state):
        threads.append(threading.current_thread())
        running()("reading", 1, 1)
        told.append(view.status["progress"]["text"])
        return [0]

    opened = threading.Event()
    panel = Panel(
        start={"n": 0},
        controls=(Choice(path="n", options=read_slowly),),
        compute=lambda _: opened.wait(10),
        view=lambda _: ({}, {}, ""),
    )
    view = open_panel(panel)
    opened.set()
    view.wait()
    assert threading.main_thread() not in threads
    assert "reading: 1.00 B of 1.00 B" in told


def test_a_number_beyond_its_limits_is_clamped_and_said():
    panel = Panel(
        compute=lambda state: state,
        view=lambda state: ({}, {}, str(state["x"])),
        start={"x": 1},
        controls=(Number("x", low=0, high=9),),
    )
    view = open_panel(panel)
    view.set({"x": 99})
    assert view.wait().text == "9"
    assert view.controls[0]["note"] == "set to 9; 0 to 9 is allowed"


def test_only_the_newest_question_is_answered():
    started, go = threading.Event(), threading.Event()
    computed = []

    def compute(state):
        started.set()
        go.wait(10)
        check()
        computed.append(state["n"])
        return state["n"]

    view = open_panel(Panel(compute=compute, view=lambda n: ({}, {}, str(n)), start={"n": 1}, controls=(Number("n", step=1),)))
    assert started.wait(10)
    for number in (2, 3, 4):
        view.set({"n": number})
    go.set()
    assert view.wait().text == "4"
    assert computed == [4]


def test_charts_and_sentence_are_sent_before_tables_are_made():
    seen = []

    def tables(frame):
        seen.append((view.data["sentence"], view.status["state"], len(view.details.get("tables", ()))))
        return {"ranks": Table(frame)}

    panel = Panel(
        compute=ranks, view=lambda frame: Answer({"bars": chart_of(frame)}, lambda: tables(frame), f"{len(frame)}"), start={"n": 4}
    )
    view = open_panel(panel)
    assert list(view.wait().tables["ranks"].frame["rank"]) == [0, 1, 2, 3]
    assert seen == [("4", "result", 0)]
    assert view.details["version"] == view.data["version"]
    assert view.details["tables"][0]["columns"][0]["values"] == [0, 1, 2, 3]


def test_tables_of_an_outdated_answer_are_neither_made_nor_sent():
    asked, go, made, sent = threading.Event(), threading.Event(), [], []

    def notes(number):
        asked.set()
        go.wait(10)
        return (str(number),)

    def code(number):
        made.append(number)
        return ()

    def answer(number):
        return Answer({}, {}, str(number), lambda: notes(number), lambda: code(number))

    view = open_panel(Panel(compute=lambda state: state["n"], view=answer, start={"n": 1}, controls=(Number("n", step=1),)))
    view.observe(lambda change: sent.append(change["new"]["notes"]), "details")
    assert asked.wait(10)
    view.set({"n": 2})
    go.set()
    assert view.wait().notes == ("2",)
    assert (made, sent) == ([2], [["2"]])
    assert view.details["version"] == view.data["version"] == 2


def test_a_failure_after_the_charts_were_sent_is_an_error_too():
    view = open_panel(Panel(compute=ranks, view=lambda frame: Answer({}, lambda: 1 / 0, f"{len(frame)}"), start={"n": 4}))
    assert isinstance(failed(view), ZeroDivisionError)
    assert (view.data["sentence"], view.status["state"]) == ("4", "error")


def test_progress_is_shown_and_cancel_stops_it():
    shown_progress, reported = [], threading.Event()

    def compute(_state):
        for part in range(1_000_000):
            running()("a.json", part, 1_000_000)
            reported.wait(0.001)
        return 0

    view = open_panel(Panel(compute=compute, view=lambda n: ({}, {}, str(n)), start={}))

    def watch(change):
        if change["new"].get("progress"):
            shown_progress.append(change["new"]["progress"]["text"])
            reported.set()

    view.observe(watch, "status")
    assert reported.wait(10)
    view.on_message({"type": "cancel"})
    failed(view)
    assert view.status["title"] == "Cancelled"
    assert shown_progress[0].startswith("a.json: ")


def test_shared_values_follow_the_address_and_write_it():
    page_state().set({"n": "7"})
    view = open_panel(PANEL)
    assert view.wait().text == "7 ranks"
    page_state().set({"n": "5"})
    assert view.wait().text == "5 ranks"
    view.set({"n": 6})
    view.wait()
    assert page_state().values == {"n": "6"}


def test_an_old_answer_of_one_panel_does_not_take_back_a_change_in_another():
    computing, let = threading.Event(), threading.Event()

    def slow(state):
        if state["n"] == 4:
            computing.set()
            assert let.wait(10)
        return ranks(state)

    other = open_panel(replace(PANEL, compute=slow))
    assert computing.wait(10)
    view = open_panel(PANEL)
    view.set({"n": 6})
    assert view.wait().text == "6 ranks"
    let.set()
    assert other.wait().text == "6 ranks"
    assert view.wait().text == "6 ranks"
    assert page_state().values == {"n": "6"}


def test_panels_that_share_a_value_agree_whatever_is_changed_at_once():
    views = [open_panel(PANEL) for _ in range(6)]
    for n in range(1, 12):
        for view in views:
            view.set({"n": 5 + (n + views.index(view)) % 7})
    for _ in views:  # one that is done may still be told of a change in another
        shown = [view.wait(20).text for view in views]
    assert set(shown) == {f"{page_state().get('n')} ranks"}


def test_panels_that_do_not_accept_each_others_values_come_to_rest():
    low = open_panel(replace(PANEL, controls=(Slider("n", low=4, high=6),)), state={"n": 4, "rank": None})
    high = open_panel(replace(PANEL, controls=(Slider("n", low=8, high=12),)), state={"n": 9, "rank": None})
    low.set({"n": 5})
    for _ in range(3):
        low.wait(20)
        high.wait(20)
    assert (low.state["n"] <= 6, high.state["n"] >= 8) == (True, True)


def test_a_bad_address_does_not_keep_the_page_from_opening():
    page_state().set({"n": "nonsense"})
    view = open_panel(PANEL)
    assert view.wait().text == "4 ranks"


def test_the_address_forgets_empty_values_and_tells_nobody_twice():
    told, state = [], PageState({"a": "1"})
    state.on_change(lambda values, _origin: told.append(values))
    state.set({"a": 1})
    state.set({"a": None, "b": (1, 2)})
    assert told == [{"b": "1,2"}]


def test_waiting_for_panels_raises_what_went_wrong(monkeypatch):
    monkeypatch.setenv("PERFKIT_WAIT_FOR_PANELS", "1")
    assert open_panel(PANEL, state={"n": 0, "rank": None}).status["state"] == "empty"
    page_state.cache_clear()
    with pytest.raises(ValueError, match="boom"):
        open_panel(PANEL, state={"n": 13, "rank": None})


def test_the_last_change_is_taken_back_and_made_again():
    panel = Panel(
        compute=lambda state: state["n"], view=lambda n: ({}, {}, str(n)), start={"n": 1}, controls=(Number("n", step=1),)
    )
    view = open_panel(panel)
    view.wait()
    assert not view.can_undo
    view.set({"n": 2})
    assert view.wait().text == "2"
    assert view.can_undo
    for told in ("1", "2"):
        view.on_message({"type": "undo"})
        assert view.wait().text == told


def test_a_refused_value_is_said_beside_its_field_and_the_answer_stays():
    panel = Panel(
        compute=lambda state: state["n"], view=lambda n: ({}, {}, str(n)), start={"n": 1}, controls=(Number("n", step=1),)
    )
    view = open_panel(panel)
    view.set({"n": "many"})
    assert view.wait().text == "1"
    assert view.controls[0]["note"] == "'many' is no finite number; not changed"
    assert view.controls[0]["value"] == 1


def test_a_button_does_nothing_with_the_value_before_a_field_that_is_refused():
    locked = []
    lock = Action(name="lock", label="Lock", run=lambda state: f"locked {locked.append(state['n']) or state['n']}")
    view = open_panel(replace(PANEL, actions=(lock,)))
    view.wait()
    for refused in ("", "7x", None):
        view.on_message({"type": "act", "name": "lock", "values": {"n": refused}})
        assert view.outcome["text"] == "Not done:"
        assert view.outcome["problems"]
    assert locked == []
    view.on_message({"type": "act", "name": "lock", "values": {"n": 6}})
    assert view.outcome["text"] == "locked 6"
