"""Writer: the rows of one transaction, all with the same author, and an event for each.

Functions here trust that rules were checked; what they refuse is what only the transaction can see: a round that does not exist
or is decided, a metric that a run has already, a second configuration.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from perfkit.core.errors import InputError
from perfkit.project.experiments._rules import Evidence, goal_met, order_problems
from perfkit.project.experiments._schema import METRIC_UNITS, STATES, unknown_metric
from perfkit.project.experiments._views import project_row, skips
from perfkit.project.experiments.artefacts import Stored


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """One figure of a run: the median of `n` values with their median absolute deviation; None where it was not measured.

    `source` says file and field, or formula. The unit of a known metric is fixed; others (paths of a breakdown) must say it.
    """

    metric: str
    value: float | None
    source: str
    n: int = 1
    median_abs_dev: float | None = None
    unit: str | None = None


def to_json(value: Any) -> str:
    """JSON text of a value that the log may hold. Raises InputError for NaN and for what JSON does not have."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError("experiment log", [f"{value!r} is not JSON: {error}"]) from error


def value_problems(metric: str, value: float | None) -> list[str]:
    """What stands against a figure: nan and inf are none, and no known metric is negative."""
    if value is None or (math.isfinite(value) and (value >= 0 or metric not in METRIC_UNITS)):
        return []
    return [f"{metric}: {value!r} must be a finite number{', 0 or more' if metric in METRIC_UNITS else ''}"]


def prediction_problems(metric: str, value: float, low: float | None, high: float | None) -> list[str]:
    """What stands against a prediction and its range."""
    problems = [] if metric in METRIC_UNITS else [unknown_metric(metric)]
    problems += [problem for figure in (value, low, high) for problem in value_problems(metric, figure)]
    if (low is not None and low > value) or (high is not None and high < value):
        problems.append(f"{metric}: the range {low} to {high} does not hold the value {value}")
    return problems


def round_row(connection: sqlite3.Connection, number: int, *, undecided: bool = False) -> sqlite3.Row:
    """The row of round `number`. Raises InputError if there is none, or if it must be `undecided` and is not."""
    row = connection.execute("SELECT * FROM round WHERE number = ?", (number,)).fetchone()
    if row is None:
        numbers = [str(found[0]) for found in connection.execute("SELECT number FROM round ORDER BY number")]
        raise InputError("experiment log", [f"there is no round {number}; rounds are {', '.join(numbers) or 'none yet'}"])
    decision = connection.execute("SELECT * FROM decision WHERE round_id = ?", (row["id"],)).fetchone()
    if undecided and decision is not None:
        said = f"{decision['verdict']!r} by {decision['author']}: {decision['reason']!r}"
        raise InputError("experiment log", [f"round {number} is decided already, {said}; start a new round"])
    found_row: sqlite3.Row = row
    return found_row


def evidence_of(connection: sqlite3.Connection, number: int, limit_bytes: int | None = None) -> Evidence:
    """What the log holds about a round; `limit_bytes` replaces the device memory as the limit of the peak.

    All of it is about one run, the newest with the goal metric: a peak of it or of a run after it counts, the highest of them, and
    an accuracy check that is not older.
    """
    row, project = round_row(connection, number), project_row(connection)

    def first(query: str, *values: Any) -> Any:
        found = connection.execute(query, values).fetchone()
        return None if found is None else found[0]

    measured = (
        "SELECT value FROM measurement JOIN run ON run.id = run_id "
        "WHERE run.round_id = ? AND metric = ? AND value IS NOT NULL ORDER BY run.id DESC"
    )
    judged = first(measured.replace("SELECT value", "SELECT run.id"), row["id"], project["goal_metric"]) or 0
    highest = (
        "SELECT max(value) FROM measurement JOIN run ON run.id = run_id "
        "WHERE run.round_id = ? AND metric = 'peak_memory_bytes' AND run.id >= ?"
    )
    predicted = "SELECT value FROM prediction WHERE round_id = ? AND metric = ? ORDER BY id DESC"
    identity, metric = row["id"], project["goal_metric"]
    peak = first(highest, identity, judged)
    peak = peak if peak is not None else first(measured, identity, "peak_memory_bytes")
    goal = {
        "goal value": project["goal_value"],
        "device peak": project.get("peak_flops_per_s"),
        "device memory": project.get("device_memory_bytes"),
        "accuracy rule": project.get("accuracy_rule"),
        "measurement of round 0": first(measured, first("SELECT id FROM round WHERE number = 0"), metric),
    }
    answered = "SELECT 1 FROM finding JOIN run ON run.id = run_id WHERE run.round_id = ? AND status <> 'open'"
    return Evidence(
        hypothesis=row["hypothesis"],
        has_plan=first("SELECT 1 FROM config WHERE round_id = ? AND role = 'plan'", identity) is not None,
        has_run=first("SELECT 1 FROM run WHERE round_id = ?", identity) is not None,
        has_finding_answer=first(answered, identity) is not None,
        predicts_goal=first(predicted, identity, metric) is not None,
        goal_value=first(measured, identity, metric),
        accuracy=_accuracy_since(connection, identity, judged),
        peak_bytes=peak if peak is not None else first(predicted, identity, "peak_memory_bytes"),
        limit_bytes=limit_bytes or project.get("device_memory_bytes"),
        verdict=first("SELECT verdict FROM decision WHERE round_id = ?", identity),
        goal_missing=tuple(name for name, value in goal.items() if value is None),
        skipped={row["state"]: row["reason"] for row in skips(connection, identity)},
    )


