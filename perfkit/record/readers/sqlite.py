"""SQLite databases of profilers, read only and column by column; what a damaged or foreign one lacks is told, never raised later.

A database is opened as immutable, so that nothing is written beside a recording, not even a lock. Only ordinary tables are read:
a view of a foreign file could hold any query. SQLite lets a cell of any column hold any type, so cells are checked one by one.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

import numpy as np
import pandas as pd

from perfkit.core.errors import InputError
from perfkit.record.format import Sink
from perfkit.record.listing import File

MAGIC = b"SQLite format 3\x00"
COMPANIONS = ("-wal", "-shm", "-journal")
"""Ends of the names of files that SQLite keeps beside a database that is open; who only read one may leave them."""
CHUNK_ROWS = 100_000
INT64 = 2**63
_SIZES = ((16, 2), (24, 4), (28, 4), (92, 4))
"""Where the header has the size of a page, the counter of changes, the number of pages, and the counter for which that holds."""
DAMAGE = (sqlite3.Error, UnicodeDecodeError)
"""What reading a damaged file raises: the library's own words of it may hold bytes of the file."""
_WHOLE = re.compile(r"-?[0-9]{1,19}")

Cell = Literal["int", "text", "any"]
"""What a column holds: whole numbers (also as decimal text), text (also numbers, as text), or values as they are."""


def cells(*, ints: Iterable[str] = (), texts: Iterable[str] = (), values: Iterable[str] = ()) -> dict[str, Cell]:
    """Columns to read, by what they hold."""
    wanted: dict[str, Cell] = dict.fromkeys(ints, "int")
    wanted.update(dict.fromkeys(texts, "text"))
    wanted.update(dict.fromkeys(values, "any"))
    return wanted


