"""Instructor: how a class is getting on, what most get wrong, and the switches that all pages follow."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from perfkit.core import settings
from perfkit.core.errors import InputError
from perfkit.core.units import NS_PER_S, format_entry, format_ratio
from perfkit.face.charts.classroom import progress_map
from perfkit.face.panels.class_game import BLOCK as GAME
from perfkit.face.widgets import class_ as classroom
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.control import Choice, Number, Text, Toggle
from perfkit.face.widgets.panel import Action, Answer, Code, Panel
from perfkit.face.widgets.status import NothingYet
from perfkit.face.widgets.table import Table
from perfkit.teach import Store, exercises, groups, question, report
from perfkit.teach.lesson import Block, blocks

REFRESH_S = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """The token, what the switches act on, and whose answers are looked at."""

    token: str = ""
    message: str = ""
    block: str = ""
    exercise: str = "E01"
    student: str = ""
    anonymous: bool = False
    board: bool = False
    minutes: float = 10


@dataclass(frozen=True, slots=True)
class Result:
    """The rows of the class, who is in which team, and what is switched."""

    state: State
    rows: list[dict[str, Any]]
    switches: dict[str, Any]
    present: int
    teams: dict[str, str]


def compute(state: State) -> Result:
    """Read the class; raises NothingYet without a class or the right token."""
    seed = settings.class_seed()
    if seed is None:
        raise NothingYet("No class is held here. Start one with: perfkit serve FOLDER --class")
    if not state.token.strip():
        raise NothingYet("For instructors: type the token that perfkit serve --class was given or has printed.")
    store = _admitted(state)
    switches = {name: store.control(name) for name in ("message", "closed", "shown", "frozen", "ended")}
    return Result(state, store.rows(seed), switches, classroom.num_present(store), store.teams())


def _admitted(state: State) -> Store:
    if settings.class_seed() is None or not classroom.is_instructor(state.token):
        raise InputError("token", ["is not the one that this class was started with"])
    return classroom.the_store()


def view(result: Result) -> Answer:
    """The heat map, the tables, and the CSV; on the projector only the teams and the notes of the block."""
    rows = result.rows
    shown = {"teams": Table(frame=pd.DataFrame(report.by_team(rows, result.teams)), title="Teams")} if result.teams else {}
    notes = _lesson_table(result.state.block)
    if result.state.board:
        return Answer({}, shown | notes, _sentence(result), _notes(result))
    charts = {}
    if rows:
        picture = progress_map(report.cells(rows))
        title = "Who is where (numbers are wrong tries)"
        charts["cells"] = Figure(chart=picture, title=title, sources=["class.sqlite, table attempt"], wide=True)
    typed = [_typed(row) for row in rows if row["exercise"] == result.state.exercise and _of(row, result.state.student)]
    found: dict[str, tuple[list[dict[str, Any]], str]] = {
        "mistakes": (report.mistakes(rows), "Most frequent wrong answers: read them out"),
        "stuck": (report.stuck(rows), "Stuck: three wrong tries or six minutes"),
        "exercises": (report.by_exercise(rows), "By exercise"),
        "students": (report.by_student(rows), "By student"),
        "typed": (typed, f"What was typed at {result.state.exercise}"),
    }
    tables = {name: Table(frame=pd.DataFrame(table), title=title) for name, (table, title) in found.items() if table}
    tables = shown | tables | notes
    code = (Code(report.results_csv(rows, anonymous=result.state.anonymous), "csv", "results.csv: all rows"),) if rows else ()
    return Answer(charts, tables, _sentence(result), _notes(result), code)


def _lesson_table(title: str) -> dict[str, Table]:
    block = _block(title)
    told = [("say", line) for line in block.say] + ([("ask", block.ask)] if block.ask else [])
    told += [("trap", line) for line in block.traps]
    told += [(label, ", ".join(names)) for label, names in _sheets(block) if names]
    rows = [{"to": what, "notes": line} for what, line in told]
    heading = f"Notes: {block.title}, minute {block.from_min} to {block.to_min}"
    return {"notes": Table(frame=pd.DataFrame(rows), title=heading)}


def _block(title: str) -> Block:
    return next(block for block in blocks() if block.title == title)


def _sheets(block: Block) -> list[tuple[str, Sequence[str]]]:
    return [("exercises", block.exercises), ("for the fast", block.spare), ("pages", block.pages)]


def _of(row: dict[str, Any], student: str) -> bool:
    return not student.strip() or row["student"] == student.strip()


def _typed(row: dict[str, Any]) -> dict[str, Any]:
    kept = {name: row[name] for name in ("student", "answer", "matched_wrong", "hints", "seconds", "points")}
    return {**kept, "correct": "yes" if row["correct"] else "no"}


def _sentence(result: Result) -> str:
    done = report.by_exercise(result.rows)
    if not done:
        return f"{result.present} students are here; nobody has answered yet."
    good = sum(row["solved_ratio"] >= report.GOAL_SHARE for row in done)
    stuck = len({row["student"] for row in report.stuck(result.rows)})
    return (
        f"{result.present} students are here. {good} of {len(done)} exercises that were begun are solved by "
        f"{format_ratio(report.GOAL_SHARE, 2)} or more of those who tried; {stuck} students are stuck."
    )


def _notes(result: Result) -> tuple[str, ...]:
    switched = result.switches
    notes = [f"On every page: {switched['message']}"] if switched["message"] else []
    notes += [f"Closed blocks: {', '.join(switched['closed'])}"] if switched["closed"] else []
    notes += [f"Answers shown to all: {', '.join(switched['shown'])}"] if switched["shown"] else []
    notes += ["All pages are paused."] if switched["frozen"] else []
    notes += ["The class has ended: no answers are taken."] if switched["ended"] else []
    return tuple(notes)


def say(state: State) -> str:
    """Put a line on every page."""
    _admitted(state).set_control("message", state.message.strip())
    return "Said." if state.message.strip() else "The line is taken away."


def start_timer(state: State) -> str:
    """Count the minutes down on every page; 0 takes the clock away."""
    store = _admitted(state)
    store.set_control("timer_ends_ns", time.time_ns() + round(state.minutes * 60 * NS_PER_S) if state.minutes else 0)
    return f"{format_entry(state.minutes)} min run on every page." if state.minutes else "The clock is taken away."


def toggle_block(state: State) -> str:
    """Open the exercises of a block (or the game) that are closed, or close them."""
    store = _admitted(state)
    group = _block(state.block).group or state.block
    if group not in {group.title for group in groups()} | {GAME}:
        raise InputError("block", [f"{state.block} has no exercises of its own to close"])
    closed = set(store.control("closed", []))
    store.set_control("closed", sorted(closed ^ {group}))
    return f"{group} is {'open' if group in closed else 'closed'} now."


def show_answer(state: State) -> str:
    """Show the answer of an exercise to all, or hide it again."""
    store = _admitted(state)
    shown = set(store.control("shown", []))
    store.set_control("shown", sorted(shown ^ {state.exercise}))
    return f"The answer of {state.exercise} is {'hidden again' if state.exercise in shown else 'shown to all'}."


def reset(state: State) -> str:
    """Let one student begin an exercise anew."""
    store, seed = _admitted(state), settings.class_seed()
    if not state.student.strip() or seed is None:
        raise InputError("reset", ["name the student first"])
    store.reset(question(state.exercise, seed, state.student.strip()))
    return f"{state.student.strip()} can begin {state.exercise} anew; earlier rows are kept."


def _flip(name: str, on: str, off: str) -> Callable[[State], str]:
    def run(state: State) -> str:
        store = _admitted(state)
        now = not store.control(name, False)
        store.set_control(name, now)
        return on if now else off

    return run


def _blocks(_state: State) -> list[str]:
    return [block.title for block in blocks()]


def _inside(state: State) -> bool:
    return settings.class_seed() is not None and classroom.is_instructor(state.token)


PANEL = Panel(
    title="Instructor",
    start=lambda: State(block=blocks()[0].title),
    compute=compute,
    view=view,
    refresh_s=REFRESH_S,
    controls=(
        Text(path="token", label="Token", placeholder="of perfkit serve --class", max_length=200),
        Text(path="message", label="Line for every page", max_length=200, visible=_inside),
        Number(path="minutes", low=0, high=240, label="Timer", unit="min", visible=_inside),
        Choice(path="block", options=_blocks, label="Block", visible=_inside),
        Choice(path="exercise", options=lambda _state: list(exercises()), label="Exercise", visible=_inside),
        Text(path="student", label="Student", placeholder="all", max_length=80, visible=_inside),
        Toggle(path="anonymous", label="CSV without names", visible=_inside),
        Toggle(path="board", label="Projector: teams and notes only", visible=_inside),
    ),
    actions=(
        Action(name="refresh", label="Refresh", run=lambda _state: "Read anew.", visible=_inside),
        Action(name="say", label="Say", run=say, visible=_inside),
        Action(name="timer", label="Start timer", run=start_timer, visible=_inside),
        Action(name="block", label="Open or close block", run=toggle_block, visible=_inside),
        Action(name="show", label="Show answer to all", run=show_answer, visible=_inside),
        Action(name="freeze", label="Pause", run=_flip("frozen", "All pages are paused.", "All pages go on."), visible=_inside),
        Action(name="reset", label="Reset student's exercise", run=reset, visible=_inside),
        Action(name="end", label="End class", run=_flip("ended", "The class has ended.", "The class goes on."), visible=_inside),
    ),
)
