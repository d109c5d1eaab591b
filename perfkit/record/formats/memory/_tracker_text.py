"""Rows of a MindSpore memory tracker: one block of device memory or one task a line, with moments counted, not timed.

Header and rows end in a comma. Nothing is quoted: a stack with commas shifts what follows it, so columns before it are taken from
the left and columns after it from the right. One counter serves tasks, allocations and releases; -1 stands for a block inside
another one, the largest number of its type for a block that was never released.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader, TextIOWrapper
from operator import ne

import numpy as np
import pandas as pd

from perfkit.core.errors import InputError
from perfkit.record.listing import File

BLOCK_HEAD = b"start_time_stamp,end_time_stamp,device_addr"
TASK_HEAD = b"time_stamp,task_name,node_name"
CLOCK = "events of the allocator"
NEVER = 2**63 - 1
CHUNK_LINES = 200_000
STACK = "python_stack"
BLOCK_REQUIRED = ("start_time_stamp", "end_time_stamp", "device_addr", "size")
_NUMBER = re.compile(r"\s*-?\d{1,20}\s*", re.ASCII)
_USER = re.compile(r"\d{1,18}", re.ASCII)
_USERS = re.compile(r"\s*\{(\d{1,18}-?)*\}\s*", re.ASCII)
OPTIONAL = ("actual_peak_memory", "file_name", "line_num", "last_user_task", "node_name", "pool_type", "producer_task", "stream_id",
            "task_name", "type", "user_tasks", STACK)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Lines:
    """Rows of a file by column: as many as could be told apart, and how many could not."""

    columns: Mapping[str, list[str]]
    misshapen: int

    @property
    def count(self) -> int:
        """Rows told apart."""
        return len(next(iter(self.columns.values()), ()))


def read_lines(file: File, required: tuple[str, ...]) -> Iterator[Lines]:
    """The rows in chunks; InputError if the file is empty, unreadable or lacks a required column."""
    if file.size_bytes == 0:
        raise InputError(file.label, ["the file is empty (0 bytes)"])
    try:
        with file.open() as raw, TextIOWrapper(BufferedReader(raw), "utf-8-sig", errors="replace", newline="\n") as stream:
            names = [name.strip() for name in _whole(stream.readline()).split(",")]
            if missing := [name for name in required if name not in names]:
                raise InputError(
                    file.label, [f"column {name!r} is missing; the file has {', '.join(names[:12])}" for name in missing]
                )
            while lines := stream.readlines(CHUNK_LINES * 100):
                yield _split(lines, names)
    except OSError as error:
        raise InputError(file.label, [f"cannot be read: {error.strerror}"]) from error


def _split(lines: list[str], names: list[str]) -> Lines:
    width = len(names)
    shifting = names.index(STACK) if STACK in names else width
    after = width - shifting - 1
    rows: list[list[str]] = []
    misshapen = 0
    for line in lines:
        text = _whole(line)
        if not text:
            continue
        cells = text.split(",")
        if len(cells) > width and shifting < width:
            middle = ",".join(cells[shifting : len(cells) - after])
            cells = [*cells[:shifting], middle, *cells[len(cells) - after :]]
        if len(cells) != width:
            misshapen += 1
            continue
        rows.append(cells)
    columns = list(zip(*rows, strict=True)) if rows else [()] * width
    return Lines(dict(zip(names, map(list, columns), strict=True)), misshapen)


def _whole(line: str) -> str:
    """A line without its end and the comma before it."""
    return line.rstrip("\r\n").removesuffix(",")


def numbers(texts: list[str]) -> pd.Series:
    """Whole numbers; null for what is none, or does not fit 64 bits."""
    try:
        return pd.Series(np.array(texts, dtype="U").astype(np.int64)).astype("Int64")
    except (ValueError, OverflowError):
        return pd.Series(pd.array([_number(text) for text in texts], dtype="Int64"))


def _number(text: str) -> int | None:
    if not _NUMBER.fullmatch(text):
        return None
    value = int(text)
    return min(value, NEVER) if value >= -1 else None


def misspelt(names: Iterable[str]) -> dict[str, str]:
    """Columns that are one letter from a known one that is absent, and that one: a damaged letter must not lose it unsaid."""
    given = set(names)
    absent = [name for name in OPTIONAL if name not in given]
    return {
        name: known
        for name in sorted(given.difference(OPTIONAL))
        for known in absent
        if len(name) == len(known) and sum(map(ne, name, known)) == 1
    }


def users(texts: list[str]) -> tuple[pd.Series, pd.Series]:
    """How many tasks used each block, and the last of them, from texts such as "{12-15-}"; another or no text: not recorded."""
    found = [[int(number) for number in _USER.findall(text)] for text in texts]
    counts = [len(tasks) if _USERS.fullmatch(text) else None for tasks, text in zip(found, texts, strict=True)]
    found = [[] if count is None else tasks for tasks, count in zip(found, counts, strict=True)]
    last = [max(tasks) if tasks else None for tasks in found]
    return pd.Series(pd.array(counts, dtype="Int64")), pd.Series(pd.array(last, dtype="Int64"))


def text_or_none(texts: list[str]) -> pd.Series:
    """Texts without blanks around them; an empty one is null."""
    return pd.Series([text.strip() or None for text in texts], dtype="object")
