"""Capstone: walk the six rounds of Llama2-13B, choosing the change before its evidence is shown."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.units import format_change, format_entry, significant
from perfkit.face.widgets import class_ as classroom
from perfkit.face.widgets.control import Choice, Text
from perfkit.face.widgets.panel import Action, Answer, Panel
from perfkit.face.widgets.table import Table
from perfkit.teach import capstone

BLOCK = "Capstone"


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """Who, and the choice as it is made."""

    student: str = ""
    change: str = ""
    predicted: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """What was chosen so far."""

    session: classroom.Session
    choices: tuple[capstone.Choice, ...]


def compute(state: State) -> Result:
    """Read the choices; raises NothingYet without a name."""
    here = classroom.session(state.student)
    chosen = capstone.choices(here.store, here.class_seed, here.student)
    classroom.opened(here.student, f"C{len(chosen)}")
    return Result(here, chosen)


def view(result: Result) -> Answer:
    """The situation, and the evidence of all rounds that were chosen."""
    done, rounds = result.choices, capstone.rounds()
    tables = {}
    if done:
        rows = [_evidence(one, chosen) for one, chosen in zip(rounds, done, strict=False)]
        tables["evidence"] = Table(frame=pd.DataFrame(rows), title="What was done, and what it brought (tokens/s/device)")
    notes = []
    if done:
        one, chosen = rounds[len(done) - 1], done[-1]
        why = "That is what was done." if chosen.points else one.instead.get(chosen.change, "")
        notes = [f"You chose: {chosen.change}. {why}", f"Why it was tried: {one.hypothesis}", f"Learned: {one.lesson}"]
    notes.append(f"{format_entry(sum(chosen.points for chosen in done))} of {capstone.POINTS * len(rounds)} points.")
    if len(done) == len(rounds):
        first, last = rounds[0].reported, rounds[-1].reported
        became = f"{format_entry(first)} became {format_entry(last)} tokens/s/device"
        sentence = f"All six rounds are done: {became}, {significant(last / first)} times."
    else:
        sentence = f"Round {len(done)}: {rounds[len(done)].situation} What do you change, and what do you expect?"
    return Answer({}, tables, sentence, (*notes, *classroom.notices(result.session.store)))


def _evidence(one: capstone.Round, chosen: capstone.Choice) -> dict[str, object]:
    off = None if chosen.predicted is None else format_change(chosen.predicted / one.reported - 1)
    row = {"round": one.number, "what was changed": one.change, "reported": one.reported, "you expected": chosen.predicted}
    return {**row, "off by": off, "points": chosen.points}


def choose(state: State) -> str:
    """Take the change; then its evidence is shown."""
    here = classroom.session(state.student)
    classroom.check_open(here.store, BLOCK)
    number = len(capstone.choices(here.store, here.class_seed, here.student))
    seconds = classroom.spent_s(here.student, f"C{number}")
    chosen = capstone.choose(
        here.store,
        here.class_seed,
        here.student,
        number=number,
        change=state.change,
        predicted=_number(state.predicted),
        seconds=seconds,
    )
    return "That is what was done." if chosen.points else "Something else was done; see why below."


def _number(text: str) -> float | None:
    plain = text.strip().replace(",", "")
    if not plain:
        return None
    try:
        value = float(plain)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise InputError("expected", [f"{text[:40]!r} is no number of tokens/s/device; type for example 2100, or nothing"])
    return value


def _options(state: State) -> list[tuple[str, str]]:
    if not state.student.strip():
        return [("choose", "")]
    here = classroom.session(state.student)
    number = len(capstone.choices(here.store, here.class_seed, here.student))
    offered = capstone.options(number, here.class_seed, here.student) if number < len(capstone.rounds()) else ()
    return [("choose", ""), *((change, change) for change in offered)]


def _named(state: State) -> bool:
    return bool(state.student.strip())


PANEL = Panel(
    title="Capstone: Llama2-13B in six rounds",
    start=State,
    compute=compute,
    view=view,
    shared=("student",),
    controls=(
        Text(path="student", label="Your name", placeholder="for example s01", max_length=80),
        Choice(path="change", options=_options, label="Change", visible=_named),
        Text(path="predicted", label="You expect", unit="tokens/s/device", max_length=40, visible=_named),
    ),
    actions=(Action(name="choose", label="Choose", run=choose, help="then what was done is shown", visible=_named),),
)
