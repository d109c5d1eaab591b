"""Memory table: the peak of every row of a table of plans, as the counter reports it that the row names.

Columns are those of `data/reference/memory.csv`. `memory_kind` says what is counted (between steps, at most, by the driver, or the
tensors of a formula) and `memory_scope` on which device.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from perfkit.core.breakdown import Breakdown
from perfkit.core.errors import InputError
from perfkit.predict.cost.table_names import with_usual_names
from perfkit.predict.memory._rows import MemoryRow, read_row
from perfkit.predict.memory.counters import COUNTED
from perfkit.predict.memory.memory import MemoryEstimate, peak_memory


def predict_memory(frame: pd.DataFrame) -> pd.Series[float]:
    """Bytes of every row, with the index of `frame`. Raises InputError with all problems of all rows."""
    frame = with_usual_names(frame)
    known: dict[tuple[Any, ...], float] = {}
    problems, found = [], []
    for index, row in zip(frame.index, frame.to_dict("records"), strict=True):
        key = tuple(str(value) for name, value in row.items() if name not in ("row_id", "peak_memory_bytes"))
        if key not in known:
            try:
                known[key] = predict_row({str(name): value for name, value in row.items()}).total
            except InputError as error:
                name = row.get("row_id", index)
                problems += [f"row {name}: {problem}" for problem in error.problems]
                known[key] = 0.0
        found.append(float(known[key]))
    if problems:
        raise InputError("memory table", problems)
    return pd.Series(found, index=frame.index, name="predicted_memory_bytes", dtype=float)


def predict_row(row: dict[str, Any]) -> Breakdown:
    """What the counter of one row is made of, in bytes."""
    read = read_row(row)
    return counted(read, peak_memory(read.plan, settings=read.settings))


def counted(row: MemoryRow, estimate: MemoryEstimate) -> Breakdown:
    """The part of the estimate that the row's counter sees, on the row's device."""
    stages = [_seen(stage, row) for stage in estimate.stages]
    if row.scope != "fullest":
        return stages[0 if row.scope == "first" else -1]
    return max(stages, key=lambda stage: stage.total)


def _seen(stage: Breakdown, row: MemoryRow) -> Breakdown:
    parts = {path: amount for path, amount in stage.parts.items() if path.startswith(COUNTED[row.counter])}
    return Breakdown(stage.unit, parts, stage.source)
