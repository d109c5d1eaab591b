"""Instructor: how a class is getting on, what most get wrong, and the switches that all pages follow. Each asks for the token."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from perfkit.core import settings
from perfkit.core.errors import InputError
from perfkit.core.texts import Said, joined, say
from perfkit.core.units import NS_PER_S, format_entry, format_ratio
from perfkit.teach import report
from perfkit.teach._catalogue import groups, question
from perfkit.teach._store import Store
from perfkit.teach.lesson import Block, blocks
from perfkit.teach.play import BLOCK as GAME
from perfkit.teach.session import in_class, is_instructor, num_present, the_store


@dataclass(frozen=True, slots=True)
class Lesson:
    """A class that is held: the rows of all answers, how many pages are open, who is in which team."""

    rows: list[dict[str, Any]]
    num_present: int
    teams_of: dict[str, str]

    def told(self) -> Said:
        """How many are here, how many exercises are solved, how many students are stuck."""
        done, here = report.by_exercise(self.rows), str(self.num_present)
        if not done:
            return say("{here} students are here; nobody has answered yet.", here=here)
        return say(
            "{here} students are here. {good} of {begun} exercises that were begun are solved by "
            "{share} or more of those who tried; {stuck} students are stuck.",
            here=here,
            good=str(sum(row["solved_ratio"] >= report.GOAL_SHARE for row in done)),
            begun=str(len(done)),
            share=format_ratio(report.GOAL_SHARE, 2),
            stuck=str(len({row["student"] for row in report.stuck(self.rows)})),
        )

    def teams(self) -> pd.DataFrame:
        """One row a team, most points first: what may be seen on the projector."""
        return _titled(report.by_team(self.rows, self.teams_of), say("Teams"))

    def mistakes(self) -> pd.DataFrame:
        """The most frequent wrong answers, with what to say to those who gave them."""
        return _titled(report.mistakes(self.rows), say("Most frequent wrong answers: read them out"))

    def stuck(self) -> pd.DataFrame:
        """Who does not get on, and where."""
        return _titled(report.stuck(self.rows), say("Stuck: three wrong tries or six minutes"))

    def by_exercise(self) -> pd.DataFrame:
        """One row an exercise that somebody has begun."""
        return _titled(report.by_exercise(self.rows), say("By exercise"))

    def by_student(self) -> pd.DataFrame:
        """One row a student, most points first."""
        return _titled(report.by_student(self.rows), say("By student"))

    def typed(self, exercise: str, student: str = "") -> pd.DataFrame:
        """What was typed at an exercise, by all or by one student."""
        name = student.strip()
        rows = [_typed(row) for row in self.rows if row["exercise"] == exercise and name in ("", row["student"])]
        return _titled(rows, say("What was typed at {exercise}", exercise=exercise))


def _titled(rows: Sequence[dict[str, Any]], title: str) -> pd.DataFrame:
    frame = pd.DataFrame(rows)
    frame.attrs["title"] = title
    return frame


def _typed(row: dict[str, Any]) -> dict[str, Any]:
    kept = {name: row[name] for name in ("student", "answer", "matched_wrong", "hints", "seconds", "points")}
    return {**kept, "correct": "yes" if row["correct"] else "no"}


def admitted(token: str) -> bool:
    """Whether a class is held here and the token is the one of its instructor."""
    return in_class() and is_instructor(token)


def lesson(token: str) -> Lesson:
    """The class as it is now."""
    store = _store_of(token)
    return Lesson(store.rows(settings.class_seed() or 0), num_present(store), store.teams())


def switched(token: str) -> tuple[str, ...]:
    """What all pages follow at present, a sentence each."""
    store = _store_of(token)
    message, closed, shown = store.control("message", ""), store.control("closed", []), store.control("shown", [])
    told = [
        say("On every page: {message}", message=message) if message else "",
        say("Closed blocks: {blocks}.", blocks=joined(closed, by=", ")) if closed else "",
        say("Answers shown to all: {exercises}.", exercises=", ".join(shown)) if shown else "",
        "All pages are paused." if store.control("frozen", False) else "",
        "The class has ended: no answers are taken." if store.control("ended", False) else "",
    ]
    return tuple(text for text in told if text) or ("Nothing is switched: every block is open.",)


def notes(title: str) -> pd.DataFrame:
    """What an instructor has at hand for a block of the lesson: `to` say, ask, or beware of, and `notes`."""
    block = _block(title)
    rows = [("say", line) for line in block.say] + ([("ask", block.ask)] if block.ask else [])
    rows += [("trap", line) for line in block.traps]
    sheets = (("exercises", block.exercises), ("for the fast", block.spare), ("pages", block.pages))
    rows += [(label, ", ".join(names)) for label, names in sheets if names]
    frame = pd.DataFrame(rows, columns=["to", "notes"])
    minutes = {"start": str(block.from_min), "end": str(block.to_min)}
    frame.attrs["title"] = say("Notes: {block}, minute {start} to {end}", block=block.title, **minutes)
    return frame


def _block(title: str) -> Block:
    return next(block for block in blocks() if block.title == title)


def put_line(token: str, message: str) -> str:
    """Put a line on every page; an empty one takes it away."""
    _store_of(token).set_control("message", message.strip())
    return "Said." if message.strip() else "The line is taken away."


def start_timer(token: str, minutes: float) -> str:
    """Count the minutes down on every page; 0 takes the clock away."""
    _store_of(token).set_control("timer_ends_ns", time.time_ns() + round(minutes * 60 * NS_PER_S) if minutes else 0)
    if not minutes:
        return "The clock is taken away."
    return say("{minutes} min run on every page.", minutes=format_entry(minutes))


def toggle_block(token: str, block: str) -> str:
    """Open the exercises of a block (or the game) that are closed, or close them."""
    store = _store_of(token)
    group = _block(block).group or block
    if group not in {group.title for group in groups()} | {GAME}:
        raise InputError("block", [f"{block} has no exercises of its own to close"])
    closed = set(store.control("closed", []))
    store.set_control("closed", sorted(closed ^ {group}))
    return say("{block} is open now." if group in closed else "{block} is closed now.", block=group)


def show_answer(token: str, exercise: str) -> str:
    """Show the answer of an exercise to all, or hide it again."""
    store = _store_of(token)
    shown = set(store.control("shown", []))
    store.set_control("shown", sorted(shown ^ {exercise}))
    told = "The answer of {exercise} is hidden again." if exercise in shown else "The answer of {exercise} is shown to all."
    return say(told, exercise=exercise)


def reset(token: str, exercise: str, student: str) -> str:
    """Let one student begin an exercise anew."""
    store, seed, name = _store_of(token), settings.class_seed(), student.strip()
    if not name or seed is None:
        raise InputError("reset", ["name the student first"])
    store.reset(question(exercise, seed, name))
    return say("{student} can begin {exercise} anew; earlier rows are kept.", student=name, exercise=exercise)


def pause(token: str) -> str:
    """Pause all pages, or let them go on."""
    return "All pages are paused." if _flipped(token, "frozen") else "All pages go on."


def end_class(token: str) -> str:
    """End the class, or let it go on."""
    return "The class has ended." if _flipped(token, "ended") else "The class goes on."


def _flipped(token: str, name: str) -> bool:
    store = _store_of(token)
    now = not store.control(name, False)
    store.set_control(name, now)
    return now


def _store_of(token: str) -> Store:
    if not admitted(token):
        raise InputError("token", ["is not the one that this class was started with"])
    return the_store()
