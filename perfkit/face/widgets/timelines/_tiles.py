"""Tiles on their way to the browser: a reply has a small header and six arrays, and no name twice.

A tile is `(unit, width, index)`: tiles of width w hold 512 buckets of 2^w us, from `base_ns + index x 512 000 ns x 2^w` on. Of
narrow ones (w < 0) the slices are the events themselves, unless they are too many. A slice that touches several tiles is in each
of them, whole; the one in which it begins counts it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from perfkit.face.widgets.timelines._grid import BUCKETS, place_of, width_ns
from perfkit.face.widgets.timelines.data import Timeline, Unit
from perfkit.record import tiles

Arrays = dict[str, npt.NDArray[Any]]


def reply(timeline: Timeline, request: Mapping[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
    """The tiles `first` to `last` of the `units` of a request, as a header and the bytes of its arrays.

    Raises ValueError or LookupError for a request that no page of ours makes.
    """
    width, first, last = place_of(request)
    index: list[dict[str, Any]] = []
    names: dict[str, int] = {}
    kinds: dict[str, int] = {}
    parts: list[Arrays] = []
    begin = 0
    for unit in [timeline.unit(number) for number in request["units"]]:
        part, counts = _placed(timeline, unit, width, (first, last), (names, kinds))
        parts.append(part)
        for number, count in zip(range(first, last + 1), counts, strict=True):
            base = timeline.base_ns + number * width_ns(width)
            index.append({"unit": unit.id, "index": number, "base_ns": str(base), "begin": begin, "count": count})
            begin += count
    header = {"width": width, "first": first, "last": last, "tiles": index, "names": list(names), "kinds": list(kinds)}
    return header, [_bytes(parts, column, dtype) for column, dtype in _COLUMNS]


_COLUMNS = (("start", "<f8"), ("end", "<f8"), ("count", "<f8"), ("busy", "<f8"), ("lane", "<i4"), ("name", "<i4"), ("kind", "<i4"))


def _placed(
    timeline: Timeline, unit: Unit, width: int, span: tuple[int, int], known: tuple[dict[str, int], dict[str, int]]
) -> tuple[Arrays, list[int]]:
    """The slices of a unit tile by tile, offsets from the beginning of each, and how many each tile has.

    Names and kinds are numbers of the reply, -1 for the name of a merged slice.
    """
    size, (first, last), (names, kinds) = width_ns(width), span, known
    start_ns, end_ns = timeline.base_ns + first * size, timeline.base_ns + (last + 1) * size
    window = tiles.coded_window(unit.source, unit.lanes, start_ns, end_ns, BUCKETS * (last - first + 1) + 2)
    rows = window.rows
    starts, ends = rows.start_ns - timeline.base_ns, rows.end_ns - timeline.base_ns
    low = np.clip(starts // size, first, last)
    high = np.clip((np.maximum(ends, starts + 1) - 1) // size, first, last)
    at = np.repeat(np.arange(len(rows)), high - low + 1)
    tile = low[at] + np.arange(len(at)) - np.repeat(np.cumsum(high - low + 1) - (high - low + 1), high - low + 1)
    order = np.argsort(tile, kind="stable")
    at, tile = at[order], tile[order]
    part: Arrays = {
        "start": starts[at] - tile * size,
        "end": ends[at] - tile * size,
        "count": rows.count[at],
        "busy": rows.busy_ns[at],
        "lane": window.lane[at],
        "name": _codes(rows.name, lambda name: None if name < 0 else window.names[name], names)[at],
        "kind": _codes(rows.kinds, window.kind_of, kinds)[at],
    }
    return part, np.bincount(tile - first, minlength=last - first + 1).tolist()


def _codes(codes: npt.NDArray[np.int64], text_of: Callable[[int], str | None], known: dict[str, int]) -> npt.NDArray[np.int64]:
    """Numbers of the reply for the codes of a window; -1 where there is no text."""
    if len(codes) and (codes == codes[0]).all():  # as those of merged slices mostly are; to find that out is cheaper than to sort
        found, places = codes[:1], np.zeros(len(codes), dtype=np.intp)
    else:
        found, places = np.unique(codes, return_inverse=True)
    texts = [text_of(code) for code in found.tolist()]
    numbers = [-1 if text is None else known.setdefault(text, len(known)) for text in texts]
    return np.array(numbers, dtype=np.int64)[places]


def _bytes(parts: Sequence[Arrays], column: str, dtype: str) -> bytes:
    arrays = [part[column].astype(dtype) for part in parts]
    return np.concatenate(arrays).tobytes() if arrays else b""
