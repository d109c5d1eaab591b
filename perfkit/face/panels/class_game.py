"""Fault game: a run that was fine last week, a budget of looks, and what the student makes of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from perfkit.core import settings
from perfkit.core.errors import InputError
from perfkit.core.units import format_entry
from perfkit.face.widgets import class_ as classroom
from perfkit.face.widgets.control import Choice, Text
from perfkit.face.widgets.panel import Action, Answer, Panel
from perfkit.face.widgets.table import Table
from perfkit.teach import game, rounds, student_name
from perfkit.teach.report import by_team
from perfkit.teach.score import Guess, score
from perfkit.teach.views import look

BLOCK = "Fault game"
UNCHOSEN = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """What is said of one fault, as typed."""

    kind: str = UNCHOSEN
    place: str = ""
    amount: str = ""
    action: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """Who plays for which team at which level, where to look next, and the answer as it is typed."""

    student: str = ""
    team: str = ""
    level: str = "1"
    view: str = "steps"
    forms: tuple[Form, ...] = (Form(), Form(), Form())


@dataclass(frozen=True, slots=True)
class Result:
    """A round, its runs, and the one that was answered before."""

    session: classroom.Session
    round: rounds.Round
    case: game.Case
    before: rounds.Round | None
    team: dict[str, Any] | None


def compute(state: State) -> Result:
    """Simulate the round; raises NothingYet without a name."""
    here = classroom.session(state.student)
    now = rounds.current(here.store, here.class_seed, here.student, state.level)
    classroom.opened(here.student, game.name_of(now.level, now.number))
    before = rounds.current(here.store, here.class_seed, here.student, state.level, now.number - 1) if now.number > 1 else None
    return Result(here, now, rounds.the_case(here.class_seed, here.student, now), before, _team(here))


def _team(here: classroom.Session) -> dict[str, Any] | None:
    teams = here.store.teams()
    mine = teams.get(here.student)
    return next((row for row in by_team(here.store.rows(here.class_seed), teams) if row["team"] == mine), None) if mine else None


def view(result: Result) -> Answer:
    """All views that were opened, and how the last answer was judged."""
    now, views = result.round, game.pack()["views"]
    tables: dict[str, Any] = {}
    for name in now.looked:
        frame = look(name, result.case.today, result.case.last_week)
        tables[name] = Table(frame=frame, title=f"{views[name]['title']}: today and last week")
    notes = ["Ranks 0 to 3 are stage 0, ranks 4 to 7 stage 1. Last week's run is the same job without faults."]
    if result.team:
        notes.append(
            f"Team {result.team['team']}, {result.team['members']} members: {format_entry(result.team['points'])} points in all."
        )
    if result.before is not None:
        tables["judged"] = Table(frame=_judged(result), title=f"Round {result.before.number}: what was true")
        points = format_entry(result.before.points or 0)
        notes += [f"Round {result.before.number}: {points} of 100 points.", *_said_by_perfkit(result)]
    level = game.pack()["levels"][now.level]
    sentence = (
        f"{level['title']}, round {now.number}: the run was fine last week. {now.left_min} of {level['budget_min']} min are left. "
        f"What is wrong, where, how many ms a step does it cost, and what to do?"
    )
    return Answer({}, tables, sentence, (*notes, *classroom.notices(result.session.store)))


def _last(result: Result) -> tuple[rounds.Round, game.Case]:
    assert result.before is not None
    here = result.session
    return result.before, rounds.the_case(here.class_seed, here.student, result.before)


def _judged(result: Result) -> pd.DataFrame:
    before, case = _last(result)
    _, parts = score(before.guesses, case.truths)
    true = {truth.kind: truth for truth in case.truths}
    rows = []
    for part in parts:
        truth = true.get(part.kind)
        where = ", ".join(map(str, sorted(truth.ranks))) if truth and truth.ranks else "everywhere" if truth else ""
        cost = None if truth is None else round(truth.cost_ms, 1)
        row = {"fault": game.pack()["kinds"][part.kind]["title"], "ranks": where, "ms a step": cost}
        rows.append({**row, "what to do": truth.action if truth else "", "points": part.points, "why": part.text})
    return pd.DataFrame(rows)


def _said_by_perfkit(result: Result) -> list[str]:
    _, case = _last(result)
    said = game.findings(case.today)
    return [f"perfkit diagnose said: {'; '.join(said) if said else 'nothing: the run looks healthy'}."]


def join(state: State) -> str:
    """Join a team, leave it with an empty name."""
    here = classroom.session(state.student)
    here.store.join(here.student, student_name(state.team) if state.team.strip() else "")
    return f"You play for {state.team.strip()}." if state.team.strip() else "You play for yourself."


def take_look(state: State) -> str:
    """Look at one more view."""
    here, now = _playing(state)
    left = rounds.look_at(here.store, here.class_seed, here.student, now, state.view)
    return f"{game.pack()['views'][state.view]['title']} is open below; {left} min are left."


def submit(state: State) -> str:
    """Answer the round."""
    here, now = _playing(state)
    count = game.pack()["levels"][state.level]["faults"]
    guesses = [_guess(form, number) for number, form in enumerate(state.forms[:count], start=1)]
    seconds = classroom.spent_s(here.student, game.name_of(now.level, now.number))
    points = rounds.answer(here.store, here.class_seed, here.student, now, guesses, seconds=seconds)
    return f"{format_entry(points)} of 100 points. What was true stands below; the next round is open."


def _playing(state: State) -> tuple[classroom.Session, rounds.Round]:
    here = classroom.session(state.student)
    classroom.check_open(here.store, BLOCK)
    return here, rounds.current(here.store, here.class_seed, here.student, state.level)


def _guess(form: Form, number: int) -> Guess:
    text = form.amount.strip().lower().removesuffix("ms").replace(",", "")
    try:
        amount = float(text) if text else 0.0
    except ValueError:
        amount = math.nan
    if not math.isfinite(amount):
        raise InputError(f"fault {number}", [f"{form.amount[:40]!r} is no number of ms a step; type for example 55"])
    return Guess(form.kind, form.place, amount, form.action)


def _named(state: State) -> bool:
    return bool(state.student.strip())


def _in_class(state: State) -> bool:
    return _named(state) and settings.class_seed() is not None


def _levels(_state: State) -> list[tuple[str, str]]:
    return [(f"{name}: {level['title']}", name) for name, level in game.pack()["levels"].items()]


def _views(_state: State) -> list[tuple[str, str]]:
    return [(f"{view['title']} ({view['cost_min']} min)", name) for name, view in game.pack()["views"].items()]


def _kinds(_state: State) -> list[tuple[str, str]]:
    return [("choose", UNCHOSEN), *((kind["title"], name) for name, kind in game.pack()["kinds"].items())]


def _asked(place: int) -> Callable[[State], bool]:
    return lambda state: _named(state) and place < game.pack()["levels"][state.level]["faults"]


def _chosen(place: int) -> Callable[[State], bool]:
    return lambda state: _asked(place)(state) and state.forms[place].kind != UNCHOSEN


def _actions(place: int) -> Callable[[State], list[tuple[str, str]]]:
    def options(state: State) -> list[tuple[str, str]]:
        kind = state.forms[place].kind
        return [("choose", ""), *((action, action) for action in (game.actions_for(kind) if kind else ()))]

    return options


def _form(place: int) -> tuple[Choice | Text, ...]:
    path, name = f"forms.{place}", f"Fault {place + 1}"
    return (
        Choice(path=f"{path}.kind", options=_kinds, label=name, visible=_asked(place)),
        Text(path=f"{path}.place", label="Ranks", placeholder="3, 4-5, stage 1, or empty", max_length=60, visible=_chosen(place)),
        Text(path=f"{path}.amount", label="Costs", unit="ms a step", max_length=40, visible=_chosen(place)),
        Choice(path=f"{path}.action", options=_actions(place), label="What to do", visible=_chosen(place)),
    )


PANEL = Panel(
    title="Fault game",
    start=State,
    compute=compute,
    view=view,
    shared=("student",),
    controls=(
        Text(path="student", label="Your name", placeholder="for example s01", max_length=80),
        Text(path="team", label="Your team", placeholder="for example red", max_length=40, visible=_in_class),
        Choice(path="level", options=_levels, label="Level", visible=_named),
        Choice(path="view", options=_views, label="Look at", visible=_named),
        *_form(0),
        *_form(1),
        *_form(2),
    ),
    actions=(
        Action(name="look", label="Look", run=take_look, help="costs the minutes that stand beside the view", visible=_named),
        Action(name="answer", label="Answer", run=submit, help="closes the round and shows what was true", visible=_named),
        Action(name="join", label="Join team", run=join, help="its points are on the board", visible=_in_class),
    ),
)
