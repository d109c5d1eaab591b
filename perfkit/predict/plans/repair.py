"""Repair: offset and recompute lists that break the rules, what breaks, and the nearest lists that do not.

Everything here proposes; nothing is applied to a file. Lists are those of MindFormers: `offset` against an even split, recompute
counts a stage or a chunk and stage. MindFormers cuts counts that are too large without a word, so that they count as wrong here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Rows = list[list[int]]
MOST = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class ListRepair:
    """A list as it is, what is wrong with it as (rule, sentence), and the nearest valid lists, best first."""

    key: str
    value: Any
    problems: tuple[tuple[str, str], ...]
    nearest: tuple[Any, ...] = ()

    @property
    def is_valid(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def repair_offset(value: Any, num_layers: int, num_stages: int, num_chunks: int = 1) -> ListRepair:
    """Check `offset`; the nearest lists change the fewest layers, and of those the one with the smallest fullest stage comes first.

    Rules: `offset_form`, `offset_length`, `offset_sum`, `offset_1d_with_interleave`, `offset_negative_layers`.
    """
    average, rest = divmod(num_layers, num_stages * num_chunks)
    problems = _offset_problems(value, num_layers, num_stages, num_chunks)
    if not problems:
        return ListRepair(key="offset", value=value, problems=())
    starts = _offset_starts(value, num_stages, num_chunks)
    found = [_with_sum(rows, rest, -average, order) for rows in starts for order in ("level", "last", "first")]
    unique = list({str(rows): rows for rows in found}.values())
    unique.sort(key=lambda rows: (_distance(rows, starts[0]), max(max(row) for row in rows)))
    shown = tuple(rows[0] if num_chunks == 1 else rows for rows in unique[:MOST])
    return ListRepair(key="offset", value=value, problems=tuple(problems), nearest=shown)


def repair_counts(key: str, value: Any, layers: Sequence[Sequence[int]], full: Sequence[Sequence[int]] = ()) -> ListRepair:
    """Check counts of recomputed layers against the layers of every chunk and stage.

    With `full` the counts are of layers behind those recomputed in full (MindSpeed-Core-MS). Rules: `recompute_form`,
    `recompute_length`, `recompute_negative`, `recompute_too_many`.
    """
    if isinstance(value, bool) or value is None:
        return ListRepair(key=key, value=value, problems=())
    stages, chunks = len(layers[0]), len(layers)
    taken = [list(row) for row in full] if full else [[0] * stages for _ in layers]
    rows = _as_rows(value)
    if rows is None:
        return ListRepair(
            key=key, value=value, problems=(("recompute_form", f"{value!r} is no list of whole numbers"),), nearest=(True, False)
        )
    flat = not isinstance(value[0], list)
    room = [[count - less for count, less in zip(row, given, strict=True)] for row, given in zip(layers, taken, strict=True)]
    if flat and chunks > 1:
        room = [[sum(column) for column in zip(*room, strict=True)]]
    problems = _count_problems(rows, room, stages)
    if not problems:
        return ListRepair(key=key, value=value, problems=())
    fitted = [_fitted(row, stages) for row in _fitted_rows(rows, len(room))]
    cut = [
        [min(max(0, count), most) for count, most in zip(row, limits, strict=True)]
        for row, limits in zip(fitted, room, strict=True)
    ]
    return ListRepair(key=key, value=value, problems=tuple(problems), nearest=(cut[0] if flat else cut,))


def _offset_problems(value: Any, num_layers: int, num_stages: int, num_chunks: int) -> list[tuple[str, str]]:
    average, rest = divmod(num_layers, num_stages * num_chunks)
    if isinstance(value, int) and not isinstance(value, bool):
        if value == 0 and rest == 0:
            return []
        sums = f"{num_layers} layers on {num_stages} stages x {num_chunks} chunks leave {rest} to place"
        return [("offset_sum", f"{value} places none of them: {sums}" if value == 0 else f"{value} is no list; {sums}")]
    rows = _as_rows(value)
    if rows is None:
        return [("offset_form", f"{value!r} is no list of whole numbers")]
    problems = []
    if any(len(row) != num_stages for row in rows):
        problems.append(("offset_length", f"{value} must have {num_stages} numbers a list, one a pipeline stage"))
    if num_chunks > 1 and len(rows) == 1 and any(rows[0]):
        problems.append(
            (
                "offset_1d_with_interleave",
                f"{value} is one list for {num_chunks} chunks: it passes the check and is added to every chunk",
            )
        )
    elif len(rows) not in (1, num_chunks):
        problems.append(("offset_length", f"{value} must have {num_chunks} lists, one a virtual chunk"))
    total = sum(map(sum, rows))
    if total != rest:
        problems.append(("offset_sum", f"{value} adds up to {total}; {num_layers} layers leave {rest} beside {average} a chunk"))
    if any(average + extra < 0 for row in rows for extra in row):
        problems.append(("offset_negative_layers", f"{value} leaves a stage with fewer than 0 of its {average} layers"))
    return problems


def _offset_starts(value: Any, num_stages: int, num_chunks: int) -> list[Rows]:
    """Lists of the right shape that are as near as can be; one list may have meant any one chunk, the first or the last."""
    rows = _as_rows(value) or [[0] * num_stages]
    fitted = [_fitted(row, num_stages) for row in rows]
    if len(fitted) != 1 or num_chunks == 1:
        return [_fitted_rows(fitted, num_chunks)]
    empty = [[0] * num_stages for _ in range(num_chunks - 1)]
    return [[fitted[0], *empty], [*empty, fitted[0]]]


def _with_sum(rows: Rows, total: int, lowest: int, order: str) -> Rows:
    """The list with single layers added or taken until it adds up: where it levels the stages, at the end, or at the start."""
    found = [[max(count, lowest) for count in row] for row in rows]
    places = [(chunk, stage) for chunk in range(len(found)) for stage in range(len(found[0]))]
    while (missing := total - sum(map(sum, found))) != 0:
        step = 1 if missing > 0 else -1
        open_places = [(v, s) for v, s in places if step > 0 or found[v][s] > lowest]
        chunk, stage = _next_place(open_places, found, step, order)
        found[chunk][stage] += step if order == "level" else max(missing, lowest - found[chunk][stage]) if step < 0 else missing
    return found


def _next_place(places: list[tuple[int, int]], rows: Rows, step: int, order: str) -> tuple[int, int]:
    if order == "first":
        return places[0]
    if order == "last":
        return places[-1]
    # Later stages hold fewer micro batches: they take a layer first and give one last.
    return min(places, key=lambda place: (step * rows[place[0]][place[1]], -step * place[1], place[0]))


def _count_problems(rows: Rows, room: Rows, stages: int) -> list[tuple[str, str]]:
    if any(len(row) != stages for row in rows) or len(rows) != len(room):
        wanted = f"{len(room)} lists of {stages}" if len(room) > 1 else f"{stages} counts"
        return [("recompute_length", f"{rows if len(rows) > 1 else rows[0]} must have {wanted}, one a pipeline stage")]
    problems = []
    for chunk, (row, limits) in enumerate(zip(rows, room, strict=True)):
        for stage, (count, most) in enumerate(zip(row, limits, strict=True)):
            place = f"stage {stage}, chunk {chunk}" if len(rows) > 1 else f"stage {stage}"
            if count < 0:
                problems.append(("recompute_negative", f"{place}: {count} is negative"))
            elif count > most:
                problems.append(("recompute_too_many", f"{place}: {count} layers of {most} that there are"))
    return problems


def _as_rows(value: Any) -> Rows | None:
    rows = value if isinstance(value, list) and value and isinstance(value[0], list) else [value]
    good = all(isinstance(row, list) and row and all(isinstance(item, int) for item in row) for row in rows)
    return [[int(item) for item in row] for row in rows] if good else None


def _fitted(row: list[int], length: int) -> list[int]:
    """Cut or filled with zeros to a length."""
    return [*row, *[0] * length][:length]


def _fitted_rows(rows: Rows, count: int) -> Rows:
    return [list(row) for row in [*rows, *[[0] * len(rows[0])] * count][:count]]


def _distance(rows: Rows, start: Rows) -> int:
    return sum(abs(a - b) for row, other in zip(rows, start, strict=True) for a, b in zip(row, other, strict=True))
