"""Run: tables of what happened on every rank, whether measured, simulated or reported.

Every chart, rule and page takes a `Run` and never asks where it came from. Tables and columns are those of `schema.py`; frames
are pandas. `step_parts` holds the leaves of every step, so that a breakdown is read, not computed, here. The tables of a recording
may be lazy (`LazyTables`): then only what a frame needs is read, and pandas is imported by the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from threading import RLock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from perfkit.core.breakdown import Breakdown
from perfkit.core.display import text_table
from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.questions import ASKED, Questions, nearest
from perfkit.core.schema import TABLES, pandas_dtype
from perfkit.core.shown import Shown
from perfkit.core.source import Source
from perfkit.core.units import format_bytes

if TYPE_CHECKING:
    import pandas as pd

    from perfkit.core.spec.plan import Plan

Kind = Literal["measured", "simulated", "reported"]


@dataclass(frozen=True, slots=True)
class Dropped:
    """What a reader or the profiler lost: never silent.

    `table` names the table whose rows these would have been, so that rows kept and rows lost add up to those of the file; "" where
    other things than rows were counted: bytes, cells, files.
    """

    what: str
    count: int
    file: str
    table: str = ""

    @property
    def in_bytes(self) -> bool:
        """Whether bytes were counted, which are no number of items."""
        return self.what.startswith("bytes ")


@dataclass(frozen=True, kw_only=True, slots=True)
class Position:
    """Where a rank stands in the parallel layout; None where the run does not say."""

    data: int | None = None
    tensor: int | None = None
    pipeline: int | None = None
    context: int | None = None
    expert: int | None = None
    node: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """A setting of the job that a run states about itself, for example `seq_length`, with its origin."""

    value: int | float | str
    source: Source


Read = Callable[[Sequence[int] | None, Sequence[str] | None], "pd.DataFrame"]
"""Reads the rows of some ranks and some columns of a table; None stands for all of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LazyTable:
    """A table that is read when it is asked for; what is known of it before are its `ranks` and its `num_rows`.

    Where the rows are not counted yet `num_rows` is None. `parts` gives a large table piece by piece, `pieces` the rows of one rank
    and some columns of it, `distinct` the different rows of some columns where that takes less than to read all rows (None: it does
    not, for these columns).
    """

    ranks: frozenset[int]
    num_rows: int | None
    read: Read
    parts: Callable[[], Iterator[pd.DataFrame]] | None = None
    pieces: Callable[[int, Sequence[str]], Iterator[pd.DataFrame]] | None = None
    distinct: Callable[[Sequence[str]], pd.DataFrame | None] | None = None

    @classmethod
    def of(cls, frame: pd.DataFrame) -> LazyTable:
        """A table that is there already."""
        ranks = frozenset(int(rank) for rank in frame["rank"].unique())
        return cls(ranks=ranks, num_rows=len(frame), read=lambda ranks, columns: _part(frame, ranks, columns))


