"""Steps without a browser: what follows what, the newest question alone, the six states, and what was chosen."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import altair as alt
import pandas as pd
import pytest

from perfkit.config.presets import config_beside, published_plan
from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.face import widgets
from perfkit.face.charts import theme
from perfkit.face.widgets import panel
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.entries import Button
from perfkit.face.widgets.page_state import page_state
from perfkit.face.widgets.status import NothingYet
from perfkit.face.widgets.steps import Step
from perfkit.face.widgets.worker import check, go_on

TWO_RANKS = data_folder() / "traces" / "torch_npu_2rank"
SIXTEEN = data_folder() / "traces" / "cluster_16card"


def bars(frame: pd.DataFrame) -> alt.Chart:
    chart = alt.Chart(alt.NamedData("rows")).mark_bar().encode(x="rank:O", y="amount:Q")
    return theme.with_rows(chart, {"rows": frame.to_dict("records")})


def table(num_ranks: int) -> pd.DataFrame:
    return pd.DataFrame({"rank": range(num_ranks), "amount": [10 * rank for rank in range(num_ranks)]})


def wait_until(is_so: Callable[[], bool], timeout_s: float = 30.0) -> None:
    end = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_step_shows_what_its_function_returns_in_any_order():
    @widgets.step(n=widgets.Slider(1, 9, default=3))
    def ranks_of_a_job(n):
        return "three of them", {"By rank": table(n), "Bars": bars(table(n))}, "a note"

    answer = ranks_of_a_job.wait()
    assert (answer.text, answer.notes, list(answer.tables), list(answer.charts)) == (
        "three of them",
        ("a note",),
        ["By rank"],
        ["Bars"],
    )
    assert ranks_of_a_job.view.title == "Ranks of a job"
    assert ranks_of_a_job.value[0] == "three of them"
    assert ranks_of_a_job(5)[1]["By rank"].shape == (5, 2), "called like the function it is the function"


def test_a_control_and_an_earlier_step_make_a_step_run_again():
    calls = []

    @widgets.step(n=widgets.Number(2, low=0, high=9, step=1))
    def first(n):
        return n * 10

    @widgets.step(amount=first, unit=widgets.Choice("ms", "%"))
    def second(amount, unit):
        calls.append((amount, unit))
        return f"{amount} {unit}"

    assert second.value == "20 ms"
    first.set(n=3)
    assert second.value == "30 ms", "the answer follows at once, not the one before"
    second.set(unit="%")
    assert second.value == "30 %"
    assert first.view.wait().text == "30"
    assert calls == [(20, "ms"), (30, "ms"), (30, "%")], "nothing is computed twice"


def moved(step: Step, n: int) -> None:
    """A slider, as a page tells it."""
    step.view.on_message({"type": "set", "seq": n, "values": {"n": n}})


def test_what_follows_a_slider_waits_until_its_visitor_rests(monkeypatch):
    calls = []

    @widgets.step(n=widgets.Slider(1, 9, default=2))
    def dragged(n):
        return n, bars(table(n))

    @widgets.step(amount=dragged)
    def following(amount):
        calls.append(amount[0])
        return str(amount[0])

    def shown(n: int) -> bool:
        return dragged.view.data["sentence"] == str(n)

    assert following.value == "2"
    monkeypatch.setattr(panel, "_NEXT_MOVE_S", 60.0)
    for n in (3, 4, 5):
        moved(dragged, n)
        wait_until(lambda n=n: shown(n))
        assert calls == [2], "the chart follows the slider, and nothing is in its way"
    monkeypatch.setattr(panel, "_NEXT_MOVE_S", 0.0)
    moved(dragged, 6)
    assert following.value == "6"
    assert calls == [2, 6]


def test_something_that_is_saved_is_followed_at_once_and_a_late_cancel_takes_nothing_away(monkeypatch):
    @widgets.step(n=widgets.Slider(1, 9, default=2))
    def followed(n):
        return n, bars(table(n))

    @widgets.step(amount=followed)
    def follower(amount):
        return str(amount[0])

    assert follower.value == "2"
    monkeypatch.setattr(panel, "_NEXT_MOVE_S", 60.0)
    followed.view.on_message({"type": "retry"})
    assert follower.value == "2", "nobody moves a slider"
    moved(followed, 3)
    wait_until(lambda: followed.view.data["sentence"] == "3")
    followed.view.on_message({"type": "cancel"})
    assert follower.value == "3"
    assert followed.view.status["state"] == "result"


def test_what_is_chosen_is_a_value_for_the_next_step_and_draws_nothing_anew():
    drawn = []

    @widgets.step(choose="rank")
    def ranks():
        drawn.append(1)
        return bars(table(4)), table(4)

    @widgets.step(row=ranks.selection)
    def one(row):
        return f"rank {row['rank']}: {row['amount']}"

    assert (ranks.chosen, one.value) == ({"rank": 0, "amount": 0}, "rank 0: 0"), "the first until something is clicked"
    ranks.wait()
    ranks.view.on_message({"type": "row", "table": "table", "row": 2})
    assert one.value == "rank 2: 20"
    ranks.wait()
    ranks.view.on_message({"type": "select", "chart": "chart", "datum": {"rank": "3"}})
    assert one.value == "rank 3: 30"
    assert (ranks.chosen, drawn) == ({"rank": 3, "amount": 30}, [1])
    page_state().set({"rank": "1"})
    ranks.wait()
    assert (ranks.chosen["rank"], one.value) == (1, "rank 1: 10"), "the address can choose, too"
    ranks.wait()
    assert ranks.view.details["tables"][0]["chosen"] == [1], "and the row is marked"


def test_an_exception_is_shown_in_its_step_and_the_others_go_on():
    @widgets.step(n=widgets.Number(1, step=1))
    def fragile(n):
        return 1 / (n - 1)

    @widgets.step(share=fragile)
    def after(share):
        return f"{share:.0%}"

    @widgets.step()
    def other():
        return "fine"

    with pytest.raises(ZeroDivisionError):
        fragile.wait()
    assert fragile.view.status["state"] == "error"
    assert "Fragile: ZeroDivisionError" in fragile.view.status["title"]
    assert "Traceback" in fragile.view.status["details"]
    with pytest.raises(NothingYet, match="needs “Fragile” above, which has failed"):
        after.wait()
    assert other.value == "fine"
    fragile.set(n=3)
    assert after.value == "50%"
    assert after.wait().text == "50%"


@pytest.mark.parametrize(
    ("error", "state"),
    [(NothingYet("none"), "empty"), (NotMeasuredError("a", how_to_collect="b"), "unmeasured"), (InputError("a", ["b"]), "error")],
)
def test_every_way_to_end_is_a_state(error, state):
    @widgets.step()
    def ends():
        raise error

    with pytest.raises(type(error)):
        ends.wait()
    assert ends.view.status["state"] == state


def test_only_the_newest_question_is_answered():
    started, go, computed = threading.Event(), threading.Event(), []

    @widgets.step(n=widgets.Number(1, step=1))
    def slow(n):
        started.set()
        go.wait(10)
        computed.append(n)
        return n

    @widgets.step(n=slow)
    def after(n):
        computed.append(f"after {n}")
        return n

    assert started.wait(10)
    for number in (2, 3, 4):
        slow.set(n=number)
    go.set()
    assert after.value == 4
    assert [item for item in computed if item in (2, 3)] == [], "what was overtaken is not computed"
    assert "after 1" not in computed, "and nothing follows it"


def test_a_step_whose_source_takes_long_is_greyed_meanwhile():
    go, late = threading.Event(), threading.Event()

    @widgets.step(n=widgets.Number(1, step=1))
    def slow(n):
        assert n == 1 or go.wait(10)
        return n

    @widgets.step(n=slow)
    def after(n):
        return n

    after.wait()
    after.view.observe(lambda change: late.set() if change["new"].get("again") else None, "status")
    slow.set(n=2)
    assert late.wait(5)
    go.set()
    assert after.value == 2
    assert after.wait().text == "2"
    assert after.view.status["state"] == "result"


def test_a_change_waits_until_its_options_can_be_made():
    there, started = threading.Event(), threading.Event()

    @widgets.step(num=widgets.Number(0, low=0, high=99, step=1))
    def ranks(num):
        started.set()
        assert there.wait(30)
        if not num:
            raise NothingYet("none")
        return list(range(num))

    @widgets.step(ranks=ranks, rank=widgets.Choice(lambda ranks: ranks), unit=widgets.Choice("ms", "%"))
    def one(ranks, rank, unit):
        return f"{rank} of {len(ranks)} in {unit}"

    assert started.wait(30)
    one.set(unit="%", rank=3)  # before there is a rank
    there.set()
    with pytest.raises(NothingYet):
        one.wait()
    ranks.set(num=4)
    assert one.wait().text == "3 of 4 in %"
    ranks.set(num=9)
    one.set(rank=8)  # of the newest ranks, which the thread has not seen yet
    assert one.wait().text == "8 of 9 in %"
    ranks.set(num=0)
    with pytest.raises(NothingYet):
        one.wait()
    one.set(rank=5, unit="ms")
    one.set(rank=2)
    ranks.set(num=4)
    assert one.wait().text == "2 of 4 in ms", "the newest one"


def test_a_cell_that_is_run_again_begins_with_what_was_changed_in_it_and_keeps_what_the_visitor_chose_else():
    open_run = widgets.choose_recording(TWO_RANKS)

    @widgets.step(run=open_run, digits=widgets.Slider(1, 9, default=3))
    def who(run, digits):
        return f"{run.name} {digits}"

    assert who.value == "torch_npu_2rank 3"
    again = widgets.choose_recording(SIXTEEN)  # its path was edited, and nothing else is run
    assert again.value.name == "cluster_16card"
    assert who.value == "cluster_16card 3", "the steps below follow, though their cells were not run again"
    again.choose(TWO_RANKS).view.wait()
    assert widgets.choose_recording(SIXTEEN).value.name == "torch_npu_2rank", "nothing was edited: the visitor's choice stays"
    for default, shown in ((3, 7), (5, 5)):
        if default == 3:
            who.set(digits=7)
            assert who.value.endswith("7")

        @widgets.step(run=open_run, digits=widgets.Slider(1, 9, default=default))
        def who(run, digits):
            return f"{run.name} {digits}"

        assert who.value == f"torch_npu_2rank {shown}"


def test_options_follow_what_the_step_follows():
    @widgets.step(run=widgets.choose_recording(SIXTEEN), rank=widgets.Choice(lambda run: run.ranks))
    def one(run, rank):
        return f"{run.name} {rank}"

    assert one.wait().text.endswith(" 0")
    assert [option["value"] for option in one.view.controls[0]["options"]] == list(range(16))


def test_a_press_that_is_overtaken_by_another_value_is_not_lost_and_counts_once():
    begun, written = threading.Event(), []
    size = widgets.Number(1, step=1)

    @widgets.step(n=size)
    def the_size(n):
        return f"{n}", n

    @widgets.step(size=the_size, button="Write it down")
    def write(size):
        begun.set()
        if size[1] == 1:
            threading.Event().wait(0.2)  # until the newer value is asked for
            check()
        written.append(size[1])
        return f"{size[1]} written"

    write.press()
    assert begun.wait(20)
    the_size.set(n=2)
    assert (write.wait().text, written) == ("2 written", [2])
    the_size.set(n=3)
    with pytest.raises(NothingYet):
        write.wait()
    assert written == [2]


def test_a_press_that_the_visitor_cancels_is_over():
    begun, asked = threading.Event(), []

    @widgets.step(n=widgets.Number(1, step=1), button="Search")
    def search(n):
        asked.append(n)
        begun.set()
        while n == 1:
            check()
            threading.Event().wait(0.01)

    search.press()
    assert begun.wait(20)
    search.view._background.cancel()
    assert search.view._background.wait(20)
    with pytest.raises(NothingYet):
        search.set(n=2).wait()
    assert asked == [1]


def test_a_press_is_begun_once_where_the_thread_starts_while_it_is_counted(monkeypatch):
    asked = []

    @widgets.step(n=widgets.Number(1, step=1), button="Search")
    def search(n):
        asked.append(n)
        for _ in range(30):
            check()
            threading.Event().wait(0.01)
        return "found"

    with pytest.raises(NothingYet):
        search.wait()
    begin = search.view._begin

    def slowly():
        search.view._background.ask()
        threading.Event().wait(0.1)
        begin()

    monkeypatch.setattr(search.view, "_begin", slowly)
    search.press()
    assert (search.wait().text, asked) == ("found", [1])


def test_what_a_press_was_refused_for_stands_until_a_value_is_another_one():
    asked = []

    @widgets.step(n=widgets.Number(1, step=1), button="Write it down")
    def write(n):
        asked.append(n)
        raise InputError("n", [f"{n} is too small"])

    for _ in range(2):
        with pytest.raises(InputError, match="1 is too small"):
            write.press().wait()
    write.view._follow()
    with pytest.raises(InputError, match="1 is too small"):
        write.wait()
    with pytest.raises(NothingYet):
        write.set(n=2).wait()
    assert asked == [1, 1]


def test_a_button_that_is_of_no_use_now_is_not_offered_and_comes_back():
    rounds, tried = [], []

    def nothing_open(size):
        return "" if rounds else f"No round of {size} is open."

    @widgets.step(size=widgets.Number(3, step=1), button="Decide", unless=nothing_open, follows_log=True)
    def decide(size):
        tried.append(size)
        if not rounds:
            raise InputError("decide", ["no round is open"])
        return f"decided: {rounds.pop()}"

    with pytest.raises(NothingYet, match="No round of 3 is open"):
        decide.wait()
    assert decide.view.status["waits"], "it has nothing to press"
    with pytest.raises(InputError, match="no round is open"):
        decide.press().wait()  # by a script, which is told
    rounds.append("keep")
    page_state().saved(origin=None)
    with pytest.raises(NothingYet, match="Press “Decide”"):
        decide.wait()
    assert not decide.view.status["waits"]
    assert decide.press().wait().text == "decided: keep"
    assert tried == [3, 3]


def test_what_says_that_a_button_is_of_no_use_takes_parameters_of_the_step():
    with pytest.raises(InputError, match="parameter 'device' has no value"):

        @widgets.step(button="Go", unless=lambda device: device)
        def never_made():
            return "never"


def test_a_button_makes_its_step_run_and_nothing_else_does():
    done = []

    @widgets.step(n=widgets.Number(1, step=1), button="Write it down")
    def written(n):
        done.append(n)
        return f"{n} written"

    with pytest.raises(NothingYet, match="Press “Write it down”"):
        written.wait()
    assert written.press().wait().text == "1 written"
    written.set(n=2)
    with pytest.raises(NothingYet):
        written.wait()
    written.view.on_message({"type": "act", "name": "run", "values": {"n": "x"}})
    with pytest.raises(NothingYet):
        written.wait()
    assert done == [1]


def test_one_control_of_two_steps_is_drawn_in_the_first_and_followed_by_both():
    unit = widgets.Choice("ms", "%")

    @widgets.step(unit=unit)
    def first(unit):
        return unit

    @widgets.step(unit=unit)
    def second(unit):
        return f"in {unit}"

    assert (second.value, len(second.view.panel.controls)) == ("in ms", 0)
    first.set(unit="%")
    assert (second.value, unit.value) == ("in %", "%")


def test_an_emptied_picker_is_said_by_the_steps_that_follow_it_and_filled_again():
    open_run = widgets.choose_recording(TWO_RANKS)

    @widgets.step(run=open_run)
    def name(run):
        return run.name

    assert name.value == open_run.value.name
    open_run.choose("")
    with pytest.raises(NothingYet, match="needs “Recording” above"):
        name.wait()
    assert open_run.view.status["action"]
    open_run.view.on_message({"type": "action"})
    assert name.value == "torch_npu_2rank"


def test_a_cell_that_is_run_again_takes_the_place_of_what_it_made():
    calls = []

    @widgets.step()
    def source():
        return 1

    for round_ in (1, 2):

        @widgets.step(n=source, tag=round_)
        def after(n, tag):
            calls.append(tag)
            return n

        assert after.value == 1
    source.view._remembered = None
    source.set()
    assert after.value == 1
    assert calls[:2] == [1, 2]
    assert 1 not in calls[2:], "the first one follows nothing any more"


def test_parameters_and_values_that_do_not_match_are_all_named():
    with pytest.raises(InputError, match="parameter 'unit' has no value") as error:

        @widgets.step(uint="ms", run=1)
        def wrong(run, unit):
            return run, unit

    assert "'uint' is no parameter; there are run, unit" in str(error.value)


def test_something_that_no_page_can_show_is_said_in_words():
    @widgets.step()
    def wrong():
        return object()

    with pytest.raises(InputError, match="object is neither chart nor frame nor sentence"):
        wrong.wait()


def test_a_configuration_and_a_log_are_plain_objects():
    plan = widgets.choose_configuration(data_folder() / "case13b" / "round5.yaml").value
    assert plan.num_devices == 16
    log = widgets.choose_log(data_folder() / "traces" / "logs" / "llama2_13b_8card_worker_0.log")
    assert log.value.has("log")
    log.choose(TWO_RANKS)
    with pytest.raises(NotMeasuredError, match="training log"):
        log.view.wait()


def test_a_default_that_follows_fills_its_control_until_it_gives_something_else():
    @widgets.step(size=widgets.Number(4, low=1, high=64, step=1, shared=True))
    def the_job(size):
        return size * 2

    @widgets.step(
        job=the_job,
        ranks=widgets.Slider(1, 128, default=lambda job: job),
        few=widgets.Toggle(visible=lambda ranks: ranks < 4),
    )
    def its_ranks(job, ranks, few):
        return f"{ranks} of {job}"

    def hidden() -> bool:
        return next(drawn for drawn in its_ranks.view.controls if drawn["name"] == "few")["hidden"]

    assert its_ranks.value == "8 of 8"
    assert hidden()
    its_ranks.set(ranks=3)
    assert its_ranks.value == "3 of 8"
    its_ranks.wait()
    assert not hidden()
    the_job.set(size=5)
    assert its_ranks.value == "10 of 10", "of another job"
    assert not its_ranks.view.can_undo, "the size before was one of another job"
    the_job.set(size=5)
    assert its_ranks.value == "10 of 10"
    its_ranks.set(ranks=7)
    the_job.set(size=5)
    assert its_ranks.value == "7 of 10", "what was set stays while the job is the same"


def test_a_plan_lies_beside_a_log_or_is_a_published_model_or_none(tmp_path):
    samples = data_folder() / "dryrun"
    open_log = widgets.choose_recording(samples / "qwen2.5_7b" / "as_trained", name="log")
    open_plan = widgets.choose_configuration(config_beside, recording=open_log.place, name="plan", optional=True)
    assert open_plan.value.num_devices == 4
    open_log.choose(samples / "guide.log")
    assert open_plan.value is None
    assert open_plan.view.wait().text == "No plan is chosen."
    open_plan.choose("llama2-13b")
    assert open_plan.value == published_plan("llama2-13b")
    open_log.choose(samples / "pp4")
    assert open_plan.value == published_plan("llama2-13b"), "nothing lies beside it either"


def test_an_address_that_was_there_first_is_followed_once_its_options_are_known():
    page_state().set({"rank": "3"})
    open_run = widgets.choose_recording(SIXTEEN)

    @widgets.step(run=open_run, rank=widgets.Choice(lambda run: run.ranks, shared=True))
    def one_rank(run, rank):
        return f"rank {rank}"

    assert one_rank.value == "rank 3"


def test_a_press_is_for_what_stands_on_the_page_and_not_for_a_run_that_had_begun():
    begun, go = threading.Event(), threading.Event()

    @widgets.step(size=widgets.Number(1, low=0, high=9, step=1))
    def the_size(size):
        return size

    written = []

    @widgets.step(size=the_size, label=widgets.Text("a"), button="Write")
    def what_is_written(size, label):
        written.append((size, label))
        return f"{size} {label}"

    settle = what_is_written.view._settle_choices

    def slow() -> None:
        settle()
        if not begun.is_set():
            begun.set()
            assert go.wait(30)

    with contextlib.suppress(NothingYet):
        what_is_written.wait()
    what_is_written.view._settle_choices = slow
    the_size.set(size=2)
    assert begun.wait(30)
    the_size.set(size=3)
    what_is_written.press()
    go.set()
    assert what_is_written.value == "3 a"
    assert written == [(3, "a")]


def test_several_rows_are_chosen_newest_first_and_given_back_by_a_second_click():
    asked = []

    @widgets.step(choose="plan", several=2)
    def plans(chosen):
        asked.append(chosen)
        return pd.DataFrame({"plan": ["dp 1, tp 2", "dp 2", "100 %"], "ms": [1, 2, 3]})

    @widgets.step(rows=plans.selection)
    def names(rows):
        return " and ".join(row["plan"] for row in rows) or "none"

    assert (plans.chosen, names.value) == ((), "none")
    for row, told in ((0, "dp 1, tp 2"), (1, "dp 2 and dp 1, tp 2"), (2, "100 % and dp 2"), (1, "100 %")):
        plans.wait()
        plans.view.on_message({"type": "row", "table": "table", "row": row})
        assert names.value == told
    assert plans.chosen == ({"plan": "100 %", "ms": 3},)
    plans.wait()
    page_state().set({"plan": "dp 1%2C tp 2,100 %25"})
    assert names.value == "dp 1, tp 2 and 100 %", "an address restores them, commas and all"
    assert asked[-1] == ("dp 1, tp 2", "100 %"), "the function is asked with what is chosen"
    plans.wait()
    assert (plans.view.details["tables"][0]["chosen"], plans.view.details["tables"][0]["several"]) == ([0, 2], 2)


def test_a_search_that_is_stopped_shows_what_it_has_and_one_that_is_overtaken_nothing():
    begun, go = threading.Event(), threading.Event()

    @widgets.step(n=widgets.Number(1, low=0, high=9, step=1), settled=True)
    def search(n):
        for done in range(1000):
            if n > 1 and not go_on("plans", done, 1000, "plans"):
                return f"{n} was stopped"
            begun.set()
            if n > 1:
                go.wait(0.01)
        return f"{n} was finished"

    assert search.value == "1 was finished"
    assert go_on("outside of a step", 1, 2)
    begun.clear()
    search.set(n=2)
    assert begun.wait(30)
    search.view.on_message({"type": "cancel"})
    assert search.value == "2 was stopped"
    begun.clear()
    search.set(n=3)
    assert begun.wait(30)
    search.set(n=1)
    assert search.wait().text == "1 was finished"


def test_several_values_of_an_address_are_those_of_a_choice_that_follows_something():
    page_state().set({"sizes.some": "1,4", "sizes.on": "False"})

    @widgets.step(
        base=4,
        some=widgets.Choice(lambda base: [1, base], default=lambda base: (1, 2, base), multiple=True),
        on=widgets.Toggle(lambda base: base > 1),
    )
    def sizes(base, some, on):
        return f"{some} {on}"

    assert sizes.value == "(1, 4) False"


def test_a_row_sets_the_control_that_its_column_names_and_the_control_is_filled_again_by_another_size():
    layers = widgets.Text(lambda stages: " ".join(["6"] * stages))

    @widgets.step(stages=widgets.Slider(values=[2, 3], default=2), layers=layers)
    def pipeline(stages, layers):
        return f"{stages}: {layers}"

    @widgets.step(drawn=pipeline, layers=layers, choose="layers")
    def moves(drawn, layers):
        return f"after {drawn}", pd.DataFrame({"layers": ["7 5", "5 7"]})

    assert moves.wait().text == "after 2: 6 6"
    moves.view.on_message({"type": "row", "table": "table", "row": 1})
    assert (pipeline.value, layers.value) == ("2: 5 7", "5 7")
    assert moves.wait().text == "after 2: 5 7"
    pipeline.set(stages=3)
    assert pipeline.value == "3: 6 6 6"


def test_a_figure_brings_parameters_of_its_chart():
    @widgets.step(height=widgets.Slider(100, 400))
    def tall(height):
        return {"Bars": Figure(chart=bars(table(2)), params={"height": height})}

    tall.set(height=300)
    assert tall.wait().charts["Bars"].title == "Bars"
    assert tall.view.data["params"] == {"Bars": {"height": 300}}


def test_each_button_of_a_step_does_something_of_its_own_and_the_step_runs_again():
    kept: list[str] = []
    names = widgets.Text("", label="Your name")

    def keep(name: str, amount: float) -> str:
        if amount < 0:
            raise InputError("amount", ["is below 0"])
        kept.append(f"{name} {amount:g}")
        return f"Kept {amount:g}."

    def forget(**everything: object) -> str:
        kept.clear()
        return f"Forgot, given {sorted(everything)}."

    buttons = (
        Button(label="Keep", run=keep, help="writes it down", visible=lambda name: name != ""),
        Button(label="Forget all", run=forget),
    )

    @widgets.step(name=names)
    def who_is_here(name):
        return name or "nobody"

    @widgets.step(name=names, amount=widgets.Number(1), buttons=buttons)
    def what_is_kept(name, amount):
        return [f"{len(kept)} are kept.", *kept]

    view = what_is_kept.view
    assert what_is_kept.wait().text == "0 are kept."
    assert [action["label"] for action in view.actions] == ["Forget all"]
    what_is_kept.press("Keep")
    assert (kept, view.outcome["problems"]) == ([], ["offers no action 'keep' now"])
    who_is_here.set(name="Ada")
    what_is_kept.wait()
    assert [action["label"] for action in view.actions] == ["Keep", "Forget all"]
    view.on_message({"type": "act", "name": "keep", "values": {"amount": 3}})
    assert (view.outcome["text"], what_is_kept.wait().notes) == ("Kept 3.", ("Ada 3",))
    what_is_kept.set(amount=-1).press("Keep")
    assert (view.outcome["problems"], what_is_kept.wait().text) == (["is below 0"], "1 are kept.")
    what_is_kept.press("Forget all")
    assert view.outcome["text"] == "Forgot, given ['amount', 'name']."
    assert what_is_kept.wait().text == "0 are kept."


def test_a_button_uses_the_name_that_was_typed_just_before_in_a_step_above():
    kept = []
    names = widgets.Text("")

    @widgets.step(name=names)
    def above(name):
        return name or "nobody"

    @widgets.step(name=names, buttons=(Button(label="Keep", run=lambda name: kept.append(name) or "kept"),))
    def below(name):
        return name or "nobody"

    below.wait()
    for name in ("Ada", "Bo", "Cy"):
        above.set(name=name)
        below.press("Keep")
    assert kept == ["Ada", "Bo", "Cy"]


def test_a_button_acts_on_what_was_set_while_what_its_options_are_made_of_is_still_read():
    begin, kept = threading.Event(), []

    @widgets.step(n=widgets.Number(2, step=1))
    def numbers(n):
        assert n == 2 or begin.wait(30)
        return f"{n} numbers", list(range(int(n)))

    def keep(one):
        kept.append(one)
        return "kept"

    @widgets.step(of=numbers, one=widgets.Choice(lambda of: of[1]), buttons=(Button(label="Keep", run=keep),))
    def below(of, one):
        return f"{one} of {len(of[1])}"

    assert below.wait().text == "0 of 2"
    numbers.set(n=5)
    threading.Timer(2.5, begin.set).start()
    below.set(one=4).press("Keep")
    assert (kept, below.wait().text) == ([4], "4 of 5")


def test_a_step_that_others_change_is_read_again_when_the_page_asks():
    counted = iter(range(9))

    @widgets.step(refresh_s=5)
    def how_many():
        return f"{next(counted)} are here"

    assert (how_many.wait().text, how_many.view.refresh_s) == ("0 are here", 5)
    how_many.view.on_message({"type": "retry"})
    assert how_many.wait().text == "1 are here"


def test_a_search_that_a_newer_question_ended_early_is_no_answer_to_it():
    begun, asked = threading.Event(), []

    @widgets.step(n=widgets.Number(3, step=1), button="Find")
    def the_best(n):
        asked.append(n)
        begun.set()
        while len(asked) == 1 and go_on("searching", 0, 1):
            time.sleep(0.01)
        return ("so far" if len(asked) == 1 else "proven"), n

    the_best.press()
    assert begun.wait(30)
    the_best.set(n=3)
    assert (the_best.wait().text, asked) == ("proven", [3, 3])


def test_what_the_table_of_a_chart_has_more_than_is_drawn_comes_after_the_drawing():
    @widgets.step(n=widgets.Slider(1, 9, default=2))
    def first_ranks(n):
        return "the first", {"Bars": Figure(chart=bars(table(n)), rows=lambda: {"rank": list(range(9))}), "Few": bars(table(1))}

    first_ranks.wait()
    view = first_ranks.view
    assert view.data["datasets"]["Bars"]["rows"]["rank"] == [0, 1]
    assert view.details["rows"] == {"Bars": {"rank": list(range(9))}}
