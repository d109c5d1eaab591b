"""What a trace format is: how it recognises itself, and how it hands over what it reads.

A format is a module in `formats/` with one constant FORMAT. `detect` looks at a listing and claims files; `read` sends columns
to a `Sink`, which checks them against `schema.py`, counts what it refuses and ends as the tables of a `Run`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import compress
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core.run import Dropped, Fact, Kind, LazyTable, Position
from perfkit.core.schema import TABLES, Column
from perfkit.core.source import Source
from perfkit.record import times
from perfkit.record.accounts import Account
from perfkit.record.listing import File, Listing, printable
from perfkit.record.readers.spool import Spool

Progress = Callable[[str, int, int], None]
"""Called with what is being read, bytes done and bytes in all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """The files that a format claims, those it needs `beside` the listing, and what it found out while claiming them.

    Files beside are settings above the listing (`_state.settings_above`): of others nobody would see that they changed.
    `lazy` says that most of it is read only when asked for, so that there is no whole run to keep; `is_converted` that reading is
    work, so that what was read is worth keeping.
    """

    files: tuple[File, ...]
    details: Any = None
    beside: tuple[File, ...] = ()
    lazy: bool = False
    is_converted: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """A trace format. `detail` orders formats found side by side: 3 events, 2 summaries of ranks, 1 a log, 0 figures in a log.

    `looks_for` says in words what it recognises, for the message to a user whose folder holds none. `offer_again` offers the tables
    that are read later from the recipe that `read` left, without reading more.
    """

    name: str
    title: str
    looks_for: str
    detail: int
    detect: Callable[[Listing], Match | None]
    read: Callable[[Match, Sink], None]
    offer_again: Callable[[Match, Sink, Any], None] | None = None


_MANY_ROWS = 10_000
_PART_ROWS = 131_072


