"""Queues of the data pipeline as MindSpore records them: how full each was, by step or by sample.

`device_queue_profiling_N.txt` (the host's queue before the device, with sinking) and `dataset_iterator_profiling_N.txt` (the same
without sinking) hold lines of whole numbers: kind (0 time, 1 queue), capacity, step, size, and in newer versions a moment.
`minddata_aicpu_N.txt` tells how many batches wait on the device when GetNext asks. `minddata_pipeline_raw_N.csv`, or
`pipeline_profiling_N.json`, samples the queue behind every operator of the dataset.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import pandas as pd

from perfkit.core.errors import InputError
from perfkit.record.format import Sink
from perfkit.record.formats.ascend.json import read_json
from perfkit.record.formats.mindinsight._files import RankFiles
from perfkit.record.listing import File

COLUMNS = ("step", "queue", "operator", "parent", "size", "capacity")
LARGEST = 2**31

Row = tuple[int | None, str, str | None, str | None, int, int | None]


def add_queues(group: RankFiles, sink: Sink) -> int:
    """Add all queues of a rank; gives the number of rows."""
    count = 0
    for kind, queue in (("device queue", "host"), ("dataset iterator", "host"), ("data queue", "device")):
        file = group.get(kind)
        if file is None or (kind == "dataset iterator" and group.get("device queue") is not None):
            continue
        rows = _waiting(file, sink) if kind == "data queue" else _connector(file, queue, sink)
        count += _add(rows, group.rank, file, sink)
    for kind, read in (("dataset pipeline", _samples_of_table), ("pipeline profile", _samples_of_json)):
        file = group.get(kind)
        if file is not None and (added := _add(read(file, sink), group.rank, file, sink)):
            return count + added
    return count


def _add(rows: Iterator[Row], rank: int, file: File, sink: Sink) -> int:
    frame = pd.DataFrame(list(rows), columns=list(COLUMNS))
    for name in ("step", "size", "capacity"):
        frame[name] = frame[name].astype("Int64")
    return sink.add("queues", source=file, rank=rank, **{name: frame[name] for name in COLUMNS}) if len(frame) else 0


def _lines(file: File, sink: Sink) -> list[str]:
    try:
        with file.open() as stream:
            return bytes(stream.read()).decode("utf-8", "replace").splitlines()
    except OSError as error:
        sink.drop(f"cannot be read: {error.strerror}", 1, file)
        return []


def _connector(file: File, queue: str, sink: Sink) -> Iterator[Row]:
    bad = 0
    for line in _lines(file, sink):
        numbers = [int(word) if word.isascii() and word.isdigit() else -1 for word in line.split()]
        if not numbers:
            continue
        if len(numbers) < 4 or min(numbers[:4]) < 0 or max(numbers[:4]) >= LARGEST:
            bad += 1
        elif numbers[0] == 1:
            yield numbers[2], queue, None, None, numbers[3], numbers[1]
    if bad:
        sink.drop("lines that are no queue record", bad, file)


def _waiting(file: File, sink: Sink) -> Iterator[Row]:
    """Batches on the device at each GetNext, numbered as the steps that ask."""
    bad = step = 0
    for line in _lines(file, sink):
        words = line.split()
        if not words or "dequeue" not in words[0].lower():
            continue
        if len(words) < 4 or not words[3].isascii() or not words[3].isdigit() or int(words[3]) >= LARGEST:
            bad += 1
            continue
        step += 1
        yield step, "device", None, None, int(words[3]), None
    if bad:
        sink.drop("lines that are no GetNext record", bad, file)


def _samples_of_table(file: File, sink: Sink) -> Iterator[Row]:
    bad = 0
    names: dict[str, str] = {}
    records = []
    for record in csv.DictReader(io.StringIO("\n".join(_lines(file, sink)))):
        number, kind = record.get("op_id"), record.get("op_type")
        if not number or not kind:
            bad += 1
            continue
        names[number] = f"{kind} {number}"
        records.append(record)
    for record in records:
        name, parent = names[record["op_id"]], names.get(record.get("parent_id") or "")
        try:
            sizes = json.loads(record.get("output_queue_size") or "[]")
            capacity = int(record["output_queue_length"]) if record.get("output_queue_length") else None
        except ValueError:
            bad += 1
            continue
        yield from _samples(name, parent, sizes, capacity)
    if bad:
        sink.drop("operators of the dataset that cannot be read", bad, file)


def _samples_of_json(file: File, sink: Sink) -> Iterator[Row]:
    try:
        content, lost = read_json(file, depth=2)
    except InputError as error:
        sink.drop(error.problems[0], 1, file)
        return
    if lost:
        sink.drop("bytes after the end of what is whole", lost, file)
    operators = [item for item in content.get("op_info", ()) if isinstance(item, dict)] if isinstance(content, dict) else []
    names = {item.get("op_id"): f"{item.get('op_type')} {item.get('op_id')}" for item in operators}
    parents = {child: names[item.get("op_id")] for item in operators for child in item.get("children") or ()}
    for item in operators:
        queue = (item.get("metrics") or {}).get("output_queue") or {}
        capacity = queue.get("length")
        yield from _samples(
            names[item.get("op_id")],
            parents.get(item.get("op_id")),
            queue.get("size") or [],
            capacity if isinstance(capacity, int) else None,
        )


def _samples(name: str, parent: str | None, sizes: Any, capacity: int | None) -> Iterator[Row]:
    for size in sizes if isinstance(sizes, list) else []:
        if isinstance(size, int) and 0 <= size < LARGEST:
            yield None, "operator", name, parent, size, capacity