class LazyTables(Mapping[str, "pd.DataFrame"]):
    """Tables that are read when first used. A table that was read as a whole is kept; parts of one are read anew."""

    def __init__(self, sources: Mapping[str, LazyTable]) -> None:
        self._sources = dict(sources)
        self._whole: dict[str, pd.DataFrame] = {}
        self._with_rows: dict[str, bool] = {}
        self._lock = RLock()

    def __getitem__(self, table: str) -> pd.DataFrame:
        with self._lock:
            if table not in self._whole:
                self._whole[table] = self._sources[table].read(None, None)
            return self._whole[table]

    def __contains__(self, table: object) -> bool:
        return table in self._sources

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._sources)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def source(self, table: str) -> LazyTable:
        """How a table is read."""
        return self._sources[table]

    def rows(self, table: str, ranks: Sequence[int] | None, columns: Sequence[str] | None) -> pd.DataFrame:
        """Rows and columns of a table, read alone unless the whole table is there already."""
        if table in self._whole or (ranks is None and columns is None):
            return _part(self[table], ranks, columns)
        return self._sources[table].read(ranks, columns)

    def has_rows(self, table: str) -> bool:
        """Whether a table has rows; where they are not counted, its ranks are read one by one until one has some."""
        source = self._sources[table]
        if source.num_rows is not None:
            return source.num_rows > 0
        if table not in self._with_rows:
            self._with_rows[table] = any(len(self.rows(table, [rank], ["rank"])) for rank in sorted(source.ranks))
        return self._with_rows[table]

    def ranks(self, table: str) -> frozenset[int]:
        """The ranks of a table."""
        return self._sources[table].ranks

    def parts(self, table: str) -> Iterator[pd.DataFrame]:
        """The rows of a table, in pieces if it is large and not there as a whole."""
        parts = self._sources[table].parts
        return iter([self[table]]) if parts is None or table in self._whole else parts()

    def pieces(self, table: str, rank: int, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        """The rows of one rank, in pieces if they are many and not there as a whole."""
        pieces = self._sources[table].pieces
        return iter([self.rows(table, [rank], columns)]) if pieces is None or table in self._whole else pieces(rank, columns)

    def distinct(self, table: str, columns: Sequence[str]) -> pd.DataFrame | None:
        """The different rows of some columns; None if they are known by reading all rows alone."""
        distinct = self._sources[table].distinct
        return None if distinct is None or table in self._whole else distinct(columns)

    def num_rows(self, table: str) -> int | None:
        """The rows of a table; None if they are not counted, because it is read when it is asked for."""
        return self._sources[table].num_rows


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Run(Shown, Questions):
    """One run of a training job.

    `placement` maps ranks to positions, `facts` names of settings (spec field names, `num_devices`) to values, `notes` are
    sentences for the user about how the run was read, `clock` maps ranks to the offset in ns that aligns their clocks,
    `cache_key` names what is kept of the run in the cache ("": nothing, as of tables in memory: they may be others than were read),
    `derived` holds what was made of its tables and is worth keeping while the run is there; a copy begins without. Reading a lazy
    table may add to `dropped`.
    """

    name: str
    kind: Kind
    format: str
    tables: Mapping[str, pd.DataFrame]
    placement: Mapping[int, Position] = field(default_factory=dict)
    facts: Mapping[str, Fact] = field(default_factory=dict)
    plan: Plan | None = None
    dropped: Sequence[Dropped] = ()
    notes: tuple[str, ...] = ()
    clock: Mapping[int, int] = field(default_factory=dict)
    cache_key: str = ""
    derived: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        unknown = sorted(set(self.tables) - set(TABLES))
        if unknown:
            raise InputError(f"Run {self.name}", [f"{name!r} is no table; tables are {', '.join(TABLES)}" for name in unknown])
        in_memory = not isinstance(self.tables, LazyTables)
        if in_memory:
            object.__setattr__(self, "cache_key", "")
        for name in ("placement", "facts", "clock", *(("tables",) if in_memory else ())):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def __repr__(self) -> str:
        return text_table(*self.contents())

    @property
    def lost_told(self) -> tuple[str, ...]:
        """What could not be read, in sentences: items, and bytes, which do not add up to one number."""
        items = sum(lost.count for lost in self.dropped if not lost.in_bytes)
        size = sum(lost.count for lost in self.dropped if lost.in_bytes)
        told = (f"{items} item{'s' * (items != 1)} could not be read.",) if items else ()
        return (*told, f"{format_bytes(size)} could not be read.") if size else told

    def contents(self) -> tuple[str, list[tuple[str, str]]]:
        """What a notebook shows: a title, and what there is; a table whose rows are not counted yet is not read for it."""
        counts = {name: self._num_rows(name) for name in TABLES if name in self.tables}
        rows = [(name, "not counted" if count is None else f"{count:,} rows") for name, count in counts.items() if count != 0]
        facts = [(name, str(fact.value)) for name, fact in self.facts.items()]
        lost = [(f"dropped: {lost.what}", f"{lost.count:,}") for lost in self.dropped]
        title = f"Run {self.name}: {self.kind}, {self.format}, {len(self.ranks)} ranks"
        return title, [*rows, *facts, *lost, *(("note", note) for note in self.notes)]

    def _num_rows(self, table: str) -> int | None:
        return self.tables.num_rows(table) if isinstance(self.tables, LazyTables) else len(self.tables[table])

    def to_frame(self) -> pd.DataFrame:
        """The steps, one row a rank and step, as `steps()` gives them."""
        return self.steps()

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks found in any table or in the placement, ascending."""
        found = set(self.placement)
        for table in self.tables:
            found.update(self._ranks_of(table))
        return tuple(sorted(found))

    def has(self, table: str) -> bool:
        """Whether the run has at least one row of `table`."""
        if isinstance(self.tables, LazyTables):
            return table in self.tables and self.tables.has_rows(table)
        return table in self.tables and len(self.tables[table]) > 0

    def frame(
        self,
        table: str,
        *,
        ranks: Iterable[int] | None = None,
        steps: Iterable[int] | None = None,
        columns: Sequence[str] | None = None,
    ) -> pd.DataFrame:
        """Rows of `table`, all or those of some `ranks` and `steps`, with the columns of `schema.py`.

        Empty, with all columns, if the run has none. Raises InputError for a table or columns that do not exist.
        """
        if table not in TABLES:
            raise InputError("Run.frame", [nearest(table, TABLES, "table")])
        known = [column.name for column in TABLES[table].columns]
        if wrong := [name for name in columns or () if name not in known]:
            raise InputError("Run.frame", [f"{table}: {nearest(name, known)}" for name in wrong])
        chosen = None if ranks is None else list(ranks)
        if table not in self.tables:
            rows = empty(table)
        elif isinstance(self.tables, LazyTables):
            wanted = None if columns is None else list(dict.fromkeys([*columns, *(["step"] if steps is not None else [])]))
            rows = self.tables.rows(table, chosen, wanted)
        else:
            rows = _part(self.tables[table], chosen, None)
        if steps is not None:
            rows = rows[rows["step"].isin(list(steps))]
        return rows.loc[:, list(columns)] if columns is not None else rows

    def distinct(self, table: str, *, columns: Sequence[str]) -> pd.DataFrame:
        """The different rows that some columns of `table` have, without those that are null in one of them."""
        found = self.tables.distinct(table, columns) if isinstance(self.tables, LazyTables) and table in self.tables else None
        return (self.frame(table, columns=columns) if found is None else found).dropna().drop_duplicates()

    def pieces(self, table: str, *, rank: int, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        """The rows of one rank as `frame` gives them, in pieces if they are many, so that they are never there all at once."""
        if isinstance(self.tables, LazyTables) and table in self.tables:
            return self.tables.pieces(table, rank, columns)
        return iter([self.frame(table, ranks=[rank], columns=columns)])

    def _ranks_of(self, table: str) -> Iterable[int]:
        if isinstance(self.tables, LazyTables):
            return self.tables.ranks(table)
        return (int(rank) for rank in self.tables[table]["rank"].unique())

    def steps(self) -> pd.DataFrame:
        """Where the time went: one row a rank and step, in their order; times in int ns, null for what was not measured.

        Columns are those of the table `steps`: `rank`, `step`, `pipeline_stage`, `start_ns`, `duration_ns`, and of it
        `computing_ns`, `exposed_communication_ns`, `bubble_ns`, `free_ns`, ...; `perfkit.core.schema` tells each.
        """
        from perfkit.core.answer import Answer  # noqa: PLC0415  (as above)

        rows = Answer(self.frame("steps").sort_values(["rank", "step"], ignore_index=True))
        rows.attrs[ASKED] = "steps"
        return rows

    def step_breakdown(self, rank: int, step: int) -> Breakdown:
        """The leaves of one step of one rank in ns; they sum to its `duration_ns`.

        Raises NotMeasuredError if the run has no breakdown of that step.
        """
        rows = self.frame("step_parts", ranks=[rank], steps=[step])
        if rows.empty:
            raise NotMeasuredError(
                f"what step {step} of rank {rank} is made of",
                how_to_collect="record a profile of the step; page 10 writes the configuration",
            )
        known = rows["amount_ns"].notna()
        return Breakdown(
            "ns",
            {str(path): int(amount) for path, amount in rows.loc[known, ["path", "amount_ns"]].itertuples(index=False)},
            Source("measured" if self.kind == "measured" else "simulated", self.name, f"rank {rank}, step {step}"),
            frozenset(str(path) for path in rows.loc[~known, "path"]),
        )


def _part(rows: pd.DataFrame, ranks: Sequence[int] | None, columns: Sequence[str] | None) -> pd.DataFrame:
    rows = rows if ranks is None else rows[rows["rank"].isin(ranks)]
    return rows if columns is None else rows.loc[:, list(columns)]


def empty(table: str) -> pd.DataFrame:
    """A frame without rows that has all columns of `table`."""
    return _empty(table).copy()


@cache
def _empty(table: str) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415  (as above)

    return pd.DataFrame({column.name: pd.Series(dtype=pandas_dtype(column)) for column in TABLES[table].columns})
