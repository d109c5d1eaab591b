"""Run folder: perfkit's own form of a run: run.json that says what it is, and one Parquet file a table.

A folder is written under another name and gets its own at the end, so that one that was interrupted is never taken for a run.
Beside it may lie faults.json, the truth about an exercise, which is never read here.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from perfkit.core.errors import InputError
from perfkit.core.run import Dropped, Fact, LazyTable, Position, Run
from perfkit.core.schema import TABLES
from perfkit.core.source import Source
from perfkit.record import store
from perfkit.record.format import Sink
from perfkit.record.listing import File

MANIFEST = "run.json"
MARK = "perfkit.run/1"
KINDS = ("measured", "simulated", "reported")


def write_run(run: Run, folder: str | Path, *, beside: Mapping[str, Any] | None = None) -> Path:
    """Write a run to a new folder, with more JSON documents `beside` it by file name. Gives the folder.

    Raises InputError if the folder holds something already or cannot be written; then nothing is left behind.
    """
    target = Path(folder).expanduser()
    with new_folder(target) as work:
        described: dict[str, Any] = {}
        # The widest first: what is freed afterwards is not always given back at once.
        for name in sorted(run.tables, key=lambda name: -len(TABLES[name].columns)):
            frame = run.frame(name, ranks=run.ranks)  # of a lazy table a part is not kept, so that one table at a time is in memory
            if len(frame):
                store.write_table(frame, work / f"{name}.parquet")
                described[name] = {"rows": len(frame), "ranks": sorted(int(rank) for rank in frame["rank"].unique())}
            del frame  # before the next one is made
        for name, document in (beside or {}).items():
            (work / name).write_text(json.dumps(document, indent=1), encoding="utf-8")
        (work / MANIFEST).write_text(json.dumps(_manifest(run, described)), encoding="utf-8")
    return target


class new_folder:  # noqa: N801  (reads like a function)
    """A folder that appears under its name when the block ends, and not at all if the block fails."""

    def __init__(self, target: Path) -> None:
        self._target = target

    def __enter__(self) -> Path:
        target = self._target
        problem = _occupied(target)
        if problem:
            raise InputError(str(target), [problem])
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            self._work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        except OSError as error:
            raise InputError(str(target), [f"cannot be written: {error.strerror}"]) from error
        return self._work

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if kind is None:
                self._work.chmod(0o755)
                if self._target.is_dir():
                    self._target.rmdir()
                self._work.rename(self._target)
        except OSError as problem:
            raise InputError(str(self._target), [f"cannot be written: {problem.strerror}"]) from problem
        finally:
            shutil.rmtree(self._work, ignore_errors=True)
        if isinstance(error, OSError):
            raise InputError(str(self._target), [f"cannot be written: {error.strerror or error}"]) from error


def _occupied(target: Path) -> str:
    if target.is_dir():
        return "the folder is not empty; choose a new one" if any(target.iterdir()) else ""
    return "is a file; choose a folder" if target.exists() else ""


def _manifest(run: Run, tables: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "format": MARK,
        "name": run.name,
        "kind": run.kind,
        "tables": tables,
        "placement": {rank: asdict(position) for rank, position in run.placement.items()},
        "facts": {name: asdict(fact) for name, fact in run.facts.items()},
        "dropped": [asdict(lost) for lost in run.dropped],
        "notes": list(run.notes),
        "clock": dict(run.clock),
    }


def read_run(manifest: File, sink: Sink) -> None:
    """Hand the tables of a run folder over; they are read when they are asked for.

    A table whose file is gone or that the schema does not have is counted as dropped. Raises InputError if run.json cannot be
    understood.
    """
    folder = manifest.path.parent
    try:
        document = json.loads(manifest.path.read_text(encoding="utf-8"))
        if document["kind"] not in KINDS:
            raise InputError(manifest.label, [f"kind = {document['kind']!r} must be one of {', '.join(KINDS)}"])
        sink.kind = document["kind"]
        for name, known in document["tables"].items():
            path = folder / f"{name}.parquet"
            if name not in TABLES or not path.is_file():
                sink.drop(f"table {name}: {'no such table' if name not in TABLES else 'its file is missing'}", 1, manifest)
                continue
            sink.later[name] = _lazy(path, name, known)
        sink.placement.update({int(rank): Position(**position) for rank, position in document["placement"].items()})
        sink.facts.update(
            {name: Fact(value=fact["value"], source=Source(**fact["source"])) for name, fact in document["facts"].items()}
        )
        sink.dropped.extend(Dropped(**lost) for lost in document["dropped"])
        sink.notes.extend(str(note) for note in document["notes"])
        sink.clock = {int(rank): int(offset_ns) for rank, offset_ns in document["clock"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(manifest.label, [f"is no description of a run: {type(error).__name__}: {error}"]) from error


def _lazy(path: Path, name: str, known: Mapping[str, Any]) -> LazyTable:
    wanted = [column.name for column in TABLES[name].columns]

    def read(ranks: Any, columns: Any) -> Any:
        try:
            return store.read_table(path, TABLES[name], columns=wanted if columns is None else columns, ranks=ranks)
        except OSError as error:
            raise InputError(path.name, [str(error)]) from error

    return LazyTable(ranks=frozenset(int(rank) for rank in known["ranks"]), num_rows=int(known["rows"]), read=read)
