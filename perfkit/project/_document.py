"""Document: the keys of perfkit.toml, what their values may be, and how two edits of one file are merged.

A document is the nested dict of a TOML file. Keys are dotted here (`goal.value`). Unknown keys stay in the document and are
written back; comments are not, because TOML readers do not see them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

GOAL_METRICS = ("tokens_per_s_per_device", "step_time_ns", "mfu")
FREE_TABLES = ("pages", "samples", "thresholds")
"""Tables whose keys are data; their values are checked where they are read."""

LONGEST_TEXT = 10_000
LARGEST_INT = 2**63 - 1

Document = dict[str, Any]
Check = Callable[[Any], bool]


def is_text(value: Any) -> bool:
    """Whether `value` is text that UTF-8 can hold and that is not longer than 10 000 characters."""
    if not isinstance(value, str) or len(value) > LONGEST_TEXT:
        return False
    return not any("\ud800" <= character <= "\udfff" for character in value)


def is_whole(value: Any, low: int) -> bool:
    """Whether `value` is an int of at least `low` that fits into 64 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= LARGEST_INT


def is_number(value: Any) -> bool:
    """Whether `value` is a finite number greater than 0."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def is_scalar(value: Any) -> bool:
    """Whether pages may remember `value`: text, a flag, a 64-bit int or a finite float."""
    if isinstance(value, float):
        return math.isfinite(value)
    return is_text(value) or isinstance(value, bool) or is_whole(value, -LARGEST_INT)


KEYS: Mapping[str, tuple[str, Check, str]] = {
    "name": ("name", lambda value: is_text(value) and bool(value.strip()), "a text that is not empty"),
    "goal.metric": ("goal_metric", lambda value: value in GOAL_METRICS, f"one of {', '.join(GOAL_METRICS)}"),
    "goal.op": ("goal_op", lambda value: value in (">=", "<="), "'>=' or '<='"),
    "goal.value": ("goal_value", is_number, "a number greater than 0"),
    "device.peak_flops_per_s": ("peak_flops_per_s", is_number, "a number greater than 0, in FLOP/s"),
    "device.memory_bytes": ("device_memory_bytes", lambda value: is_whole(value, 1), "a whole number of bytes, at least 1"),
    "device.usable_limit_bytes": ("usable_limit_bytes", lambda value: is_whole(value, 1), "a whole number of bytes, at least 1"),
    "convention.attention": ("attention", lambda value: value in ("full", "causal"), "'full' or 'causal'"),
    "convention.count_head": ("count_head", lambda value: isinstance(value, bool), "true or false"),
    "cycle.order": ("cycle_order", lambda value: value in ("newer", "classic"), "'newer' or 'classic'"),
    "open.run": ("open_run", lambda value: is_text(value) and bool(value), "a path"),
    "open.config": ("open_config", lambda value: is_text(value) and bool(value), "a path"),
    "open.recent": ("recent", lambda value: isinstance(value, list) and all(map(is_text, value)), "a list of paths"),
    "open.round": ("open_round", lambda value: is_whole(value, 0), "a round number, at least 0"),
    "samples.case": ("sample_case", is_text, "a text"),
}
"""Dotted key: the field of `Project`, the check, and what would be right."""


def problems_of(document: Mapping[str, Any]) -> list[str]:
    """Every key of `document` with a value that it cannot have."""
    problems = []
    for key, (_, is_right, right) in KEYS.items():
        table, _, _ = key.rpartition(".")
        if table and not isinstance(document.get(table, {}), Mapping):
            problems.append(f"{table} = {document[table]!r} must be a table, as in [{table}]")
        elif (value := lookup(document, key)) is not None and not is_right(value):
            problems.append(f"{key} = {value!r} must be {right}")
    pages = document.get("pages", {})
    if not isinstance(pages, Mapping):
        problems.append(f"pages = {pages!r} must be a table, as in [pages]")
    else:
        problems += [
            f"pages.{key} = {value!r} must be one text, number or flag" for key, value in pages.items() if not is_scalar(value)
        ]
    memory, limit = lookup(document, "device.memory_bytes"), lookup(document, "device.usable_limit_bytes")
    if is_whole(memory, 1) and is_whole(limit, 1) and limit > memory:
        problems.append(f"device.usable_limit_bytes = {limit} is more than device.memory_bytes = {memory}")
    return list(dict.fromkeys(problems))


def unknown_keys(document: Mapping[str, Any]) -> list[str]:
    """Dotted keys that perfkit does not read, in the order of the file."""
    return [".".join(path) for path, _ in leaves(document) if path[0] not in FREE_TABLES and ".".join(path) not in KEYS]


def lookup(document: Mapping[str, Any], key: str) -> Any:
    """The value of a dotted key, or None."""
    found: Any = document
    for part in key.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return None
        found = found[part]
    return found


def leaves(document: Mapping[str, Any], parents: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Paths and values of everything that is no table."""
    for key, value in document.items():
        if isinstance(value, Mapping):
            yield from leaves(value, (*parents, key))
        else:
            yield (*parents, key), value


def changed(document: Mapping[str, Any], values: Mapping[tuple[str, ...], Any]) -> Document:
    """A copy of `document` with `values` set by path; None removes."""
    result: Document = copy.deepcopy(dict(document))
    for path, value in values.items():
        table = result
        for part in path[:-1]:
            child = table.get(part)
            if not isinstance(child, dict):
                child = table[part] = {}
            table = child
        if value is None:
            table.pop(path[-1], None)
        else:
            table[path[-1]] = value
    return result


def merge(base: Mapping[str, Any], mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> tuple[Document, list[str]]:
    """`theirs` with the changes from `base` to `mine`, and the keys that both changed to different values."""
    old, ours, other = dict(leaves(base)), dict(leaves(mine)), dict(leaves(theirs))
    edits = {path: ours.get(path) for path in {**old, **ours} if old.get(path) != ours.get(path)}
    conflicts = [
        f"{'.'.join(path)}: you set {_shown(value)}, meanwhile the file got {_shown(other.get(path))}"
        for path, value in edits.items()
        if other.get(path) not in (old.get(path), value)
    ]
    return changed(theirs, edits), conflicts


def _shown(value: Any) -> str:
    return "nothing" if value is None else repr(value)
