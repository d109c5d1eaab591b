"""Counters of an Ascend database: frequency of the cores, bandwidths and levels of the memories, as trace_view.json names them.

A table of samples holds several counters side by side: `_TABLES` says which columns tell them apart and which hold values. Numbers
are in the units of the database: bytes a second, bytes, MHz, percent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from perfkit.record.format import Sink
from perfkit.record.formats.ascend._db import read_texts
from perfkit.record.listing import File
from perfkit.record.readers import host_tables
from perfkit.record.readers.chrome_counters import COLUMNS
from perfkit.record.readers.sqlite import Database, cells, open_database

TABLE = "counters"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Samples:
    """A table: `label` has `{}` for each of the `keys`, of which `texts` are numbers of texts; `values` gives name and unit."""

    label: str
    values: Mapping[str, tuple[str, str | None]]
    keys: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


_TABLES: Mapping[str, _Samples] = {
    "AICORE_FREQ": _Samples(label="AI Core Freq", values={"freq": ("", "MHz")}),
    "HBM": _Samples(label="HBM {}/{}", keys=("hbmId", "type"), texts=("type",), values={"bandwidth": ("", "B/s")}),
    "DDR": _Samples(label="DDR/", values={"read": ("Read", "B/s"), "write": ("Write", "B/s")}),
    "LLC": _Samples(
        label="LLC {} {}/",
        keys=("llcId", "mode"),
        texts=("mode",),
        values={"throughput": ("Throughput", "B/s"), "hitRate": ("Hit Rate", "%")},
    ),
    "NPU_MEM": _Samples(label="NPU MEM {}/", keys=("type",), texts=("type",), values={"ddr": ("DDR", "B"), "hbm": ("HBM", "B")}),
    "ACC_PMU": _Samples(
        label="Acc PMU {} ",
        keys=("accId",),
        values={name: (name, None) for name in ("readBwLevel", "writeBwLevel", "readOstLevel", "writeOstLevel")},
    ),
    "SOC_BANDWIDTH_LEVEL": _Samples(
        label="Stars Soc Info ", values={"l2BufferBwLevel": ("L2 Buffer Bw Level", None), "mataBwLevel": ("Mata Bw Level", None)}
    ),
}


def offer(sink: Sink, files: Mapping[int, tuple[File, int | None]]) -> None:
    """Offer the counters of each rank for later; of a database with several devices those of the one that is given."""
    found = {rank: (file, device) for rank, (file, device) in files.items() if _has_counters(file)}
    host_tables.offer(sink, found, lambda rank: ([read_counters(*found[rank])],), [TABLE])


def read_counters(file: File, device: int | None = None) -> pd.DataFrame:
    """The table `counters` of one rank, without `rank`; a sample without time or number is left out."""
    with open_database(file) as database:
        texts = read_texts(database)
        frames = [_read(database, table, samples, texts, device) for table, samples in _TABLES.items() if database.has(table)]
    rows = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({name: [] for name in COLUMNS})
    return rows[rows["value"].notna() & rows["time_ns"].notna()].reset_index(drop=True)


def _has_counters(file: File) -> bool:
    with open_database(file) as database:
        return any(database.has(table) for table in _TABLES)


def _read(database: Database, table: str, samples: _Samples, texts: Mapping[int, str], device: int | None) -> pd.DataFrame:
    rows = database.read(table, cells(ints=("timestampNs", "deviceId", *samples.keys), values=tuple(samples.values)))
    if device is not None:
        rows = rows[rows["deviceId"].isna() | (rows["deviceId"] == device).fillna(False)].reset_index(drop=True)
    keys = [rows[key].map(lambda value, key=key: _key_text(value, key in samples.texts, texts)) for key in samples.keys]
    labels = [samples.label.format(*row) for row in zip(*keys, strict=True)] if keys else [samples.label] * len(rows)
    return pd.concat(
        [
            pd.DataFrame(
                {
                    "name": pd.Series([f"{label}{what}" for label in labels], dtype="object"),
                    "unit": pd.Series([unit] * len(rows), dtype="object"),
                    "time_ns": rows["timestampNs"],
                    "value": pd.to_numeric(rows[column], errors="coerce").astype("float64"),
                }
            )
            for column, (what, unit) in samples.values.items()
        ],
        ignore_index=True,
    )


def _key_text(value: object, is_text: bool, texts: Mapping[int, str]) -> str:
    """The part of a name that a column stands for; `read` as trace_view.json has it: Read."""
    if pd.isna(value):  # type: ignore[call-overload]
        return "?"
    text = texts.get(int(value), str(value)) if is_text else str(value)  # type: ignore[call-overload]
    return {"app": "APP"}.get(text, text[:1].upper() + text[1:])
