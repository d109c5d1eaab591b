"""Kept later: tables that a format reads only when they are asked for, kept rank by rank once they were read.

A kept run has these tables not among its own. The first who asks for those of a rank has them read from the recording; everybody
after that gets what was kept then. An entry of the cache has `rows.json` and the rows of each table in parts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from perfkit.core.run import LazyTable, empty
from perfkit.core.schema import TABLES
from perfkit.record import entries, store
from perfkit.record.format import stacked
from perfkit.record.readers import host_tables

KIND = "later"
_INDEX = "rows.json"


def read(
    tables: Mapping[str, LazyTable], key: str, name: str, ranks: Sequence[int] | None, columns: Sequence[str] | None
) -> pd.DataFrame:
    """Rows of a table that is read later, kept from now on under the name of the run; `key` is that of its entry."""
    wanted = list(empty(name).columns) if columns is None else list(columns)
    chosen = sorted(tables[name].ranks if ranks is None else tables[name].ranks.intersection(ranks))
    frames = [frame for rank in chosen for frame in pieces(tables, key, name, rank, wanted)]
    if len(frames) == 1:
        return frames[0]
    return stacked(frames, _texts(name)) if frames else empty(name).loc[:, wanted]


def pieces(tables: Mapping[str, LazyTable], key: str, name: str, rank: int, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
    """The rows of one rank, from what was kept of it; if that is not to be had, or goes meanwhile, from the recording."""
    if rank not in tables[name].ranks:
        return
    done = 0
    try:
        folder, together = _place(tables, key, name, rank)
        rows = _index(folder)
        if rows is None:
            _keep(folder, {each: tables[each] for each in together}, rank)
            rows = _index(folder) or {}
        for number in range(len(rows[name])):
            piece = store.read_table(folder / f"{name}.{number}.parquet", TABLES[name], columns=columns)
            yield piece
            done += len(piece)
        entries.used(folder)
    except (OSError, ValueError, KeyError):
        yield from _after(_of(tables[name], rank, columns), done)


def _place(tables: Mapping[str, LazyTable], key: str, name: str, rank: int) -> tuple[Path, list[str]]:
    """The entry that has a table of a rank, and the tables that are read with it in one go."""
    together = [each for each in host_tables.TABLES if each in tables] if name in host_tables.TABLES else [name]
    return entries.entry(KIND, f"{key}-{together[0]}-{rank}"), together


def _index(folder: Path) -> dict[str, list[int]] | None:
    """How many rows each part of each table has."""
    try:
        found: dict[str, list[int]] = json.loads((folder / _INDEX).read_text(encoding="ascii"))
        return {name: list(rows) for name, rows in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return None


def _keep(folder: Path, tables: Mapping[str, LazyTable], rank: int) -> None:
    """Read the tables of a rank from the recording and write them. Raises OSError or ValueError if they cannot be kept."""
    with entries.new_entry(folder) as work:
        rows: dict[str, list[int]] = {}
        for name, table in tables.items():
            rows[name] = []
            for part in _parts(name, _of(table, rank, list(empty(name).columns))):
                store.write_table(part, work / f"{name}.{len(rows[name])}.parquet")
                rows[name].append(len(part))
        (work / _INDEX).write_text(json.dumps(rows), encoding="ascii")
    entries.make_room()


def _parts(name: str, frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """The rows in frames of about a row group."""
    ready: list[pd.DataFrame] = []
    for frame in frames:
        ready.append(frame)
        if sum(map(len, ready)) >= store.ROWS_PER_GROUP:
            yield stacked(ready, _texts(name))
            ready = []
    if ready:
        yield stacked(ready, _texts(name))


def _of(table: LazyTable, rank: int, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
    """The rows of one rank as the format gives them."""
    return iter([table.read([rank], columns)]) if table.pieces is None else table.pieces(rank, columns)


def _after(frames: Iterator[pd.DataFrame], num_rows: int) -> Iterator[pd.DataFrame]:
    """The frames without the first rows."""
    for frame in frames:
        yield frame.iloc[num_rows:]
        num_rows -= min(num_rows, len(frame))


def _texts(name: str) -> frozenset[str]:
    return frozenset(str(column) for column, dtype in empty(name).dtypes.items() if isinstance(dtype, pd.CategoricalDtype))
