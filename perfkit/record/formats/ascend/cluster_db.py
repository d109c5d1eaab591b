"""Cluster analysis as a database: cluster_analysis.db, in which Ascend's cluster tool sums up all ranks of a run.

The tables hold what the text files of a cluster analysis hold, with the same units (us for steps, ms and MB of 10^6 bytes for
communication), under names of two generations of the tool. Newer ones leave out the ranks of an operation: they follow from its
group. In `links`, "Total Op Info" sums up the other operations of its group: add either those or the rest.
"""

from __future__ import annotations

import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.run import Position
from perfkit.record.format import Format, Match, Sink
from perfkit.record.formats.ascend._cluster_tables import Layout, add_collectives, add_groups, add_steps, ranks_in
from perfkit.record.formats.ascend._db_analysis import Schema, read_links, read_operations, read_steps
from perfkit.record.formats.ascend.communication import add_links
from perfkit.record.listing import File, Listing
from perfkit.record.readers.sqlite import Database, cells, open_database, table_names, unwritten

STEPS = "ClusterStepTraceTime"
GROUPS = ("CommunicationGroupMapping", "CommunicationGroup")
SCHEMAS = (
    Schema("ClusterCommunicationTime", "ClusterCommunicationBandwidth", "ClusterCommunicationMatrix"),
    Schema("ClusterCommAnalyzerTime", "ClusterCommAnalyzerBandwidth", "ClusterCommAnalyzerMatrix"),
)
_TABLES = {name.lower() for schema in SCHEMAS for name in (STEPS, schema.times, schema.links)}
_NAME = "cluster_analysis.db"
_SUFFIXES = (".db", ".dat", ".sqlite", ".sqlite3")
_INDEXES = {"DP Index": "dp_index", "PP Index": "pp_index", "TP Index": "tp_index"}


def detect(listing: Listing) -> Match | None:
    """A database with a table of the cluster tool; the largest if there are several. An empty one is known by its name."""
    candidates = [file for file in listing if listing.is_one_file or file.name.lower().endswith(_SUFFIXES)]
    found = [file for file in candidates if file.name == _NAME or _TABLES & table_names(file)]
    return Match(files=(max(found, key=lambda file: file.size_bytes),), details=len(found)) if found else None


def read(match: Match, sink: Sink) -> None:
    """Read what is there; a table that is missing or damaged is shown as missing or partial in `coverage`."""
    (file,) = match.files
    if match.details > 1:
        sink.note(f"{match.details} cluster analyses were found; {file.label} was read")
    if unwritten(file):
        sink.note(f"{file.label}: rows in the log {file.name}-wal beside it are not read; close the program that writes it")
    with open_database(file) as database:
        _read(database, file, sink)
    sink.advance(file.label, file.size_bytes)


def _read(database: Database, file: File, sink: Sink) -> None:
    layout = Layout()
    parts = (("layout", _read_groups), ("step times", _read_steps), ("collectives", _read_collectives), ("links", _read_links))
    ranks: set[int] = set()
    states: dict[str, tuple[str, int | None]] = {}
    for part, load in parts:
        whole = len(sink.dropped)
        try:
            found, rows = load(database, layout, file, sink)
        except InputError as error:
            sink.drop("; ".join(error.problems), 1, file)
            found, rows = set(), 0
        database.report(sink)
        ranks |= found
        states[part] = ("missing", None) if rows is None else ("partial" if len(sink.dropped) > whole else "present", rows)
    for rank, stage in layout.stages().items():
        ranks.add(rank)
        sink.placement.setdefault(rank, Position(pipeline=stage))
    for rank in sorted(ranks):
        for part, (state, rows) in states.items():
            sink.cover(rank, part, None if state == "missing" else file, rows=rows, state=state)


def _read_groups(database: Database, layout: Layout, file: File, sink: Sink) -> tuple[set[int], int | None]:
    table = next((name for name in GROUPS if database.has(name)), None)
    if table is None:
        return set(), None
    rows = database.read(table, cells(texts=("type", "rank_set", "group_name", "pg_name")))
    lists: dict[str, list[tuple[int, ...]]] = {"collective": [], "p2p": []}
    for row in rows.to_dict("records"):
        members = ranks_in(row["rank_set"] or "")
        if not members:
            database.lose({f"{table}: group without ranks": 1})
            continue
        if row["type"] in lists:
            lists[row["type"]].append(members)
        if row["group_name"]:
            layout.members[row["group_name"]] = members
        if row["pg_name"]:
            layout.named.append((row["pg_name"], members))
    return add_groups(lists, layout, file, sink), len(rows)


def _read_steps(database: Database, layout: Layout, file: File, sink: Sink) -> tuple[set[int], int | None]:
    if not database.has(STEPS):
        return set(), None
    frame = read_steps(database, STEPS, more={"Type": "type", "Index": "index", **_INDEXES})
    for name in _INDEXES:
        frame[name] = pd.to_numeric(frame[name].where(frame[name].str.fullmatch(r"\d{1,6}", na=False))).astype("Int64")
    ranks, kept, _ = add_steps(frame, STEPS, layout, file, sink)
    return ranks, kept


def _read_collectives(database: Database, layout: Layout, file: File, sink: Sink) -> tuple[set[int], int | None]:
    schema = next((schema for schema in SCHEMAS if database.has(schema.times)), None)
    if schema is None:
        return set(), None
    found = read_operations(database, schema)
    add_collectives(found, layout, file, sink)
    return {item.rank for _, item in found}, len(found)


def _read_links(database: Database, layout: Layout, file: File, sink: Sink) -> tuple[set[int], int | None]:
    schema = next((schema for schema in SCHEMAS if database.has(schema.links)), None)
    if schema is None:
        return set(), None
    found = read_links(database, schema)
    add_links(sink, found, file)
    return {item.rank for item in found}, len(found)


FORMAT = Format(
    name="cluster-db",
    title="Ascend cluster analysis (database)",
    looks_for=f"a SQLite file with the table {STEPS} or ClusterComm...: {_NAME}",
    detail=2,
    detect=detect,
    read=read,
)
