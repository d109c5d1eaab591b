"""Views: what the log holds, as one JSON document and as the frame of the round ladder.

Signs: `error_ratio` is predicted over measured minus 1, `gain_ratio` measured over the parent's value minus 1. The latest
prediction of a metric counts, the earlier ones stay listed. Unknown is None.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.robust import is_real_change
from perfkit.core.settings import PROJECT_FILE
from perfkit.project import open_project
from perfkit.project.experiments._rules import goal_met, stop_advice

LADDER_COLUMNS = (
    "number",
    "title",
    "metric",
    "unit",
    "value",
    "kind",
    "prediction",
    "prediction_low",
    "prediction_high",
    "error_ratio",
    "gain_ratio",
    "beyond_noise",
    "accuracy",
    "verdict",
    "state",
)

Row = dict[str, Any]


def rows(connection: sqlite3.Connection, query: str, *values: Any) -> list[Row]:
    """Result rows as dicts."""
    return [dict(row) for row in connection.execute(query, values)]


_CONFIGS = "SELECT role, dialect, devices, config.sha256, path FROM config JOIN artefact ON artefact.id = artefact_id"


def configs_of(connection: sqlite3.Connection, number: int) -> list[Row]:
    """The configurations of a round."""
    return rows(connection, f"{_CONFIGS} JOIN round ON round.id = config.round_id WHERE round.number = ?", number)


def project_row(connection: sqlite3.Connection) -> Row:
    """The project row; of a log without one what the project's own file states, or the defaults."""
    if found := rows(connection, "SELECT * FROM project"):
        return found[0]
    names = ("name", "goal_metric", "goal_value", "goal_op", "peak_flops_per_s", "device_memory_bytes")
    (place,) = (row["file"] for row in rows(connection, "PRAGMA database_list") if row["name"] == "main")
    folder = Path(place).parent
    if place and (folder / PROJECT_FILE).exists():
        stated = open_project(folder)
        return {name: getattr(stated, name) for name in names}
    return {**dict.fromkeys(names), "goal_metric": "tokens_per_s_per_device", "goal_op": ">="}


def skips(connection: sqlite3.Connection, round_id: int) -> list[Row]:
    """States of a round that somebody passed over, oldest first: `state`, `reason`, `author`, `at_ns`."""
    query = "SELECT detail_json, author, at_ns FROM event WHERE round_id = ? AND action = 'skip' ORDER BY id"
    return [{**json.loads(row.pop("detail_json")), **row} for row in rows(connection, query, round_id)]


def document(connection: sqlite3.Connection) -> Row:
    """Everything that `perfkit log show --json` prints: project, rounds with their evidence, the best one, the gain."""
    project = project_row(connection)
    metric, op = project["goal_metric"], project["goal_op"]
    rounds = [_round(connection, row, metric, op, project["goal_value"]) for row in _round_rows(connection)]
    by_number = {row["number"]: row for row in rounds}
    for row in rounds:
        _compare_with_parent(row, by_number.get(row["parent"]))
    kept = [row for row in rounds if row["verdict"] == "keep" and row["value"] is not None]
    best = (max if op == ">=" else min)(kept, key=lambda row: row["value"], default=None)
    first = next((row["value"] for row in rounds if row["value"] is not None), None)
    project["created_ns"] = project.get("created_ns")
    rule = project.get("accuracy_rule")
    goal, value = project["goal_value"], best["value"] if best else None
    return {
        "project": {**project, "accuracy_rule": json.loads(rule) if rule else None},
        "rounds": rounds,
        "best_round": best["number"] if best else None,
        "goal_met": any(row["goal_met"] for row in kept),
        "total_gain_ratio": best["value"] / first - 1 if best and first else None,
        "missing_to_goal": None if goal is None or value is None else max(0.0, goal - value if op == ">=" else value - goal),
        "stop_advice": stop_advice([row["gain_ratio"] for row in rounds if row["verdict"] == "keep"], op),
    }


def ladder(connection: sqlite3.Connection) -> pd.DataFrame:
    """One row a round, ordered by number, with the columns LADDER_COLUMNS; values in the unit of the goal metric."""
    found = [{name: row[name] for name in LADDER_COLUMNS} for row in document(connection)["rounds"]]
    frame = pd.DataFrame(found, columns=list(LADDER_COLUMNS))
    floats = ("value", "prediction", "prediction_low", "prediction_high", "error_ratio", "gain_ratio")
    return frame.astype({**dict.fromkeys(floats, "float64"), "number": "int64", "beyond_noise": "boolean"})


