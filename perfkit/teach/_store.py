"""Store: every answer, hint and reveal as a row of `attempt`, and what follows from the rows.

Nothing is kept in a page: hints taken, tries and points follow from the rows, so that a closed tab, a restarted kernel or a second
tab changes nothing. The same wrong answer typed twice is one try, and a solved exercise keeps its points. Rows are never changed:
an instructor's reset is a row too, and what came before it no longer counts.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any

from perfkit.project.experiments.database import reading as reading_log
from perfkit.project.experiments.database import writing as writing_log
from perfkit.teach._catalogue import Question
from perfkit.teach._database import ATTEMPT, FILE_NAME, class_files, connected, create
from perfkit.teach._mark import Mark, mark, points

RESET = "(reset)"
MAX_HINTS = 2
MAX_ANSWER = 200
PRACTICE_SEED = 0
"""The class seed of someone who learns alone: the numbers then follow from the name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """Where a student is with an exercise. `tries` counts different wrong answers; `last` is what was typed last."""

    hints: int = 0
    revealed: bool = False
    tries: int = 0
    solved: bool = False
    points: float = 0.0
    last: str = ""
    seconds: float = 0.0


Opening = Callable[[], AbstractContextManager[sqlite3.Connection]]


class Store:
    """The answers of a class, or of one learner.

    `shared` says whether it is a class with an instructor, `place` in words where rows are kept ("" for nowhere).
    """

    def __init__(self, reading: Opening, writing: Opening, *, shared: bool, place: str) -> None:
        self._reading, self._writing = reading, writing
        self.shared = shared
        self.place = place

    def answer(self, question: Question, text: str, *, seconds: float = 0.0) -> Mark:
        """Mark what was typed and keep it; what cannot be read is not kept and costs nothing."""
        found = mark(question, text)
        if found.outcome == "unread":
            return found
        with self._writing() as connection:
            before = standing(_rows(connection, question))
            right = found.outcome == "right"
            worth = 0.0
            if right:
                full = question.exercise.points
                fresh = points(full, hints=before.hints, tries=before.tries, revealed=before.revealed)
                worth = before.points if before.solved else fresh
            row = (text[:MAX_ANSWER], int(right), found.mistake, before.hints, int(before.revealed), max(0.0, seconds), worth)
            _insert(connection, question, row)
        return found

    def hint(self, question: Question, *, seconds: float = 0.0) -> int:
        """Take the next hint; how many are taken now. A solved or revealed exercise gives them for nothing, and writes nothing."""
        with self._writing() as connection:
            before = standing(_rows(connection, question))
            if before.solved or before.revealed or before.hints >= MAX_HINTS:
                return before.hints
            _insert(connection, question, ("", 0, None, before.hints + 1, 0, max(0.0, seconds), 0.0))
        return before.hints + 1

    def reveal(self, question: Question, *, seconds: float = 0.0) -> None:
        """Show the answer: from now on the exercise is worth nothing, unless it was solved before."""
        with self._writing() as connection:
            before = standing(_rows(connection, question))
            if not (before.solved or before.revealed):
                _insert(connection, question, ("", 0, None, before.hints, 1, max(0.0, seconds), 0.0))

    def reset(self, question: Question) -> None:
        """Let the student begin an exercise anew; earlier rows stay but no longer count."""
        with self._writing() as connection:
            _insert(connection, question, ("", 0, RESET, 0, 0, 0.0, 0.0))

    def write(self, row: Mapping[str, Any]) -> None:
        """Keep a row that is no exercise of the catalogue, such as a round of the game."""
        with self._writing() as connection:
            _insert_values(connection, row)

    def standing(self, question: Question) -> Standing:
        """Where the student is with the exercise."""
        with self._reading() as connection:
            return standing(_rows(connection, question))

    def rows(self, class_seed: int, student: str | None = None) -> list[dict[str, Any]]:
        """All rows of a class, or of one student, oldest first."""
        where, values = (
            ("class_seed = ?", (class_seed,)) if student is None else ("class_seed = ? AND student = ?", (class_seed, student))
        )
        with self._reading() as connection:
            found = connection.execute(f"SELECT * FROM attempt WHERE {where} ORDER BY id", values).fetchall()
        return [dict(row) for row in found]

    def control(self, name: str, default: Any = None) -> Any:
        """What the instructor has set; `default` for a lone learner."""
        if not self.shared:
            return default
        with self._reading() as connection:
            row = connection.execute("SELECT value FROM control WHERE name = ?", (name,)).fetchone()
        return default if row is None else json.loads(row["value"])

    def set_control(self, name: str, value: Any) -> None:
        """Set something for all pages of the class."""
        with self._writing() as connection:
            connection.execute("INSERT OR REPLACE INTO control (name, value) VALUES (?, ?)", (name, json.dumps(value)))

    def join(self, student: str, team: str) -> None:
        """Make a student a member of a team; with an empty name of none."""
        with self._writing() as connection:
            if team:
                connection.execute("INSERT OR REPLACE INTO team (student, name) VALUES (?, ?)", (student, team))
            else:
                connection.execute("DELETE FROM team WHERE student = ?", (student,))

    def teams(self) -> dict[str, str]:
        """The team of every student who has joined one; none for a lone learner."""
        if not self.shared:
            return {}
        with self._reading() as connection:
            return {row["student"]: row["name"] for row in connection.execute("SELECT student, name FROM team")}

    def seen(self, student: str) -> None:
        """A student's page is open."""
        with self._writing() as connection:
            connection.execute("INSERT OR REPLACE INTO present (student, seen_ns) VALUES (?, ?)", (student, time.time_ns()))

    def present(self) -> dict[str, int]:
        """When each student's page was last heard of, in ns since the epoch."""
        with self._reading() as connection:
            return {row["student"]: row["seen_ns"] for row in connection.execute("SELECT student, seen_ns FROM present")}