@dataclass
class Database:
    """An open database: its tables with their columns (names in lower case, as SQLite compares them), and what was lost."""

    file: File
    connection: sqlite3.Connection
    tables: Mapping[str, Mapping[str, str]]
    lost: Counter[tuple[str, str]] = field(default_factory=Counter)

    def has(self, table: str) -> bool:
        """Whether there is a table of that name."""
        return table.lower() in self.tables

    def count(self, table: str) -> int:
        """Rows of a table; 0 if there is none or it is damaged."""
        if not self.has(table):
            return 0
        try:
            return int(self.connection.execute(f"SELECT count(*) FROM {_quoted(table)}").fetchone()[0])
        except DAMAGE:
            return 0

    def read(self, table: str, columns: Mapping[str, Cell]) -> pd.DataFrame:
        """Columns of a table by name, null where it has no such column; no rows if there is no such table.

        A cell that is no number where one belongs is null and counted. A damaged table ends at its damage, which is counted too.
        """
        found = self.tables.get(table.lower(), {})
        present = [name for name in columns if name.lower() in found]
        pieces = [self._frame(table, columns, {})]
        pieces += [
            self._frame(table, columns, dict(zip(present, chunk, strict=True)))
            for chunk in self._chunks(table, [found[name.lower()] for name in present])
        ]
        return pd.concat(pieces[1:] or pieces, ignore_index=True)

    def report(self, sink: Sink) -> None:
        """Count what was lost against the file."""
        for (what, of_table), count in self.lost.items():
            sink.drop(what, count, self.file, of_table)
        self.lost.clear()

    def _chunks(self, table: str, names: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
        if not names:
            return
        try:
            cursor = self.connection.execute(f"SELECT {', '.join(map(_quoted, names))} FROM {_quoted(table)}")
            while rows := cursor.fetchmany(CHUNK_ROWS):
                yield list(zip(*rows, strict=True))
        except DAMAGE as error:
            self.lose({f"table {table}: damaged from some row on ({error})": 1})

    def _frame(self, table: str, columns: Mapping[str, Cell], cells: Mapping[str, Sequence[Any]]) -> pd.DataFrame:
        rows = len(next(iter(cells.values()), ()))
        return pd.DataFrame(
            {name: self._column(table, name, cells.get(name, [None] * rows), kind) for name, kind in columns.items()}
        )

    def _column(self, table: str, name: str, values: Sequence[Any], kind: Cell) -> pd.Series:
        if kind == "any":
            return pd.Series(list(values), dtype="object")
        if kind == "text":
            return pd.Series([value if value is None or isinstance(value, str) else str(value) for value in values], dtype="object")
        numbers = np.array(values) if values else np.zeros(0, dtype=np.int64)
        if numbers.dtype == np.int64:
            return pd.Series(numbers).astype("Int64")
        whole = [_whole(value) for value in values]
        bad = sum(number is None and value not in (None, "", "N/A") for number, value in zip(whole, values, strict=True))
        if bad:
            self.lose({f"{table}.{name}: not a whole number": bad})
        return pd.Series(np.array(whole, dtype="object")).astype("Int64")

    def lose(self, counts: Mapping[str, int], of_table: str = "") -> None:
        """Count what a reader of its tables could not use; rows of a table of the run if that is named."""
        for what, count in counts.items():
            self.lost[what, of_table] += count


@contextmanager
def open_database(file: File) -> Iterator[Database]:
    """Open a database for reading; InputError if it is empty, no database, or damaged where its tables are listed."""
    if file.size_bytes == 0:
        raise InputError(file.label, ["the file is empty (0 bytes)"])
    if not file.head.startswith(MAGIC):
        raise InputError(file.label, [f"is no SQLite database; it begins with {file.head[:16]!r}"])
    try:
        connection = sqlite3.connect(f"file:{quote(str(file.path.resolve()))}?mode=ro&immutable=1", uri=True)
    except (sqlite3.Error, ValueError) as error:
        raise InputError(file.label, [f"cannot be opened: {error}"]) from error
    with closing(connection):
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        try:
            connection.execute("PRAGMA trusted_schema=OFF")
            tables = _tables(connection)
        except DAMAGE as error:
            raise InputError(file.label, [f"is damaged: {error}"]) from error
        database = Database(file, connection, tables)
        if (missing := _said_bytes(file.head) - file.path.stat().st_size) > 0:
            database.lose({"bytes that its header counts and that are not there": missing})
        yield database


def table_names(file: File) -> frozenset[str]:
    """The names of its tables in lower case; none if the content is no database or cannot be read."""
    if not file.head.startswith(MAGIC):
        return frozenset()
    try:
        with open_database(file) as database:
            return frozenset(database.tables)
    except InputError:
        return frozenset()


def _said_bytes(head: bytes) -> int:
    """The size that the header gives (https://www.sqlite.org/fileformat.html, 1.3), 0 where an old program left it wrong."""
    page, written, pages, valid = (int.from_bytes(head[first : first + length]) for first, length in _SIZES)
    return (65536 if page == 1 else page) * pages if written == valid else 0


def unwritten(file: File) -> bool:
    """Whether the program that wrote a database left rows in a log beside it, which a read-only opening does not see."""
    log = file.path.with_name(file.path.name + "-wal")
    return log.is_file() and log.stat().st_size > 0


def _tables(connection: sqlite3.Connection) -> dict[str, dict[str, str]]:
    names = [
        str(name)
        for name, sql in connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
        if not str(sql).upper().lstrip().startswith("CREATE VIRTUAL")
    ]
    return {
        name.lower(): {str(row[1]).lower(): str(row[1]) for row in connection.execute(f"PRAGMA table_info({_quoted(name)})")}
        for name in names
    }


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _whole(value: Any) -> int | None:
    if (isinstance(value, float) and value.is_integer()) or (isinstance(value, str) and _WHOLE.fullmatch(value.strip())):
        value = int(value)
    return value if isinstance(value, int) and -INT64 <= value < INT64 else None