def _accuracy_since(connection: sqlite3.Connection, round_id: int, run_id: int) -> str | None:
    """The verdict of the newest accuracy check, if it was made after the run was attached: it says nothing of a later one."""
    of_round = "SELECT max(id) FROM event WHERE round_id = ? AND action = "
    checked = connection.execute(of_round + "'accuracy'", (round_id,)).fetchone()[0]
    ran = connection.execute(of_round + "'run' AND json_extract(detail_json, '$.run') = ?", (round_id, run_id)).fetchone()[0]
    if checked is None or (ran is not None and checked < ran):
        return None
    found = connection.execute("SELECT verdict FROM accuracy WHERE round_id = ? ORDER BY id DESC", (round_id,)).fetchone()
    return None if found is None else str(found[0])


def check_order(connection: sqlite3.Connection, number: int, state: str) -> None:
    """Raises InputError if round `number` may not come to `state` yet, with the evidence that is missing."""
    if problems := order_problems(number, state, evidence_of(connection, number)):
        raise InputError(f"round {number}", problems)


@dataclass(frozen=True, slots=True)
class Writer:
    """One write transaction: its connection, the author of its rows and the clock (ns since the epoch)."""

    connection: sqlite3.Connection
    author: str
    clock: Callable[[], int]

    def insert(self, table: str, **values: Any) -> int:
        """Add a row and give its id; names are those of the schema, never of a user."""
        names = ", ".join(values)
        marks = ", ".join("?" * len(values))
        done = self.connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))
        return int(done.lastrowid or 0)

    def event(self, action: str, detail: Mapping[str, Any], round_id: int | None = None, page: str = "") -> int:
        """Note what this transaction did."""
        return self.insert(
            "event",
            at_ns=self.clock(),
            author=self.author,
            page=page,
            round_id=round_id,
            action=action,
            detail_json=to_json(dict(detail)),
        )

    def advance(self, round_id: int, state: str) -> None:
        """Move a round forward to `state`; never back."""
        current = self.connection.execute("SELECT state FROM round WHERE id = ?", (round_id,)).fetchone()[0]
        if STATES.index(state) > STATES.index(current):
            self.connection.execute("UPDATE round SET state = ? WHERE id = ?", (state, round_id))

    def open_round(self) -> int | None:
        """The number of the round that is not decided, if there is one."""
        found = self.connection.execute("SELECT number FROM round WHERE closed_ns IS NULL").fetchone()
        return None if found is None else int(found[0])

    def new_round(self, title: str, hypothesis: str, change: str, parent: int | None, *, number: int | None = None) -> int:
        """Add a round, by default the next one; the parent is by default the last kept one before it. Gives its number."""
        if number is None:
            number = int(self.connection.execute("SELECT coalesce(max(number) + 1, 0) FROM round").fetchone()[0])
        kept = (
            "SELECT round.id FROM round JOIN decision ON round_id = round.id "
            "WHERE verdict = 'keep' AND number < ? ORDER BY number DESC"
        )
        found = self.connection.execute(kept, (number,)).fetchone() if parent is None else round_row(self.connection, parent)
        identity = self.insert(
            "round",
            number=number,
            parent_id=None if found is None else found["id"],
            title=title,
            state="goal" if number == 0 else "strategy",
            hypothesis=hypothesis,
            change_text=change,
            author=self.author,
            started_ns=self.clock(),
        )
        self.event("start", {"number": number, "title": title}, identity)
        return number

    def artefact(self, round_id: int, kind: str, stored: Stored) -> int:
        """Add the row of a stored file."""
        identity = self.insert(
            "artefact",
            round_id=round_id,
            kind=kind,
            path=stored.path,
            bytes=stored.num_bytes,
            sha256=stored.sha256,
            stored=int(stored.is_copy),
            added_ns=self.clock(),
        )
        self.event("attach", {"kind": kind, "path": stored.path, "sha256": stored.sha256}, round_id)
        return identity

    def config(self, number: int, role: str, stored: Stored, *, dialect: str, devices: int, keys: Mapping[str, Any]) -> int:
        """Add the configuration of a round in its `role`; a round has one of each. Gives the id of the artefact."""
        identity = round_row(self.connection, number, undecided=True)["id"]
        query = "SELECT sha256 FROM config WHERE round_id = ? AND role = ?"
        if found := self.connection.execute(query, (identity, role)).fetchone():
            problem = (
                f"round {number} has its {role} configuration already (sha256 {found[0][:12]}); start a new round for another one"
            )
            raise InputError("attach", [problem])
        artefact = self.artefact(identity, "config", stored)
        config = self.insert(
            "config", round_id=identity, role=role, dialect=dialect, sha256=stored.sha256, artefact_id=artefact, devices=devices
        )
        for key, value in keys.items():
            self.insert("config_key", config_id=config, key=key, value_json=to_json(value))
        if role == "plan":
            self.advance(identity, "memory")
        return artefact

    def run(self, number: int, stored: Stored | None, **values: Any) -> int:
        """Add a run to a round that is not decided; predictions are locked from here on. Gives the id of the run."""
        identity = round_row(self.connection, number, undecided=True)["id"]
        check_order(self.connection, number, "measure")
        artefact = None if stored is None else self.artefact(identity, "trace", stored)
        dropped = to_json(values.pop("dropped", []))
        run = self.insert("run", round_id=identity, artefact_id=artefact, dropped_json=dropped, attached_ns=self.clock(), **values)
        self.advance(identity, "analyse")
        self.event("run", {"run": run, **values}, identity)
        return run

    def add_to_run(self, number: int, stored: Stored, found: Iterable[Measurement]) -> int:
        """Add what the run of a round with these very bytes has not, and give its id; 0 if the round has no such run.

        Counted twice, one measurement would look like two that agree. Raises InputError if there is nothing to add.
        """
        query = (
            "SELECT run.id FROM run JOIN round ON round.id = run.round_id JOIN artefact ON artefact.id = run.artefact_id "
            "WHERE round.number = ? AND sha256 = ? AND bytes = ?"
        )
        row = self.connection.execute(query, (number, stored.sha256, stored.num_bytes)).fetchone()
        if row is None:
            return 0
        known = {name for (name,) in self.connection.execute("SELECT metric FROM measurement WHERE run_id = ?", (row["id"],))}
        fresh = [item for item in found if item.metric not in known]
        if not fresh:
            raise InputError("attach", [f"run {row['id']} of this round has the same bytes and figures; nothing was written"])
        self.measurements(row["id"], fresh)
        return int(row["id"])

    def measurements(self, run_id: int, found: Iterable[Measurement]) -> None:
        """Add figures to a run. Raises InputError that lists every metric that cannot be written."""
        query = "SELECT round_id, number FROM run JOIN round ON round.id = round_id WHERE run.id = ?"
        row = self.connection.execute(query, (run_id,)).fetchone()
        if row is None:
            raise InputError("measure", [f"there is no run {run_id}"])
        round_row(self.connection, row["number"], undecided=True)
        known = {name for (name,) in self.connection.execute("SELECT metric FROM measurement WHERE run_id = ?", (run_id,))}
        rows, problems = list(found), []
        for item in rows:
            unit = METRIC_UNITS.get(item.metric, item.unit)
            if unit is None:
                problems.append(f"{item.metric!r} is no known metric, so its measurement must say a unit")
            elif item.unit not in (None, unit):
                problems.append(f"{item.metric}: unit {item.unit!r} must be {unit!r}")
            problems += value_problems(item.metric, item.value)
            if item.metric in known:
                problems.append(f"{item.metric}: run {run_id} has it already; rows of the log are not changed")
            known.add(item.metric)
        if problems:
            raise InputError("measure", problems)
        for item in rows:
            self.insert(
                "measurement",
                run_id=run_id,
                metric=item.metric,
                value=item.value,
                n=item.n,
                median_abs_dev=item.median_abs_dev,
                unit=METRIC_UNITS.get(item.metric, item.unit),
                source=item.source,
            )
        self.event("measure", {"run": run_id, "metrics": [item.metric for item in rows]}, row["round_id"])

    def accuracy(
        self,
        number: int,
        verdict: str,
        *,
        note: str,
        steps: int | None = None,
        limits: Mapping[str, Any] | None = None,
        **figures: Any,
    ) -> None:
        """Add an accuracy check to a round that is not decided."""
        identity = round_row(self.connection, number, undecided=True)["id"]
        check_order(self.connection, number, "align")
        limit_json = to_json(dict(limits or {}))
        self.insert("accuracy", round_id=identity, steps=steps, verdict=verdict, limit_json=limit_json, note=note, **figures)
        self.advance(identity, "decide")
        self.event("accuracy", {"verdict": verdict, "note": note}, identity)

    def decision(self, number: int, verdict: str, reason: str, next_step: str) -> None:
        """Decide and close a round; the cycle is done if it stops, or keeps a round that meets the goal."""
        identity = round_row(self.connection, number, undecided=True)["id"]
        project, value = project_row(self.connection), evidence_of(self.connection, number).goal_value
        now_ns = self.clock()
        self.insert(
            "decision",
            round_id=identity,
            verdict=verdict,
            reason=reason,
            next_step=next_step,
            author=self.author,
            decided_ns=now_ns,
        )
        is_met = verdict == "keep" and goal_met(value, project["goal_op"], project["goal_value"])
        self.advance(identity, "done" if verdict == "stop" or is_met else "decide")
        self.connection.execute("UPDATE round SET closed_ns = ? WHERE id = ?", (now_ns, identity))
        self.event("decide", {"verdict": verdict, "reason": reason}, identity)