def _round_rows(connection: sqlite3.Connection) -> list[Row]:
    return rows(
        connection,
        "SELECT round.*, parent.number AS parent, decision.verdict, decision.reason, decision.next_step, "
        "decision.author AS decided_by, decision.decided_ns FROM round "
        "LEFT JOIN round AS parent ON parent.id = round.parent_id "
        "LEFT JOIN decision ON decision.round_id = round.id ORDER BY round.number",
    )


def _round(connection: sqlite3.Connection, row: Row, metric: str, op: str, goal: float | None) -> Row:
    identity = row.pop("id")
    row.pop("parent_id")
    predictions = rows(
        connection,
        "SELECT metric, value, low, high, unit, method, created_ns FROM prediction WHERE round_id = ? ORDER BY id",
        identity,
    )
    accuracy = rows(
        connection, "SELECT verdict, steps, max_rel, mean_rel, note FROM accuracy WHERE round_id = ? ORDER BY id", identity
    )
    runs = _runs(connection, identity)
    measured = [
        (run, item) for run in runs for item in run["measurements"] if item["metric"] == metric and item["value"] is not None
    ]
    run, latest = measured[-1] if measured else ({"kind": None}, {"value": None, "unit": None, "n": 0, "median_abs_dev": None})
    predicted = next((item for item in reversed(predictions) if item["metric"] == metric), None)
    value, guess = latest["value"], predicted["value"] if predicted else None
    return {
        **row,
        "metric": metric,
        "unit": latest["unit"] or (predicted["unit"] if predicted else None),
        "value": value,
        "num_samples": latest["n"],
        "median_abs_dev": latest["median_abs_dev"],
        "kind": run["kind"],
        "prediction": guess,
        "prediction_low": predicted["low"] if predicted else None,
        "prediction_high": predicted["high"] if predicted else None,
        "error_ratio": guess / value - 1 if guess is not None and value else None,
        "goal_met": goal_met(value, op, goal),
        "accuracy": accuracy[-1]["verdict"] if accuracy else None,
        "predictions": predictions,
        "runs": runs,
        "configs": rows(connection, f"{_CONFIGS} WHERE config.round_id = ? ORDER BY role", identity),
        "artefacts": rows(
            connection, "SELECT kind, path, bytes, sha256, stored, added_ns FROM artefact WHERE round_id = ? ORDER BY id", identity
        ),
        "accuracy_checks": accuracy,
        "skipped": skips(connection, identity),
    }


def _runs(connection: sqlite3.Connection, round_id: int) -> list[Row]:
    runs = rows(
        connection,
        "SELECT run.id, run.kind, format, path, ranks_found, ranks_expected, first_step, last_step, dropped_json, attached_ns "
        "FROM run LEFT JOIN artefact ON artefact.id = artefact_id WHERE run.round_id = ? ORDER BY run.id",
        round_id,
    )
    for run in runs:
        run["dropped"] = json.loads(run.pop("dropped_json"))
        run["measurements"] = rows(
            connection,
            "SELECT metric, value, n, median_abs_dev, unit, source FROM measurement WHERE run_id = ? ORDER BY metric",
            run["id"],
        )
    return runs


def _compare_with_parent(row: Row, parent: Row | None) -> None:
    row["gain_ratio"] = row["beyond_noise"] = None
    if parent is None or not parent["value"] or row["value"] is None:
        return
    row["gain_ratio"] = row["value"] / parent["value"] - 1
    row["beyond_noise"] = is_real_change(
        parent["value"],
        row["value"],
        num_samples=min(row["num_samples"], parent["num_samples"]),
        median_abs_devs=(row["median_abs_dev"], parent["median_abs_dev"]),
    )


def events(connection: sqlite3.Connection, after: int) -> list[Row]:
    """Events with an id above `after`, oldest first, with the number of their round."""
    return rows(
        connection,
        "SELECT event.id, at_ns, event.author, page, number, action, detail_json FROM event "
        "LEFT JOIN round ON round.id = event.round_id WHERE event.id > ? ORDER BY event.id",
        after,
    )


def config_of(connection: sqlite3.Connection, number: int) -> Row:
    """The configuration of a round: `path`, `sha256` and `keys` (JSON by dotted key); the one as run, else the planned one.

    Raises InputError if the round has none.
    """
    found = rows(
        connection,
        "SELECT config.id, path, config.sha256 FROM config JOIN artefact ON artefact.id = artefact_id "
        "JOIN round ON round.id = config.round_id WHERE number = ? ORDER BY role",
        number,
    )
    if not found:
        raise InputError("experiment log", [f"round {number} has no configuration; attach one"])
    keys = rows(connection, "SELECT key, value_json FROM config_key WHERE config_id = ?", found[0]["id"])
    return {**found[0], "keys": {row["key"]: row["value_json"] for row in keys}}