@dataclass
class Sink:
    """Collects the columns that a format reads; everything refused is counted, nothing is lost in silence.

    `later` has tables that the format reads only when they are asked for; what is lost then still goes to `dropped`. `recipe` is
    all that the format must know to offer them again, as JSON; None if it has to read everything anew for that.
    `kind` and `clock` are of a run that perfkit wrote itself; a clock that is None is estimated.
    """

    progress: Progress | None = None
    dropped: list[Dropped] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    placement: dict[int, Position] = field(default_factory=dict)
    facts: dict[str, Fact] = field(default_factory=dict)
    later: dict[str, LazyTable] = field(default_factory=dict)
    recipe: Any = None
    kind: Kind = "measured"
    clock: dict[int, int] | None = None
    _pieces: dict[str, Spool] = field(default_factory=dict)
    _middles: dict[str, int] = field(default_factory=dict)
    _bytes_done: int = 0
    total_bytes: int = 0

    def add(self, table: str, *, source: File | None = None, **columns: Any) -> int:
        """Add rows to `table`: each column a scalar or one array; nullable columns may be left out. Returns the rows kept.

        Rows with a value that its column cannot hold (null where none may be, negative durations or sizes) are dropped and
        counted against `source`.
        """
        schema = TABLES[table]
        unknown = set(columns) - {column.name for column in schema.columns}
        if unknown:
            raise TypeError(f"table {table} has no column {', '.join(sorted(unknown))}")
        rows = max((len(value) for value in columns.values() if _is_array(value)), default=1)
        file = source.label if source else ""
        kept: dict[str, pd.Series] = {}
        bad = np.zeros(rows, dtype=bool)
        for column in schema.columns:
            values = _series(columns.get(column.name), column, rows)
            refused = _refused(values, column)
            if refused is not None and refused.any():
                self.drop(f"{table}.{column.name}: value missing or negative", int((refused & ~bad).sum()), file, table)
                bad |= refused
            kept[column.name] = values
        if {"start_ns", "duration_ns"} <= kept.keys():
            beyond = _ends_beyond_int64(kept["start_ns"], kept["duration_ns"])
            what = f"{table}.duration_ns: the end is no time that 64 bits can hold"
            self.drop(what, int((beyond & ~bad).sum()), file, table)
            bad |= beyond
        if bad.any():
            kept = {name: values[~bad] for name, values in kept.items()}
        for column in schema.columns:
            if column.dtype == "int" and not column.nullable:
                kept[column.name] = kept[column.name].astype("int64")
            elif column.dtype == "text" and rows >= _MANY_ROWS:  # a number each instead of a pointer
                kept[column.name] = kept[column.name].astype("category")
        frame = pd.DataFrame(kept, copy=False)
        if table not in self._pieces:  # to ask how much it may hold takes longer than to fill a small one
            self._pieces[table] = Spool()
        self._pieces[table].append(frame)
        return len(frame)

    def sound(self, table: str, rows: pd.DataFrame, source: File | None) -> pd.DataFrame:
        """The rows of a table of executions whose start and duration can be true; the others are counted as lost.

        To be asked before anything is summed, because what has no time is in no step. `rows` has `start_ns` and `duration_ns`; the
        middle of a recording is that of the first rows of its file.
        """
        file = source.label if source else ""
        if file not in self._middles and (middle_ns := times.middle_of(rows["start_ns"])) is not None:
            self._middles[file] = middle_ns
        timed = times.possible(rows["start_ns"], self._middles.get(file))
        durable = (rows["duration_ns"] >= 0).fillna(False).to_numpy(dtype=bool)
        self.drop(f"{table}.start_ns: missing, or no time of this recording", int((~timed).sum()), file, table)
        self.drop(f"{table}.duration_ns: value missing or negative", int((timed & ~durable).sum()), file, table)
        good = timed & durable
        return rows if good.all() else rows[good]

    def drop(self, what: str, count: int, file: str | File, table: str = "") -> None:
        """Count something that could not be read, rows of `table` if that is named. Nothing happens for a count of 0."""
        if count:
            self.dropped.append(Dropped(what, count, file.label if isinstance(file, File) else printable(file), table))

    def sum_up_losses(self) -> None:
        """Rows of a table that were lost for one reason in one file as one entry: a large file is judged part by part.

        Other things may have been counted by each who opened the file, and are left as they are.
        """
        summed: dict[object, Dropped] = {}
        for place, lost in enumerate(self.dropped):
            key = (lost.what, lost.file, lost.table) if lost.table else place
            summed[key] = replace(lost, count=lost.count + (summed[key].count if key in summed else 0))
        self.dropped[:] = summed.values()

    def note(self, sentence: str) -> None:
        """A sentence for the user about how the run was read; repeated ones are kept once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def fact(self, name: str, value: int | float | str, where: str) -> None:
        """A setting that the run states about itself, with file and field."""
        self.facts[name] = Fact(value=value, source=Source("measured", where))

    def cover(self, rank: int, part: str, file: File | None, *, rows: int | None = None, state: str | None = None) -> None:
        """Say which file answers what for a rank; the state follows from the file unless it is given."""
        if state is None:
            state = "missing" if file is None else "empty" if file.size_bytes == 0 else "present"
        self.add(
            "coverage",
            rank=rank,
            part=part,
            state=state,
            file=file.label if file else None,
            bytes=file.size_bytes if file else None,
            rows=rows,
        )

    def account(self, rank: int, file: File, account: Account) -> None:
        """Say what became of the events of a file that has some."""
        if account.in_file:
            self.add("accounts", rank=rank, file=file.label, **asdict(account))

    def left_out(self, rank: int, file: File, in_file: int, lost: int) -> None:
        """Say that a later file of the same rank replaces this one, whose events are lost beside those that it lost itself."""
        self.drop(f"event of a file that a later one of rank {rank} replaces", in_file - lost, file)
        self.account(rank, file, Account(in_file=in_file, lost=in_file))

    def advance(self, what: str, num_bytes: int) -> None:
        """Report progress after reading `num_bytes`."""
        self._bytes_done += num_bytes
        if self.progress is not None:
            self.progress(what, self._bytes_done, self.total_bytes)

    def leave_out(self, ranks: Collection[int]) -> None:
        """Take back all rows of some ranks, and their placement."""
        for table, pieces in self._pieces.items():
            kept = Spool()
            for frame in pieces:
                kept.append(frame[~frame["rank"].isin(ranks)].reset_index(drop=True))
            self._pieces[table] = kept
        self._pieces = {table: pieces for table, pieces in self._pieces.items() if len(pieces)}
        self.later = {
            name: replace(table, ranks=table.ranks.difference(ranks))
            for name, table in self.later.items()
            if table.ranks - set(ranks)
        }
        self.placement = {rank: place for rank, place in self.placement.items() if rank not in ranks}

    def absorb(self, other: Sink) -> None:
        """Add what another sink collected of other ranks; their placement, progress and tables for later are left there."""
        self.dropped += other.dropped
        for sentence in other.notes:
            self.note(sentence)
        self.facts.update(other.facts)
        for table, pieces in other._pieces.items():
            if table not in self._pieces:
                self._pieces[table] = pieces
                continue
            for frame in pieces:
                self._pieces[table].append(frame)

    def tables(self) -> Mapping[str, pd.DataFrame]:
        """All rows added so far, one frame a table, text as categories."""
        return {name: stacked(list(pieces), texts_of(name)) for name, pieces in self._pieces.items()}

    def pieces(self, table: str) -> Iterator[pd.DataFrame]:
        """The rows added to a table so far, in frames as they came, text not all as categories."""
        return iter(self._pieces.get(table, ()))

    def count(self, table: str) -> int:
        """The rows added to a table so far."""
        return len(self._pieces.get(table, ()))

    def small_tables(self) -> Mapping[str, pd.DataFrame]:
        """Those of `tables` that `large_tables` does not give."""
        return {name: stacked(list(pieces), texts_of(name)) for name, pieces in self._pieces.items() if not pieces.is_spilled}

    def large_tables(self) -> Mapping[str, LazyTable]:
        """The tables that are too large to be held, to be read when they are asked for."""
        return {name: _large(pieces, texts_of(name)) for name, pieces in self._pieces.items() if pieces.is_spilled}


def texts_of(table: str) -> frozenset[str]:
    """The columns of a table that are text."""
    return frozenset(column.name for column in TABLES[table].columns if column.dtype == "text")


def _large(pieces: Spool, texts: Collection[str]) -> LazyTable:
    def read(ranks: Sequence[int] | None, columns: Sequence[str] | None) -> pd.DataFrame:
        chosen = slice(None) if columns is None else list(columns)
        frames = [(frame if ranks is None else frame[frame["rank"].isin(ranks)]).loc[:, chosen] for frame in pieces]
        return stacked(frames, texts)

    ranks = frozenset(int(rank) for frame in pieces for rank in frame["rank"].unique())

    def of_rank(rank: int, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        for frame in pieces:
            yield frame.loc[frame["rank"] == rank, list(columns)]

    return LazyTable(ranks=ranks, num_rows=len(pieces), read=read, parts=lambda: _parts(pieces, texts), pieces=of_rank)


def _parts(pieces: Spool, texts: Collection[str]) -> Iterator[pd.DataFrame]:
    """The rows in frames of at least `_PART_ROWS`, but for the last one."""
    ready: list[pd.DataFrame] = []
    for frame in pieces:
        ready.append(frame)
        if sum(map(len, ready)) >= _PART_ROWS:
            yield stacked(ready, texts)
            ready = []
    if ready:
        yield stacked(ready, texts)


def stacked(frames: Sequence[pd.DataFrame], texts: Collection[str] = ()) -> pd.DataFrame:
    """Frames of equal columns as one, `texts` as categories; column by column, so that none is there twice for long."""
    columns: dict[str, pd.Series] = {}
    names = list(frames[0].columns)
    left = [dict(frame.items()) for frame in frames]
    del frames
    for name in names:
        pieces = [each.pop(name) for each in left]
        text = name in texts or any(isinstance(piece.dtype, pd.CategoricalDtype) for piece in pieces)
        columns[str(name)] = pd.Series(joined_categories(pieces)) if text else _joined(pieces)
    return pd.DataFrame(columns, copy=False)


def _joined(pieces: Sequence[pd.Series]) -> pd.Series:
    """As `pd.concat`, which takes ten times as long for many short pieces of one type."""
    if len(pieces) == 1:
        return pieces[0].reset_index(drop=True)
    dtypes = {piece.dtype for piece in pieces}
    if dtypes == {pd.Int64Dtype()}:
        values = np.concatenate([piece.to_numpy(dtype=np.int64, na_value=0) for piece in pieces])
        return pd.Series(pd.arrays.IntegerArray(values, np.concatenate([piece.isna().to_numpy() for piece in pieces])))
    if dtypes in ({np.dtype("int64")}, {np.dtype("float64")}):
        return pd.Series(np.concatenate([piece.to_numpy() for piece in pieces]), copy=False)
    return pd.concat(pieces, ignore_index=True)


def _ends_beyond_int64(start_ns: pd.Series, duration_ns: pd.Series) -> np.ndarray:
    starts = start_ns.fillna(0).to_numpy(dtype=np.int64)
    beyond: np.ndarray = (starts > 0) & (
        duration_ns.fillna(0).to_numpy(dtype=np.int64) > np.iinfo(np.int64).max - np.maximum(starts, 0)
    )
    return beyond


def _is_array(value: Any) -> bool:
    return isinstance(value, (pd.Series, np.ndarray, list, tuple, pd.api.extensions.ExtensionArray, pd.Index))


def _series(value: Any, column: Column, rows: int) -> pd.Series:
    dtype: Any = {"int": "Int64", "float": "float64", "flag": "boolean", "text": "object"}[column.dtype]
    if (value is None or value is pd.NA) and column.dtype == "text" and rows >= _MANY_ROWS:
        return pd.Series(pd.Categorical.from_codes(np.full(rows, -1, dtype=np.int8), categories=pd.Index([], dtype="object")))
    if value is None or value is pd.NA:
        return _nulls(column, rows)
    if _is_array(value):
        # A list with nulls would become float64, which cannot hold times of the epoch to the ns.
        series = pd.Series(np.array(value, dtype="object") if isinstance(value, (list, tuple)) else value)
        if not (type(series.index) is pd.RangeIndex and series.index.start == 0 and series.index.step == 1):
            series = series.reset_index(drop=True)
        if len(series) == 1 and rows != 1:
            series = pd.Series([series.iloc[0]] * rows)
        held = series.dtype == dtype or (column.dtype == "text" and isinstance(series.dtype, pd.CategoricalDtype))
        return series if held else series.astype(dtype)
    if column.dtype == "int" and type(value) is int and abs(value) < 2**63:
        return pd.Series(pd.arrays.IntegerArray(np.full(rows, value, dtype=np.int64), np.zeros(rows, dtype=bool)))
    scalar: pd.Series = pd.Series([value] * rows, dtype=dtype)
    return scalar


def _nulls(column: Column, rows: int) -> pd.Series:
    """So many nulls as a column holds them."""
    if column.dtype == "int":
        return pd.Series(pd.arrays.IntegerArray(np.ones(rows, dtype=np.int64), np.ones(rows, dtype=bool)))
    if column.dtype == "flag":
        return pd.Series(pd.arrays.BooleanArray(np.zeros(rows, dtype=bool), np.ones(rows, dtype=bool)))
    return pd.Series(np.full(rows, np.nan)) if column.dtype == "float" else pd.Series([None] * rows, dtype="object")


def joined_categories(pieces: Sequence[pd.Series]) -> pd.Categorical:
    """Columns of text, one after the other, as categories in ascending order of which each is used."""
    parts = [piece.array if isinstance(piece.array, pd.Categorical) else pd.Categorical(piece) for piece in pieces]
    texts = [part.categories.tolist() for part in parts]  # an index gives its texts one by one far more slowly
    used = [np.bincount(part.codes[part.codes >= 0], minlength=len(part.categories)) > 0 for part in parts]
    known = sorted({text for each, seen in zip(texts, used, strict=True) for text in compress(each, seen)}, key=str)
    place = {text: index for index, text in enumerate(known)}
    codes = [np.array([*(place.get(text, -1) for text in each), -1])[part.codes] for each, part in zip(texts, parts, strict=True)]
    return pd.Categorical.from_codes(np.concatenate(codes), categories=pd.Index(known, dtype=None if known else "object"))


def _refused(values: pd.Series, column: Column) -> np.ndarray | None:
    """Which values a column cannot hold; None for one that holds all of its type."""
    refused: np.ndarray | None = None if column.nullable else values.isna().to_numpy()
    if column.dtype == "int" and column.name.endswith(("duration_ns", "amount_ns", "bytes", "wait_ns", "transit_ns")):
        negative = values.to_numpy(dtype=np.int64, na_value=0) < 0
        refused = negative if refused is None else refused | negative
    return refused
