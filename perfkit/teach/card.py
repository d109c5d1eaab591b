"""Card: an exercise as one student sees it: the question with numbers of one's own, what was tried, hints, and the answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pandas as pd

from perfkit.core.looks import brief
from perfkit.core.texts import t, told
from perfkit.core.units import format_entry
from perfkit.teach._catalogue import Exercise, Question, exercises, question
from perfkit.teach._mark import mark
from perfkit.teach._store import Standing, standing
from perfkit.teach.session import Session, check_open, opened, spent_s

OFFER_AFTER = 3
LETTERS = (
    "Letters: h hidden, f ffn hidden, L layers, v vocabulary, q heads a key-value head, N parameters, "
    "layer = FLOP per token of one layer."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """The question, where the student is with it, and whether the instructor shows its answer to all."""

    question: Question
    standing: Standing
    shown_to_all: bool

    def told(self) -> tuple[str, ...]:
        """The question, then what came of it so far: the last answer, hints that were taken, the answer if it is shown."""
        exercise = self.question.exercise
        unit = t("a plain ratio") if exercise.unit == "1" else exercise.unit
        asked = t("{0}, {1} ({2} points): {3} Answer in {4}.")
        return asked.format(exercise.name, t(exercise.title), exercise.points, t(exercise.text), unit), *self._notes()

    def _notes(self) -> list[str]:
        exercise, now, notes = self.question.exercise, self.standing, []
        if now.last:
            notes.append(t("Your last answer, {0}: {1}").format(now.last[:40], told(mark(self.question, now.last).text)))
        if now.solved:
            notes.append(t("Solved: {0} points.").format(format_entry(now.points)))
        notes += [t("Hint {0}: {1}").format(number, t(text)) for number, text in enumerate(exercise.hints[: now.hints], start=1)]
        if now.hints >= len(exercise.hints):
            notes.append(t(LETTERS))
        if now.tries >= OFFER_AFTER and not (now.solved or now.hints or now.revealed):
            notes.append(t("{0} tries so far: a hint costs a quarter of the points and says where to begin.").format(now.tries))
        if now.revealed or self.shown_to_all:
            notes.append(t("The answer: {0}").format(solution(self.question)))
        return notes

    def to_frame(self) -> pd.DataFrame:
        """The inputs, one a row: `input`, `value` as text."""
        rows = [{"input": name, "value": written(value)} for name, value in self.question.params.items()]
        frame = pd.DataFrame(rows, columns=["input", "value"])
        frame.attrs["title"] = t("Your numbers ({0})").format(self.question.student)
        return frame


def card(here: Session, exercise: str) -> Card:
    """The card of an exercise; its time runs from the first moment that it is seen."""
    opened(here.student, exercise)
    asked = question(exercise, here.class_seed, here.student)
    shown = exercise in here.store.control("shown", [])
    return Card(question=asked, standing=here.store.standing(asked), shown_to_all=shown)


def check(here: Session, exercise: str, answer: str) -> str:
    """Mark and keep an answer, and say what is right or wrong with it; what cannot be read costs nothing."""
    asked = _asked(here, exercise)
    found = here.store.answer(asked, answer, seconds=spent_s(here.student, exercise))
    if found.outcome != "right":
        return told(found.text)
    return t("Right. {0} points.").format(format_entry(here.store.standing(asked).points))


def hint(here: Session, exercise: str) -> str:
    """Take the next hint, which costs a quarter of the points, and say it."""
    asked = _asked(here, exercise)
    shown = max(here.store.hint(asked, seconds=spent_s(here.student, exercise)), 1)
    return t("Hint {0}: {1}").format(shown, t(asked.exercise.hints[shown - 1]))


def reveal(here: Session, exercise: str) -> str:
    """Show the answer; the exercise is then worth nothing."""
    asked = _asked(here, exercise)
    here.store.reveal(asked, seconds=spent_s(here.student, exercise))
    return t("The answer: {0}").format(solution(asked))


def _asked(here: Session, exercise: str) -> Question:
    asked = question(exercise, here.class_seed, here.student)
    check_open(here.store, asked.exercise.group)
    return asked


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Where a student is with every exercise, by name."""

    standings: dict[str, Standing]

    @property
    def num_solved(self) -> int:
        """Exercises that were solved before their answer was shown."""
        return sum(one.solved and not one.revealed for one in self.standings.values())

    @property
    def points(self) -> float:
        """Of all exercises together."""
        return sum(one.points for one in self.standings.values())

    def told(self) -> str:
        """How many are solved, and for how many points."""
        return t("So far {0} of {1} solved, {2} points.").format(self.num_solved, len(self.standings), format_entry(self.points))

    def to_frame(self) -> pd.DataFrame:
        """One row an exercise: title, block, level, state, wrong tries, hints, points of those to be had."""
        frame = pd.DataFrame([_progress(exercises()[name], one) for name, one in self.standings.items()])
        frame.attrs["title"] = t("All exercises (choose a row to open it)")
        return brief(frame, "exercise", "title", "block", "level", "state", "points")


def progress(here: Session) -> Progress:
    """How far a student has come."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in exercises()}
    for row in here.rows():
        rows.setdefault(row["exercise"], []).append(row)
    return Progress(standings={name: standing(rows[name]) for name in exercises()})


def _progress(exercise: Exercise, now: Standing) -> dict[str, Any]:
    state = "solved" if now.solved else "answer shown" if now.revealed else "trying" if now.tries or now.hints else ""
    row = {"exercise": exercise.name, "title": t(exercise.title), "block": t(exercise.group), "level": exercise.level}
    points = f"{format_entry(now.points)} / {exercise.points}"
    return {**row, "state": state, "wrong tries": now.tries, "hints": now.hints, "points": points}
