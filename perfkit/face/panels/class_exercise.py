"""Exercise: one question with numbers of one's own, checked at once; hints, the answer, and how far one has come."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from perfkit.core.texts import t
from perfkit.core.units import format_entry
from perfkit.face.widgets import class_ as classroom
from perfkit.face.widgets.control import Choice, Text
from perfkit.face.widgets.panel import Action, Answer, Panel
from perfkit.face.widgets.table import Table
from perfkit.teach import Exercise, Question, Standing, exercises, mark, question, standing

FIRST = "E01"
OFFER_AFTER = 3
LETTERS = (
    "Letters: h hidden, f ffn hidden, L layers, v vocabulary, q heads a key-value head, N parameters, "
    "layer = FLOP per token of one layer."
)
STATES = {"solved": "solved", "revealed": "answer shown", "trying": "trying", "new": ""}


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """Who, which exercise, and what stands in each answer box."""

    student: str = ""
    exercise: str = FIRST
    answers: Mapping[str, str] = field(default_factory=lambda: dict.fromkeys(exercises(), ""))


@dataclass(frozen=True, slots=True)
class Result:
    """The question, where the student is with it, and where with all others."""

    session: classroom.Session
    question: Question
    standing: Standing
    all: Mapping[str, Standing]
    shown_to_all: bool


def compute(state: State) -> Result:
    """Read what the student has done; raises NothingYet without a name."""
    here = classroom.session(state.student)
    asked = question(state.exercise, here.class_seed, here.student)
    classroom.opened(here.student, state.exercise)
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in exercises()}
    for row in here.store.rows(here.class_seed, here.student):
        rows.setdefault(row["exercise"], []).append(row)
    everything = {name: standing(rows[name]) for name in exercises()}
    shown = state.exercise in here.store.control("shown", [])
    return Result(here, asked, everything[state.exercise], everything, shown)


def view(result: Result) -> Answer:
    """The question as the sentence, its inputs and the progress as tables."""
    exercise, now = result.question.exercise, result.standing
    inputs = [{"input": name, "value": written(value)} for name, value in result.question.params.items()]
    tables = {
        "inputs": Table(frame=pd.DataFrame(inputs), title=f"Your numbers ({result.session.student})"),
        "progress": Table(
            frame=pd.DataFrame([_progress(exercises()[name], found) for name, found in result.all.items()]),
            title="All exercises (choose a row to open it)",
            selectable=True,
        ),
    }
    unit = t("a plain ratio") if exercise.unit == "1" else exercise.unit
    asked = t("{0}, {1} ({2} points): {3} Answer in {4}.")
    sentence = asked.format(exercise.name, t(exercise.title), exercise.points, t(exercise.text), unit)
    return Answer({}, tables, sentence, (*_notes(result, now), *classroom.notices(result.session.store)))


def _notes(result: Result, now: Standing) -> list[str]:
    exercise = result.question.exercise
    notes = []
    if now.last:
        notes.append(t("Your last answer, {0}: {1}").format(now.last[:40], t(mark(result.question, now.last).text)))
    if now.solved:
        notes.append(t("Solved: {0} points.").format(format_entry(now.points)))
    notes += [t("Hint {0}: {1}").format(number, t(text)) for number, text in enumerate(exercise.hints[: now.hints], start=1)]
    if now.hints >= 2:
        notes.append(t(LETTERS))
    if now.tries >= OFFER_AFTER and not (now.solved or now.hints or now.revealed):
        notes.append(t("{0} tries so far: a hint costs a quarter of the points and says where to begin.").format(now.tries))
    if now.revealed or result.shown_to_all:
        notes.append(t("The answer: {0}").format(solution(result.question)))
    total = sum(found.points for found in result.all.values())
    solved = sum(found.solved and not found.revealed for found in result.all.values())
    able = t("Page {0} can compute this; use it. So far {1} solved, {2} points.")
    notes.append(able.format(exercise.page, solved, format_entry(total)))
    return notes


def solution(asked: Question) -> str:
    """Formula, the student's numbers put in, and the answer."""
    formula = asked.exercise.formula
    filled = re.sub(r"[A-Za-z_]\w*", lambda found: written(asked.params.get(found[0], found[0])), formula)
    steps = formula if filled == formula else f"{formula} = {filled}"
    unit = "" if asked.exercise.unit == "1" else f" {asked.exercise.unit}"
    return t("{0}, from {1}.").format(f"{format_entry(asked.answer)}{unit}", steps)


