"""Operations of many ranks: their communication files as columns at once, where every number in them is plain.

One rank after the other takes six times as long, most of it for turning single numbers into ns. A file with anything that is not
plain (a text that is no number, a negative time, an operation without a duration) is told apart, to be read with all care.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.record.formats.ascend.communication import TOTAL, group_of, step_number
from perfkit.record.listing import File
from perfkit.record.store import NULLS, times_ns


class _Times(msgspec.Struct, gc=False):
    start: msgspec.Raw = msgspec.field(name="Start Timestamp(us)", default_factory=msgspec.Raw)
    elapse: msgspec.Raw = msgspec.field(name="Elapse Time(ms)", default_factory=msgspec.Raw)
    transit: msgspec.Raw = msgspec.field(name="Transit Time(ms)", default_factory=msgspec.Raw)
    wait: msgspec.Raw = msgspec.field(name="Wait Time(ms)", default_factory=msgspec.Raw)


class _Size(msgspec.Struct, gc=False):
    size: msgspec.Raw = msgspec.field(name="Transit Size(MB)", default_factory=msgspec.Raw)


class _Sizes(msgspec.Struct, gc=False):
    rdma: _Size = msgspec.field(name="RDMA", default_factory=_Size)
    hccs: _Size = msgspec.field(name="HCCS", default_factory=_Size)
    pcie: _Size = msgspec.field(name="PCIE", default_factory=_Size)
    sio: _Size = msgspec.field(name="SIO", default_factory=_Size)
    sdma: _Size = msgspec.field(name="SDMA", default_factory=_Size)


class _Info(msgspec.Struct, gc=False):
    times: _Times = msgspec.field(name="Communication Time Info")
    sizes: _Sizes = msgspec.field(name="Communication Bandwidth Info", default_factory=_Sizes)


_DECODER = msgspec.json.Decoder(dict[str, dict[str, dict[str, _Info]]])
_Row = tuple[int, int, str, _Info]


def read_columns(files: Mapping[int, File]) -> tuple[pd.DataFrame, list[int]]:
    """The operations of ranks with the columns of `collectives`, and the ranks whose files must be read with care.

    MB of 10^6 bytes become bytes as ms become ns: both are 10^6 of the small unit.
    """
    rows: list[_Row] = []
    careful: list[int] = []
    for rank, file in files.items():
        try:
            with file.open() as stream:
                rows += _rows(rank, bytes(stream.read()))
        except (OSError, ValueError, RecursionError):
            careful.append(rank)
    frame, odd = _frame(rows)
    careful += sorted(odd)
    return frame[~frame["rank"].isin(careful)].reset_index(drop=True) if careful else frame, careful


def _rows(rank: int, content: bytes) -> Iterator[_Row]:
    for step, kinds in _DECODER.decode(content).items():
        number = step_number(step)
        for operations in kinds.values():
            yield from ((rank, number, key, info) for key, info in operations.items() if key != TOTAL)


def _frame(rows: list[_Row]) -> tuple[pd.DataFrame, set[int]]:
    """The columns, and the ranks that have a number that cannot be used."""
    ranks = np.array([rank for rank, *_ in rows], dtype=np.int64)
    infos = [info for *_, info in rows]
    start, bad = _numbers([info.times.start for info in infos], "us")
    named: dict[str, pd.Series] = {}
    columns = {
        **{name: [getattr(info.times, name) for info in infos] for name in ("elapse", "transit", "wait")},
        **{name: [getattr(info.sizes, name).size for info in infos] for name in ("rdma", "hccs", "pcie", "sio", "sdma")},
    }
    for name, texts in columns.items():
        named[name], odd = _numbers(texts, "ms")
        bad |= odd
    bad |= named["elapse"].isna().to_numpy(dtype=bool)
    size, transit, wait = _size(named), named["transit"], named["wait"]
    unknown = ((transit.fillna(0) == 0) & (size.fillna(0) == 0)).to_numpy(dtype=bool)
    frame = pd.DataFrame(
        {
            "rank": ranks,
            "step": pd.array([step for _, step, *_ in rows], dtype="Int64"),
            "name": pd.Series([key.partition("@")[0] for _, _, key, _ in rows], dtype="object"),
            "group": pd.Series([group_of(key) for _, _, key, _ in rows], dtype="object"),
            "start_ns": start,
            "duration_ns": named["elapse"],
            "transit_ns": transit.mask(unknown),
            "wait_ns": wait.mask(unknown & (wait == 0).fillna(False).to_numpy(dtype=bool)),
            "bytes": size.mask(unknown),
        }
    )
    return frame, set(ranks[bad].tolist())


def _numbers(texts: list[msgspec.Raw], unit: str) -> tuple[pd.Series, npt.NDArray[np.bool_]]:
    """Decimal text as whole numbers of the small unit, and where a text is there that is none, or a negative one."""
    raw = [bytes(text) for text in texts]
    values = times_ns(raw, "us" if unit == "us" else "ms")
    missing = values.isna().to_numpy(dtype=bool)
    odd = (values < 0).fillna(False).to_numpy(dtype=bool)
    for place in np.flatnonzero(missing):
        odd[place] = raw[place].decode("utf-8", "replace").strip('" ') not in NULLS
    return values, odd


def _size(columns: Mapping[str, pd.Series]) -> pd.Series:
    """What an operation sent: over RDMA, and inside a node the sum of its links, which SDMA repeats; null where none is stated."""
    stated = pd.concat([columns[name].notna() for name in ("rdma", "hccs", "pcie", "sio", "sdma")], axis=1).any(axis=1)
    inside = columns["hccs"].fillna(0) + columns["pcie"].fillna(0) + columns["sio"].fillna(0)
    sdma = columns["sdma"].fillna(0)
    return (columns["rdma"].fillna(0) + inside.where(inside >= sdma, sdma)).where(stated)
