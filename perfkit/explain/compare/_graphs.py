"""Graph dumps compared: files of both sides paired by name, and what appeared, went and moved in each pair."""

from __future__ import annotations

import re
from typing import Any

from perfkit.core.errors import InputError
from perfkit.core.shortening import enumerated
from perfkit.explain.graph import GraphReport, compare_graphs

_NUMBERS = re.compile(r"\d+")


def pairs(a: GraphReport, b: GraphReport) -> list[tuple[str, str]]:
    """Names of the files that belong together: equal names, else equal up to their numbers, else the only ones of both.

    Raises InputError if no file of one side has a partner.
    """
    if len(a.files) == 1 and len(b.files) == 1:
        return [(next(iter(a.files)), next(iter(b.files)))]
    found = [(name, name) for name in a.files if name in b.files]
    taken = {name for name, _ in found}
    by_shape: dict[str, list[str]] = {}
    for name in b.files:
        if name not in taken:
            by_shape.setdefault(_NUMBERS.sub("#", name), []).append(name)
    for name in a.files:
        waiting = by_shape.get(_NUMBERS.sub("#", name), [])
        if name not in taken and waiting:
            found.append((name, waiting.pop(0)))
    if not found:
        raise InputError(
            "compare", [f"no file of {a.path} ({enumerated(a.files, 4)}) has a partner in {b.path} ({enumerated(b.files, 4)})"]
        )
    return found


def graphs_document(a: GraphReport, b: GraphReport) -> dict[str, Any]:
    """The differences of all pairs in one document: sums of `parts`, and the lists with the file that each entry is in."""
    paired = pairs(a, b)
    amounts: dict[str, list[int | None]] = {}
    lists: dict[str, list[Any]] = {"added": [], "removed": [], "moved": [], "changed": []}
    counts = [0, 0]
    for first, second in paired:
        document = compare_graphs(a.files[first], b.files[second]).to_json()
        counts = [count + document["total"][side] for count, side in zip(counts, ("a", "b"), strict=True)]
        for part in document["parts"]:
            sums = amounts.setdefault(part["path"], [0, 0])
            for index, side in enumerate(("a", "b")):
                before, value = sums[index], part[side]
                sums[index] = None if before is None or value is None else before + value
        for name, entries in lists.items():
            entries += [{**entry, "file": second} for entry in document[name]]
    unpaired = len(a.files) + len(b.files) - 2 * len(paired)
    return {
        "kind": "graphs",
        "unit": "bytes",
        "total": {
            "a": counts[0],
            "b": counts[1],
            "delta": counts[1] - counts[0],
            "ratio": counts[1] / counts[0] if counts[0] else None,
            "unit": "operators",
        },
        "parts": [
            {"path": path, "a": old, "b": new, "delta": None if old is None or new is None else new - old}
            for path, (old, new) in amounts.items()
        ],
        "beyond_noise": None if not any(lists.values()) else True,
        "config": [],
        **lists,
        "notes": [f"{unpaired} file(s) have no partner on the other side and were left out"] if unpaired else [],
    }
