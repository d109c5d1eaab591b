"""Host: which operator made a call, and the shapes of its inputs as the table `kernels` has them.

Operators of one thread nest. The operator of a call is the innermost one of its thread that runs when the call begins.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.int64]
NONE = -1
_SPANS_AT_ONCE = 65_536
"""Numbers of Python take eight times the memory of those in an array."""


def innermost(starts: Ints, ends: Ints, threads: Ints, moments: Ints, moment_threads: Ints) -> Ints:
    """The position of the innermost span around each moment on its thread; NONE where there is none. Spans may end late."""
    found = np.full(len(moments), NONE, dtype=np.int64)
    for thread in np.unique(moment_threads):
        spans, wanted = np.flatnonzero(threads == thread), np.flatnonzero(moment_threads == thread)
        if len(spans):
            order = spans[np.lexsort((-ends[spans], starts[spans]))]
            found[wanted] = _innermost_of(starts, ends, order, moments[wanted])
    return found


def parents_of(starts: Ints, ends: Ints, threads: Ints) -> Ints:
    """The position of the innermost other span around each one on its thread; NONE for an outermost one."""
    found = np.full(len(starts), NONE, dtype=np.int64)
    for thread in np.unique(threads):
        spans = np.flatnonzero(threads == thread)
        order = spans[np.lexsort((-ends[spans], starts[spans]))]
        parents = _parents(starts[order], ends[order])
        found[order] = np.where(parents == NONE, NONE, order[parents])
    return found


def _innermost_of(starts: Ints, ends: Ints, order: Ints, moments: Ints) -> Ints:
    parents = _parents(starts[order], ends[order])
    at = np.searchsorted(starts[order], moments, side="right") - 1
    open_at = at.copy()
    for _ in range(len(order) + 1):
        late = np.flatnonzero(open_at >= 0)
        late = late[ends[order[open_at[late]]] <= moments[late]]
        if not len(late):
            break
        open_at[late] = parents[open_at[late]]
    return np.where(open_at >= 0, order[open_at], NONE)


def _parents(starts: Ints, ends: Ints) -> Ints:
    """The span around each one, by position; spans are in order of their starts, outer ones first."""
    parents: Ints = np.full(len(starts), NONE, dtype=np.int64)
    stack: list[tuple[int, int]] = []
    for first in range(0, len(starts), _SPANS_AT_ONCE):
        some = slice(first, first + _SPANS_AT_ONCE)
        found: list[int] = []
        for index, (start, end) in enumerate(zip(starts[some].tolist(), ends[some].tolist(), strict=True), first):
            while stack and stack[-1][1] <= start:
                stack.pop()
            found.append(stack[-1][0] if stack else NONE)
            stack.append((index, end))
        parents[some] = found
    return parents


def shapes_text(dims: str | None) -> str | None:
    """Shapes such as "[[16, 4], [], [8]]" as "16,4;;8", the form of the table `kernels`; None for what is no list."""
    if dims is None:
        return None
    try:
        shapes: Any = json.loads(dims)
    except (ValueError, RecursionError):
        return _plain(dims)
    if not isinstance(shapes, list):
        return None
    return ";".join(",".join(map(str, shape)) if isinstance(shape, list) else "" for shape in shapes)


def types_text(types: str | None) -> str | None:
    """'["float", "c10::BFloat16"]' as "float;c10::BFloat16"."""
    if types is None:
        return None
    try:
        names: Any = json.loads(types)
    except (ValueError, RecursionError):
        return _plain(types)
    return ";".join(str(name) for name in names) if isinstance(names, list) else None


def _plain(text: str) -> str:
    return text.replace("\r", "").replace("\n", "").rstrip(";")


def each(texts: pd.Series, change: Any) -> pd.Series:
    """`change` of every text, called once a distinct one."""
    labels = pd.Categorical(texts).remove_unused_categories()
    changed = np.array([*map(change, labels.categories.tolist()), None], dtype="object")
    return pd.Series(pd.Categorical(changed)).take(labels.codes).reset_index(drop=True).set_axis(texts.index)
