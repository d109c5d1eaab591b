"""Cache: a run that was read once, kept as Parquet tables and a manifest, so that it opens again at once.

The key of a run is made of the state of its files and of the code that reads them (`_state`), so that neither changed files nor a
newer perfkit ever meet old tables, and no format has to be asked, or even imported, to open it. Tables that a format reads only
when they are asked for are kept from then on (`_kept_later`). Tables are read when they are asked for, and only the
columns and ranks that are wanted. An entry that disappears while a run is open is replaced by reading the files again.
What reads and writes tables is imported then, so that a run opens before its libraries are there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfkit.core.errors import InputError
from perfkit.core.run import Dropped, Fact, LazyTable, LazyTables, Position, Run
from perfkit.core.schema import TABLES
from perfkit.core.source import Source
from perfkit.record import entries
from perfkit.record._state import readers, state_key
from perfkit.record.listing import File, printable

if TYPE_CHECKING:
    import pandas as pd

_MANIFEST = "manifest.json"
_KIND = "runs"


def key_of(files: str, wanted: str | None) -> str:
    """The name of the entry of a run: files in the state that `files_key` named, read by the format that was asked for, if any."""
    return state_key([files, str(wanted)], [])


@dataclass(frozen=True, kw_only=True, slots=True)
class Again:
    """How what is not kept of a run is read: all of it, or the tables that are read later, from the recipe kept for them."""

    read: Callable[[], Run]
    offer: Callable[[Any, list[Dropped]], Mapping[str, LazyTable] | None]


def keep(key: str, run: Run, files: Iterable[File], recipe: Any = None, *, lazy: bool = False) -> bool:
    """Write a run to the cache; False if the disk or the texts of the run do not allow it.

    Of a `lazy` one the tables that are read later are never kept: they are of so many ranks that to read some is the quicker way.
    """
    from perfkit.record import store  # noqa: PLC0415  (as above)

    try:
        with entries.new_entry(entries.entry(_KIND, key)) as folder:
            for name in _kept(run):
                if _num_rows(run, name) <= store.FEW_ROWS:
                    store.write_rows(run.tables[name], folder / f"{name}.json")
                    continue
                for number, part in enumerate(_parts(run, name)):
                    store.write_table(part, folder / _part_name(name, number))
            (folder / _MANIFEST).write_text(json.dumps(_described(run, files, recipe) | {"lazy": lazy}), encoding="utf-8")
        entries.make_room()
    except (OSError, ValueError):
        return False
    return True


def is_kept(key: str) -> bool:
    """Whether there is an entry of a run."""
    return (entries.entry(_KIND, key) / _MANIFEST).is_file()


def open_kept(key: str, root: Path, again: Again) -> Run | None:
    """The kept run, or None if there is none that can be read. `again` is for tables that disappear, or are read later."""
    folder = entries.entry(_KIND, key)
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        reread = cache(again.read)
        counted = {name: known for name, known in manifest["tables"].items() if known["rows"] is not None}
        tables = {name: _lazy(folder, name, known, reread) for name, known in counted.items()}
        dropped = [Dropped(**lost) for lost in manifest["dropped"]]
        later = _later_again(
            {name: frozenset(known["ranks"]) for name, known in manifest["tables"].items() if name not in counted},
            cache(lambda: again.offer(manifest.get("recipe"), dropped)),
            reread,
        )
        tables |= later if manifest.get("lazy") else _keeping(later, key)
        run = Run(
            name=printable(root.resolve().name),
            kind=manifest["kind"],
            format=manifest["format"],
            tables=LazyTables(tables),
            placement={int(rank): Position(**position) for rank, position in manifest["placement"].items()},
            facts={name: Fact(value=fact["value"], source=Source(**fact["source"])) for name, fact in manifest["facts"].items()},
            dropped=dropped if manifest.get("lazy") else tuple(dropped),
            notes=tuple(manifest["notes"]),
            clock={int(rank): offset_ns for rank, offset_ns in manifest["clock"].items()},
            cache_key="" if manifest.get("lazy") else key,
        )
        entries.used(folder)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, InputError):
        return None
    return run


def keeping_later(run: Run) -> Run:
    """A run that was kept, whose tables that are read later will be kept too."""
    if not isinstance(run.tables, LazyTables):
        return run
    sources = {name: run.tables.source(name) for name in run.tables}
    later = {name: sources[name] for name in _later(run)}
    return replace(run, tables=LazyTables({**sources, **_keeping(later, run.cache_key)}))


def _keeping(tables: Mapping[str, LazyTable], key: str) -> dict[str, LazyTable]:
    """Tables that are read later, which from now on keep what is read under the name of the run; `key` is that of its entry."""

    def read(name: str, ranks: Sequence[int] | None, columns: Sequence[str] | None) -> pd.DataFrame:
        from perfkit.record import _kept_later  # noqa: PLC0415  (as above)

        return _kept_later.read(tables, key, name, ranks, columns)

    def pieces(name: str, rank: int, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        from perfkit.record import _kept_later  # noqa: PLC0415  (as above)

        return _kept_later.pieces(tables, key, name, rank, columns)

    return {
        name: LazyTable(ranks=table.ranks, num_rows=None, read=partial(read, name), pieces=partial(pieces, name))
        for name, table in tables.items()
    }


def _later_again(
    ranks: Mapping[str, frozenset[int]], offer: Callable[[], Mapping[str, LazyTable] | None], reread: Callable[[], Run]
) -> dict[str, LazyTable]:
    """The tables of a kept run that are read later: as its format offers them again, else from all of it."""

    def read(name: str, ranks: Sequence[int] | None, columns: Sequence[str] | None) -> pd.DataFrame:
        offered = offer()
        return reread().frame(name, ranks=ranks, columns=columns) if offered is None else offered[name].read(ranks, columns)

    def pieces(name: str, rank: int, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        offered = offer()
        given = None if offered is None else offered[name].pieces
        return reread().pieces(name, rank=rank, columns=columns) if given is None else given(rank, columns)

    def distinct(name: str, columns: Sequence[str]) -> pd.DataFrame | None:
        found = (offer() or {}).get(name)
        return None if found is None or found.distinct is None else found.distinct(columns)

    return {
        name: LazyTable(
            ranks=of, num_rows=None, read=partial(read, name), pieces=partial(pieces, name), distinct=partial(distinct, name)
        )
        for name, of in ranks.items()
    }


def _later(run: Run) -> list[str]:
    """Tables that a format reads only when they are asked for: not kept with the others."""
    return [name for name in run.tables if run.tables.num_rows(name) is None] if isinstance(run.tables, LazyTables) else []


def _ranks_of(run: Run, name: str) -> frozenset[int]:
    return run.tables.ranks(name) if isinstance(run.tables, LazyTables) else frozenset(run.ranks)


def _kept(run: Run) -> list[str]:
    later = _later(run)
    return [name for name in run.tables if name not in later]


def _parts(run: Run, name: str) -> Iterator[pd.DataFrame]:
    return run.tables.parts(name) if isinstance(run.tables, LazyTables) else iter([run.tables[name]])


def _num_rows(run: Run, name: str) -> int:
    rows = run.tables.num_rows(name) if isinstance(run.tables, LazyTables) else None
    return len(run.tables[name]) if rows is None else rows


def _part_name(name: str, number: int) -> str:
    return f"{name}.{number}.parquet" if number else f"{name}.parquet"


def _lazy(folder: Path, name: str, known: dict[str, Any], reread: Callable[[], Run]) -> LazyTable:
    def read(ranks: Sequence[int] | None, columns: Sequence[str] | None) -> pd.DataFrame:
        from perfkit.record import store  # noqa: PLC0415  (as above)

        try:
            if known["rows"] <= store.FEW_ROWS:
                return store.read_rows(folder / f"{name}.json", TABLES[name], columns=columns, ranks=ranks)
            parts = [
                store.read_table(folder / _part_name(name, number), TABLES[name], columns=columns, ranks=ranks)
                for number in range(known.get("parts", 1))
            ]
        except OSError:
            return reread().frame(name, ranks=ranks, columns=columns)
        if len(parts) == 1:
            return parts[0]
        from perfkit.record.format import stacked  # noqa: PLC0415  (as above)

        return stacked(parts)

    def pieces(rank: int, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        from perfkit.record import store  # noqa: PLC0415  (as above)

        done = 0
        try:
            for number, groups in enumerate(known["groups"]):
                path = folder / _part_name(name, number)
                for at in [at for at, (lowest, highest) in enumerate(groups) if lowest <= rank <= highest]:
                    piece = store.read_group(path, TABLES[name], at, columns=columns, rank=rank)
                    yield piece
                    done += len(piece)
        except OSError:
            yield reread().frame(name, ranks=[rank], columns=columns).iloc[done:]

    return LazyTable(
        ranks=frozenset(known["ranks"]), num_rows=known["rows"], read=read, pieces=pieces if known.get("groups") else None
    )


def _described(run: Run, files: Iterable[File], recipe: Any) -> dict[str, Any]:
    return {
        "readers": readers(),
        "format": run.format,
        "kind": run.kind,
        "files": [{"name": file.label, "bytes": file.size_bytes, "mtime_ns": file.path.stat().st_mtime_ns} for file in files],
        "tables": {name: _counted(_parts(run, name)) for name in _kept(run)}
        | {name: {"rows": None, "ranks": sorted(_ranks_of(run, name))} for name in _later(run)},
        "recipe": recipe,
        "placement": {rank: asdict(position) for rank, position in run.placement.items()},
        "facts": {name: asdict(fact) for name, fact in run.facts.items()},
        "dropped": [asdict(lost) for lost in run.dropped],
        "notes": list(run.notes),
        "clock": dict(run.clock),
    }


def _counted(parts: Iterator[pd.DataFrame]) -> dict[str, Any]:
    """Rows and ranks of a table, the number of its parts, and the lowest and highest rank of each row group of a large one."""
    import numpy as np  # noqa: PLC0415  (as above)

    from perfkit.record import store  # noqa: PLC0415

    ranks: set[int] = set()
    groups: list[list[tuple[int, int]]] = []
    rows = 0
    for part in parts:
        of_rows = part["rank"].to_numpy(dtype=np.int64)
        rows += len(part)
        ranks.update(np.unique(of_rows).tolist())
        cuts = range(0, len(part), store.ROWS_PER_GROUP)
        groups.append([(int(of.min()), int(of.max())) for of in (of_rows[at : at + store.ROWS_PER_GROUP] for at in cuts)])
    several = {"parts": len(groups)} if len(groups) > 1 else {}
    return {"rows": rows, "ranks": sorted(ranks), **several, **({"groups": groups} if rows > store.FEW_ROWS else {})}
