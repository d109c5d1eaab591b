"""Damages: what happens to files of recordings, by chance of a seed, and whether a reader could know it.

A row that is gone from a table, or a digit that has become another one, leaves a file that a profiler could have written: no reader
can tell. So a damaged file counts as legal if every piece of it (object of a JSON, row of a table, line of a log) has a shape that
stands in the whole file too; only then may a total change without a word. A log may begin within a line, as a rotated one does, and
lack any of its lines: which lines a program would have printed nobody can know.
"""

from __future__ import annotations

import csv
import gzip
import json
import random
import re
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

GZIP = b"\x1f\x8b"
SQLITE = b"SQLite format 3\0"
LOG = (".log", ".txt")
JUNK = (b"abc", b"1e30", b"NaN", b"-5", b"{}", b"[]", b"9" * 40, b"-1", b"true", b"1.5.2", b"null", b'"x"', b"")
NUMBER = re.compile(rb'(?<=[:,\s"])-?\d+(?:\.\d+)?(?=[,\s"}\r\n\]])')
_NUMERIC = re.compile(r"\s*\d+(\.\d+)?\s*$")
_DIGITS = re.compile(r"\d+")


def cut(content: bytes, chance: random.Random) -> bytes:
    """The beginning."""
    return content[: chance.randrange(len(content))]


def beheaded(content: bytes, chance: random.Random) -> bytes:
    """The end."""
    return content[chance.randrange(len(content)) :]


def flipped(content: bytes, chance: random.Random) -> bytes:
    """Some bits are others."""
    changed = bytearray(content)
    for _ in range(chance.choice((1, 3, 30))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def without_lines(content: bytes, chance: random.Random) -> bytes:
    """Some lines are gone."""
    lines = content.split(b"\n")
    first = chance.randrange(len(lines))
    return b"\n".join([*lines[:first], *lines[first + chance.choice((1, 2, 10)) :]])


def of_other_types(content: bytes, chance: random.Random) -> bytes:
    """Some numbers are no numbers, or none that can be."""
    numbers = list(NUMBER.finditer(content))
    changed = bytearray(content)
    chosen = chance.sample(numbers, min(len(numbers), chance.choice((1, 5, 100))))
    for found in sorted(chosen, key=lambda found: -found.start()):
        changed[found.start() : found.end()] = chance.choice(JUNK)
    return bytes(changed)


def encoded(content: bytes, chance: random.Random) -> bytes:
    """The same text in another encoding, or with the line ends of another system."""
    name = chance.choice(("utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-32", "cr", "crlf"))
    if name in ("cr", "crlf"):
        return content.replace(b"\r\n", b"\n").replace(b"\n", b"\r" if name == "cr" else b"\r\n")
    return content.decode("utf-8", "replace").encode(name)


def overwritten(content: bytes, chance: random.Random) -> bytes:
    """A block of zeros, of noise, or of another place of the file, as disks and copies leave it."""
    at, length = chance.randrange(len(content)), chance.choice((16, 512, 4096))
    other = chance.randrange(len(content))
    block = chance.choice((bytes(length), chance.randbytes(length), content[other : other + length]))
    return content[:at] + block + content[at + len(block) :]


Damage = Callable[[bytes, random.Random], bytes]
DAMAGES: tuple[Damage, ...] = (cut, beheaded, flipped, without_lines, of_other_types, encoded, overwritten)


def damaged(content: bytes, chance: random.Random) -> tuple[str, bytes]:
    """The name of a damage and what it leaves; a compressed file is damaged as it is, or inside."""
    damage = chance.choice(DAMAGES)
    if content[:2] == GZIP and chance.random() < 0.7:
        return damage.__name__, gzip.compress(damage(gzip.decompress(content), chance), compresslevel=1)
    return damage.__name__, damage(content, chance)


def with_digits_of(whole: bytes, content: bytes) -> bytes:
    """A damaged file of the same length with every digit that was another digit put back: no reader can know those."""
    if content[:2] == GZIP:
        try:
            return gzip.compress(with_digits_of(gzip.decompress(whole), gzip.decompress(content)), compresslevel=1)
        except (OSError, EOFError, zlib.error):
            return content
    if len(content) != len(whole) or content[:16] == SQLITE:
        return content
    digits = b"0123456789"
    return bytes(old if old in digits and new in digits else new for old, new in zip(whole, content, strict=True))


def is_legal(name: str, whole: bytes, content: bytes) -> bool:
    """Whether every piece of a damaged file has a shape that the whole file has too."""
    try:
        known, found = set(_shapes(name, whole)), list(_shapes(name, content))
        torn = name.endswith(LOG) and found and any(shape.endswith(found[0]) for shape in known)
        return set(found[1:] if torn else found) <= known
    except (ValueError, EOFError, OSError, zlib.error, sqlite3.Error, csv.Error, RecursionError):
        return False


def _shapes(name: str, content: bytes) -> Iterator[Any]:
    if content[:2] == GZIP:
        content = gzip.decompress(content)
    if content[:16] == SQLITE:
        yield from _of_database(content)
        return
    text = content.decode("utf-8-sig")
    if name.endswith(".csv"):
        yield from _of_table(text)
    elif not name.endswith(LOG) and text.lstrip()[:1] in ("{", "["):
        yield from _of_tree(json.loads(text))
    else:
        yield from (_DIGITS.sub("0", line) for line in text.splitlines())


def _of_database(content: bytes) -> Iterator[Any]:
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(content)
        database = sqlite3.connect(f"file:{file.name}?mode=ro", uri=True)
        try:
            yield from database.execute("PRAGMA integrity_check")
            for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                for row in database.execute(f'SELECT * FROM "{table}"'):
                    yield table, tuple(_kind(value) for value in row)
        finally:
            database.close()


def _of_table(text: str) -> Iterator[Any]:
    rows = iter(csv.reader(text.splitlines()))
    yield tuple(next(rows, []))
    for row in rows:
        yield len(row)
        yield from ((column, _kind(cell)) for column, cell in enumerate(row))


def _of_tree(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict):
        yield frozenset((key, _kind(value)) for key, value in tree.items())
        for value in tree.values():
            yield from _of_tree(value)
    elif isinstance(tree, list):
        for value in tree:
            yield "item", _kind(value)
            yield from _of_tree(value)


def _kind(value: Any) -> str:
    """What a value is; numbers that are negative or have more digits than any time are kinds of their own."""
    if isinstance(value, bool) or value is None or isinstance(value, (dict, list)):
        return type(value).__name__
    text = str(value)
    if not text.strip():
        return "empty"
    if _NUMERIC.match(text):
        return "number" if len(text.partition(".")[0]) < 20 else "huge"
    return "text" if isinstance(value, (str, bytes)) and not _NUMERIC.match(text.lstrip("-")) else f"odd number {text[:1]}"