def written(value: Any) -> str:
    """An input as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return format_entry(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(f"({written(item)})" if isinstance(item, tuple) else written(item) for item in value)
    return str(value)


def _progress(exercise: Exercise, now: Standing) -> dict[str, Any]:
    known = "revealed" if now.revealed else "trying" if now.tries or now.hints else "new"
    row = {"exercise": exercise.name, "title": t(exercise.title), "block": t(exercise.group), "level": exercise.level}
    return {
        **row,
        "state": STATES["solved" if now.solved else known],
        "wrong tries": now.tries,
        "hints": now.hints,
        "points": now.points,
    }


def check(state: State) -> str:
    """Mark and keep the answer; what cannot be read costs nothing."""
    here, asked = _asked(state)
    text = state.answers[state.exercise]
    found = here.store.answer(asked, text, seconds=classroom.spent_s(here.student, state.exercise))
    if found.outcome != "right":
        return t(found.text)
    return t("Right. {0} points.").format(format_entry(here.store.standing(asked).points))


def hint(state: State) -> str:
    """Take the next hint."""
    here, asked = _asked(state)
    taken = here.store.hint(asked, seconds=classroom.spent_s(here.student, state.exercise))
    shown = max(taken, 1)
    return t("Hint {0}: {1}").format(shown, t(asked.exercise.hints[shown - 1]))


def reveal(state: State) -> str:
    """Show the answer; the exercise is then worth nothing."""
    here, asked = _asked(state)
    here.store.reveal(asked, seconds=classroom.spent_s(here.student, state.exercise))
    return t("The answer: {0}").format(solution(asked))


def _asked(state: State) -> tuple[classroom.Session, Question]:
    here = classroom.session(state.student)
    asked = question(state.exercise, here.class_seed, here.student)
    classroom.check_open(here.store, asked.exercise.group)
    return here, asked


def pick(state: State, _table: str, row: dict[str, Any]) -> State:
    """The exercise of the chosen row."""
    return replace(state, exercise=str(row["exercise"])) if row.get("exercise") in exercises() else state


def _options(_state: State) -> list[tuple[str, str, str]]:
    return [(f"{name} {t(exercise.title)}", name, exercise.group) for name, exercise in exercises().items()]


def _named(state: State) -> bool:
    return bool(state.student.strip())


def _box(exercise: Exercise) -> Text:
    return Text(
        path=f"answers.{exercise.name}",
        label="Your answer",
        unit="" if exercise.unit == "1" else exercise.unit,
        placeholder="2500, 2,500 or 2.5e3",
        max_length=200,
        visible=lambda state: _named(state) and state.exercise == exercise.name,
    )


PANEL = Panel(
    title="Exercise",
    start=State,
    compute=compute,
    view=view,
    on_row=pick,
    shared=("student", "exercise"),
    controls=(
        Text(path="student", label="Your name", placeholder="for example s01", max_length=80),
        Choice(path="exercise", options=_options, label="Exercise"),
        *(_box(exercise) for exercise in exercises().values()),
    ),
    actions=(
        Action(name="check", label="Check", run=check, help="marks your answer; tries are not limited", visible=_named),
        Action(name="hint", label="Hint", run=hint, help="costs a quarter of the points; there are two", visible=_named),
        Action(name="reveal", label="Show answer", run=reveal, help="then the exercise is worth nothing", visible=_named),
    ),
)
