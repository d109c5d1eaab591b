"""Settings: what differs between the configurations of two sides, and which of five groups of causes a key belongs to.

Two files of one dialect are compared key by key as they are written; files of different dialects, and what runs state about
themselves, by the fields of perfkit's own specs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from perfkit.config.flat_keys import config_keys, difference
from perfkit.core.errors import InputError
from perfkit.core.run import Run
from perfkit.core.spec.plan import Plan

GROUPS: Mapping[str, str] = {
    "device": r"hardware|device_name|devices_per_node|link|npu|gpu",
    "strategy": r"parallel|pipeline|stage|micro_batch|recompute|shard|zero|interleave|sequence_chunks|num_devices|select_",
    "data and batch": r"batch|seq_length|seq_len|dataset|data_loader|epoch|sink|learning|lr|seed|dropout",
    "software": r"jit|context|dtype|_type$|precision|fusion|flash|kernel|deterministic|mode|runner|env|version|optimizer|memory",
    "architecture": r"model|hidden|layers|heads|vocab|ffn|expert|head_size",
}
"""What moves the throughput of a training, by the guides: architecture, strategy, device, software, data and batch."""


def changed(a: Run | Plan, b: Run | Plan) -> list[dict[str, Any]]:
    """Keys that differ: `key`, `old`, `new`, `group`; empty where a side states nothing."""
    if isinstance(a, Plan) and isinstance(b, Plan):
        old, new = _written(a, b)
    else:
        old, new = stated(a), stated(b)
        both = set(old) & set(new)
        old, new = ({key: side[key] for key in both} for side in (old, new))
    rows = difference(*({key: json.dumps(value, default=str) for key, value in side.items()} for side in (old, new)))
    return [{**row, "group": group_of(row["key"])} for row in rows]


def stated(side: Run | Plan) -> dict[str, Any]:
    """What a plan decides, or what a run states about itself, by the names of the specs' fields."""
    plan = side if isinstance(side, Plan) else side.plan
    found: dict[str, Any] = {}
    if plan is not None:
        for part in ("model", "workload", "parallel", "recompute", "optimizer"):
            found |= dict(_flat(getattr(plan, part), part))
        found["num_devices"] = plan.num_devices
        if plan.hardware is not None:
            found["hardware.name"] = plan.hardware.name
    if isinstance(side, Plan):
        return found
    own = {key.rpartition(".")[2]: key for key in found}
    return {**found, **{own.get(name, name): fact.value for name, fact in side.facts.items()}}


def comparable(run: Run, plan: Plan) -> list[dict[str, Any]]:
    """What a run states about itself that is not as planned: `key`, `old` (the run's), `new` (the plan's), `group`."""
    planned = {key.rpartition(".")[2]: (key, value) for key, value in stated(plan).items()}
    rows = []
    for name, value in stated(run).items():
        key, wanted = planned.get(name.rpartition(".")[2], (None, None))
        if key is not None and isinstance(value, int | float) and isinstance(wanted, int | float) and value != wanted:
            rows.append({"key": key, "old": value, "new": wanted, "group": group_of(key)})
    return sorted(rows, key=lambda row: row["key"])


def group_of(key: str) -> str:
    """The group of causes that a key belongs to; "other" for none."""
    plain = key.lower().replace("-", "_")
    head = plain.split(".", maxsplit=1)[0]
    if head == "model" and not re.search(r"dtype|compute_type|flash", plain):
        return "architecture"
    return next((group for group, pattern in GROUPS.items() if re.search(pattern, plain)), "other")


def _written(a: Plan, b: Plan) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keys of two files as written if they are of one dialect, else the fields of the specs."""
    documents = [plan.document for plan in (a, b)]
    if all(document is not None and document.path is not None for document in documents):
        try:
            read = [config_keys(document.path) for document in documents]
        except (InputError, OSError):
            read = []
        if len(read) == 2 and read[0][0] == read[1][0]:
            return read[0][1], read[1][1]
    return stated(a), stated(b)


def _flat(value: Any, prefix: str) -> list[tuple[str, Any]]:
    if is_dataclass(value) and not isinstance(value, type):
        return [pair for item in fields(value) for pair in _flat(getattr(value, item.name), f"{prefix}.{item.name}")]
    return [(prefix, dict(value) if isinstance(value, Mapping) else value)]