def class_store(folder: Path) -> Store:
    """The store of a class in a served project; made if it does not exist."""
    path = folder / FILE_NAME
    create(path)
    return Store(
        lambda: connected(path, write=False), lambda: connected(path, write=True), shared=True, place=FILE_NAME
    )  # fmt: skip


def practice_store(folder: Path) -> Store:
    """The store of one learner: the experiment log of the project."""
    return Store(lambda: reading_log(folder), lambda: writing_log(folder, "class"), shared=False, place="the project's log")


def memory_store() -> Store:
    """A store that ends with the process: for who has no project, or may not write to it."""
    connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    connection.row_factory = sqlite3.Row
    connection.executescript(ATTEMPT)
    lock = RLock()

    @contextmanager
    def opened() -> Iterator[sqlite3.Connection]:
        with lock:
            yield connection

    return Store(opened, opened, shared=False, place="")


def purge(folder: Path) -> list[Path]:
    """Remove what a class has kept in a project; the files that were removed. Not to be done while the class is served."""
    found = class_files(folder)
    for path in found:
        path.unlink(missing_ok=True)
    return found


def standing(rows: Iterable[Mapping[str, Any]]) -> Standing:
    """What follows from a student's rows of one exercise, oldest first."""
    hints, revealed, solved, worth, last, seconds = 0, False, False, 0.0, "", 0.0
    wrong: set[str] = set()
    for row in rows:
        if row["matched_wrong"] == RESET:
            hints, revealed, solved, worth, last, seconds = 0, False, False, 0.0, "", 0.0
            wrong = set()
            continue
        hints, revealed = max(hints, row["hints"]), revealed or bool(row["revealed"])
        seconds += 0.0 if solved else row["seconds"]
        last = row["answer"] or last
        if row["correct"]:
            solved, worth = True, worth if solved else row["points"]
        elif row["answer"]:
            wrong.add(row["answer"].strip())
    return Standing(hints=hints, revealed=revealed, tries=len(wrong), solved=solved, points=worth, last=last, seconds=seconds)


def _rows(connection: sqlite3.Connection, question: Question) -> list[dict[str, Any]]:
    key = (question.class_seed, question.student, question.exercise.name)
    found = connection.execute("SELECT * FROM attempt WHERE class_seed = ? AND student = ? AND exercise = ? ORDER BY id", key)
    return [dict(row) for row in found]


def _insert(connection: sqlite3.Connection, question: Question, row: tuple[Any, ...]) -> None:
    names = ("answer", "correct", "matched_wrong", "hints", "revealed", "seconds", "points")
    known = {"class_seed": question.class_seed, "student": question.student, "exercise": question.exercise.name}
    params = json.dumps(dict(question.params), ensure_ascii=False)
    _insert_values(connection, {**known, "params_json": params, **dict(zip(names, row, strict=True))})


def _insert_values(connection: sqlite3.Connection, row: Mapping[str, Any]) -> None:
    values = {"at_ns": time.time_ns(), **row}
    marks = ", ".join("?" for _ in values)
    connection.execute(f"INSERT INTO attempt ({', '.join(values)}) VALUES ({marks})", tuple(values.values()))
