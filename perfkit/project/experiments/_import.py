"""Import: rounds that were run before there was a log, from a table with `number,metric,value,note`.

They are closed at once: kind `reported`, accuracy not checked, kept. Only the first of all rounds can have the number 0.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfkit.core.errors import InputError
from perfkit.project.experiments._rules import SHORTEST_REASON
from perfkit.project.experiments._schema import METRIC_UNITS
from perfkit.project.experiments.writer import Measurement, Writer, round_row

COLUMNS = ("number", "metric", "value", "note")
LARGEST_BYTES = 5_000_000

Rounds = dict[int, tuple[str, list[Measurement]]]


def read_rounds(path: Path) -> Rounds:
    """The figures of every round in the table at `path`, with the first note as title. Raises InputError with every wrong line."""
    rounds: Rounds = {}
    problems: list[str] = []
    for line, row in _rows(path):
        found = _figure(path, line, row)
        if isinstance(found, list):
            problems += found
            continue
        number, figure = found
        figures = rounds.setdefault(number, (row["note"].strip() or f"round {number}", []))[1]
        if any(known.metric == figure.metric for known in figures):
            problems.append(f"line {line}: round {number} has {figure.metric} twice")
        figures.append(figure)
    if not rounds and not problems:
        problems.append("holds no rounds")
    if problems:
        raise InputError(str(path), problems)
    return dict(sorted(rounds.items()))


def write_rounds(writer: Writer, rounds: Rounds, origin: str) -> list[int]:
    """Write the rounds in one transaction, each with its own number; gives the numbers.

    Raises InputError for numbers that the log has already, and while a round is open.
    """
    taken = {number for (number,) in writer.connection.execute("SELECT number FROM round")}
    problems = [f"round {number} is in the log already" for number in rounds if number in taken]
    if (current := writer.open_round()) is not None:
        problems.append(f"round {current} is open; decide it before earlier rounds are added")
    if problems:
        raise InputError("import", problems)
    for number, (title, figures) in rounds.items():
        writer.new_round(title, "", "", None, number=number)
        why = {"state": "predict", "reason": f"measured before it was logged, imported from {origin}"}
        writer.event("skip", why, round_row(writer.connection, number)["id"])
        run = writer.run(number, None, kind="reported", format="imported")
        writer.measurements(run, figures)
        writer.accuracy(number, "not_checked", note=f"imported from {origin}")
        writer.decision(number, "keep", f"{title}: imported from {origin}".ljust(SHORTEST_REASON), "")
    return list(rounds)


def _rows(path: Path) -> list[tuple[int, Mapping[str, str]]]:
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise InputError(str(path), [f"has {path.stat().st_size} bytes; a table of rounds has at most {LARGEST_BYTES}"])
        text = path.read_bytes().decode("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text, newline=""), skipinitialspace=True, restval="")
        missing = [name for name in COLUMNS[:3] if name not in (reader.fieldnames or ())]
        if missing:
            raise InputError(str(path), [f"has no column {name}; columns are {', '.join(COLUMNS)}" for name in missing])
        return [(reader.line_num, {name: row.get(name) or "" for name in COLUMNS}) for row in reader]
    except OSError as error:
        raise InputError(str(path), [f"cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise InputError(str(path), [f"byte {error.start} is not UTF-8"]) from error
    except csv.Error as error:
        raise InputError(str(path), [f"is no table in CSV: {error}"]) from error


def _figure(path: Path, line: int, row: Mapping[str, Any]) -> tuple[int, Measurement] | list[str]:
    problems = []
    told = row["number"].strip()
    number = int(told) if told.isascii() and told.isdecimal() else None
    if number is None or number >= 2**31:
        problems.append(f"line {line}: number = {row['number']!r} must be a whole number from 0")
    if row["metric"] not in METRIC_UNITS:
        problems.append(f"line {line}: metric = {row['metric']!r} must be one of {', '.join(METRIC_UNITS)}")
    try:
        value = float(row["value"])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        problems.append(f"line {line}: value = {row['value']!r} must be a number in {METRIC_UNITS.get(row['metric'], 'its unit')}")
    if problems or number is None:
        return problems
    return number, Measurement(metric=row["metric"], value=value, source=f"{path.name}, line {line}")
