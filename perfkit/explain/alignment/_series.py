"""Loss series: the losses and gradient norms of one training, from a run that holds a log or from a table in a file.

A series has one row a logged step, ascending. A step that is printed again, after a restart, counts as it was printed last. Losses
that are NaN or infinite stay in the series: they are an answer, not damage.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.run import Run

MAX_BYTES = 200_000_000
TABLES = frozenset({".csv", ".tsv", ".json", ".jsonl"})
NAMES: Mapping[str, tuple[str, ...]] = {
    "step": ("step", "global_step", "iteration", "iter", "steps", "it"),
    "loss": ("loss", "lm_loss", "train_loss", "training_loss", "global_avg_loss", "value"),
    "gradient_norm": ("gradient_norm", "grad_norm", "global_norm", "total_norm", "norm"),
    "tokens": ("tokens", "consumed_tokens", "num_tokens", "tokens_seen"),
    "samples": ("consumed_samples", "samples", "consumed_train_samples"),
    "global_batch_size": ("global_batch_size", "global_batch", "gbs", "train_batch_size", "batch_size"),
    "seq_length": ("seq_length", "sequence_length", "seq_len"),
}
"""Names that a column may have, lower case with underscores and without "train/" in front; the first one found counts."""

_MEANS = {"megatron-log": True, "mindformers-log": False, "torchtitan-log": False}


@dataclass(frozen=True, kw_only=True, slots=True)
class LossSeries:
    """Losses of one training, a row a logged step in `points`.

    `points` has `step` (int64), `loss`, `gradient_norm`, `tokens`, `samples` (float64, NaN where not stated; tokens and samples are
    counted from the start) and `overflow` (bool). `prints_means` says whether a line holds the mean since the line before, None
    where nobody says. `facts` are settings that the log states.
    """

    name: str
    points: pd.DataFrame
    prints_means: bool | None = None
    facts: Mapping[str, int | float | str] | None = None
    notes: tuple[str, ...] = ()

    kind = "measured"
    """What the numbers are, as figures say it."""


def series_of_run(run: Run) -> LossSeries:
    """The losses that the log of a run prints. Raises NotMeasuredError if it prints none.

    Of several ranks the one whose losses are not all 0 and that prints most of them counts: with pipeline stages only the last
    stage knows the loss.
    """
    log = run.frame("log")
    if len(log):
        log = log.assign(loss_is_nan=log["loss_is_nan"].fillna(False).astype(bool))
        log = log[log["loss"].notna() | log["loss_is_nan"] | log["overflow"].fillna(False).astype(bool)]
    if log.empty or not (log["loss"].notna() | log["loss_is_nan"]).any():
        raise NotMeasuredError(
            f"losses: {run.name} prints none",
            how_to_collect="compare training logs, or a table (CSV) with the columns step and loss",
        )
    told = log.assign(real=log["loss_is_nan"] | (log["loss"].notna() & (log["loss"] != 0)))
    counts = told.groupby("rank")["real"].sum()
    rank = int(counts.index.to_numpy()[int(counts.to_numpy().argmax())])
    rows = log[log["rank"] == rank].sort_values("line", kind="stable")
    facts = {name: fact.value for name, fact in run.facts.items()}
    points = pd.DataFrame(
        {
            "step": rows["step"].astype("int64"),
            "loss": rows["loss"].astype("float64"),
            "gradient_norm": rows["gradient_norm"].astype("float64"),
            "tokens": np.nan,
            "samples": _samples(rows, facts.get("global_batch_size")),
            "overflow": rows["overflow"].fillna(False).astype(bool),
        }
    )
    length = facts.get("seq_length")
    if isinstance(length, int) and length > 0:
        points["tokens"] = points["samples"] * length
    notes = [f"losses of rank {rank} are compared"] if log["rank"].nunique() > 1 else []
    return _ordered(run.name, points, notes, prints_means=_MEANS.get(run.format), facts=facts)


def _samples(rows: pd.DataFrame, stated: Any) -> Any:
    """Sequences consumed up to every printed step, as far as the batch is known."""
    batch = rows["global_batch_size"].astype("float64")
    if isinstance(stated, int) and stated > 0:
        batch = batch.fillna(float(stated))
    steps = rows["step"].astype("float64")
    return np.cumsum(batch * steps.diff().fillna(steps.iloc[0]).clip(lower=0)) if len(batch) else batch


def read_table(path: str | Path) -> LossSeries:
    """The losses in a CSV, TSV, JSON or JSON Lines file with columns for step and loss (`NAMES`); without a header: step, loss.

    Cells that are empty are steps without a loss. Raises InputError that says what was looked for and found.
    """
    file = Path(path)
    text = _text(file)
    rows = _json_rows(file, text) if file.suffix.lower() in {".json", ".jsonl"} else _csv_rows(file, text)
    columns = _columns(rows)
    if "loss" not in columns:
        found = ", ".join(map(str, dict.fromkeys(key for row in islice(rows, 5) for key in row))) or "no column"
        raise InputError(str(file), [f"no column of losses: found {found}; wanted one of {', '.join(NAMES['loss'])}"])
    numbers = {name: [_number(row.get(column)) for row in rows] for name, column in columns.items()}
    bad = sum(value is None for value in numbers["loss"])
    steps: Sequence[float | None] = numbers.get("step") or [float(index) for index in range(1, len(rows) + 1)]
    kept = [
        index
        for index, step in enumerate(steps)
        if step is not None and math.isfinite(step) and abs(step) < 2**53 and numbers["loss"][index] is not None
    ]
    if not kept:
        raise InputError(str(file), [f"none of its {len(rows)} rows has both a step and a loss"])
    points = pd.DataFrame({"step": [int(steps[index] or 0) for index in kept], "overflow": False})
    for name in NAMES.keys() - {"step"}:
        found_numbers = numbers.get(name)
        points[name] = [math.nan if not found_numbers or (value := found_numbers[i]) is None else value for i in kept]
    if "samples" not in columns:
        points["samples"] = _samples(points, None)
    if "tokens" not in columns:
        points["tokens"] = points["samples"] * points["seq_length"]
    notes = [f"{len(rows) - len(kept)} row(s) of {file.name} have no step or no loss"] if bad or len(kept) < len(rows) else []
    if "step" not in columns:
        notes.append(f"{file.name} has no column of steps; its rows are counted from 1")
    return _ordered(file.name, points, notes)


def is_loss_table(path: str | Path) -> bool:
    """Whether a file is a table with a column of losses; False for anything that cannot be read as one."""
    file = Path(path)
    if file.suffix.lower() not in TABLES or not file.is_file():
        return False
    try:
        read_table(file)
    except InputError:
        return False
    return True


def _ordered(
    name: str,
    points: pd.DataFrame,
    notes: list[str],
    *,
    prints_means: bool | None = None,
    facts: Mapping[str, int | float | str] | None = None,
) -> LossSeries:
    once = points.drop_duplicates("step", keep="last")
    if len(once) < len(points):
        notes = [*notes, f"{name} prints {len(points) - len(once)} step(s) again, as after a restart; the last print counts"]
    ordered = once.sort_values("step", ignore_index=True)[["step", "loss", "gradient_norm", "tokens", "samples", "overflow"]]
    return LossSeries(name=name, points=ordered, prints_means=prints_means, facts=facts, notes=tuple(notes))


def _text(file: Path) -> str:
    try:
        if file.stat().st_size > MAX_BYTES:
            raise InputError(str(file), [f"has more than {MAX_BYTES // 1_000_000} MB; a table of losses is smaller"])
        return file.read_bytes().decode("utf-8-sig", "replace").replace("\0", "")
    except OSError as error:
        raise InputError(str(file), [f"cannot be read: {error.strerror}"]) from error


def _csv_rows(file: Path, text: str) -> list[dict[str, Any]]:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not lines:
        raise InputError(str(file), ["is empty"])
    mark = max(",\t;", key=lines[0].count)
    mark = mark if mark in lines[0] else " "
    try:
        cells = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=mark, skipinitialspace=True)]
    except csv.Error as error:
        raise InputError(str(file), [f"not a table in CSV: {error}"]) from error
    if all(_number(cell) is not None for cell in cells[0]):
        names = ["loss"] if len(cells[0]) == 1 else ["step", "loss", "gradient_norm"]
        return [dict(zip(names, row, strict=False)) for row in cells]
    if not cells[1:]:
        raise InputError(str(file), [f"has a header ({', '.join(cells[0][:5])}) and no row under it"])
    return [dict(zip(cells[0], row, strict=False)) for row in cells[1:]]


def _json_rows(file: Path, text: str) -> list[dict[str, Any]]:
    try:
        if file.suffix.lower() == ".jsonl":
            found: Any = [json.loads(line) for line in text.splitlines() if line.strip()]
        else:
            found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(str(file), [f"not JSON: {error}"]) from error
    if isinstance(found, dict):
        found = found.get("log_history", found)
    if isinstance(found, dict):
        lists = {key: value for key, value in found.items() if isinstance(value, list)}
        found = [dict(zip(lists, row, strict=False)) for row in zip(*lists.values(), strict=False)]
    rows = [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
    # A trainer writes losses and other events into one list; only rows that state a loss are points of the series.
    loss = _columns(rows).get("loss")
    return [row for row in rows if loss in row] if loss else rows


def _columns(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Which column holds what."""
    keys = dict.fromkeys(key for row in rows for key in row if isinstance(key, str))
    plain: dict[str, str] = {}
    for key in keys:
        plain.setdefault(re.sub(r"^(train|training)/", "", key.strip().lower()).replace(" ", "_").replace("-", "_").strip("_"), key)
    found = {}
    for name, names in NAMES.items():
        column = next((plain[candidate] for candidate in names if candidate in plain), None)
        if column is not None:
            found[name] = column
    return found


def _number(value: Any) -> float | None:
    """The number that a cell holds, NaN and infinity included; None for an empty cell or text."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None
