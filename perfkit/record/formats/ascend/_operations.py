"""Operations of many ranks: their communication files as columns at once, where every number in them is plain.

One rank after the other takes four times as long, most of it for turning single numbers into ns. A file with anything that is not
plain (a text that is no number, a negative time, an operation without a duration) is told apart, to be read with all care.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.record.formats.ascend.communication import TOTAL, step_number
from perfkit.record.listing import File
from perfkit.record.store import NULLS, exact_ns


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
_SIZES = ("rdma", "hccs", "pcie", "sio", "sdma")
_AMOUNTS = attrgetter("times.elapse", "times.transit", "times.wait", *(f"sizes.{name}.size" for name in _SIZES))
_NUM_AMOUNTS = 3 + len(_SIZES)
_AT_ONCE = 32
"""Ranks whose files are held until their numbers are read: one after the other they take longer, and all of them much memory."""
_Ints = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


@dataclass
class _Rows:
    """Operations, one a place in each list."""

    ranks: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    infos: list[_Info] = field(default_factory=list)

    def add(self, rank: int, content: bytes) -> None:
        """Add those of a communication file. Raises ValueError or RecursionError if one is not told as all are."""
        for step, kinds in _DECODER.decode(content).items():
            for operations in kinds.values():
                operations.pop(TOTAL, None)
                self.ranks += [rank] * len(operations)
                self.steps += [step_number(step)] * len(operations)
                self.keys += operations
                self.infos += operations.values()


def read_columns(files: Mapping[int, File]) -> tuple[pd.DataFrame, list[int]]:
    """The operations of ranks with the columns of `collectives`, and the ranks whose files must be read with care."""
    numbers = list(files)
    parts = [_part({rank: files[rank] for rank in numbers[first : first + _AT_ONCE]}) for first in range(0, len(numbers), _AT_ONCE)]
    careful = [rank for _, odd in parts for rank in odd]
    frame = pd.concat([frame for frame, _ in parts] or [_frame(_Rows())[0]], ignore_index=True)
    return frame[~frame["rank"].isin(careful)].reset_index(drop=True) if careful else frame, careful


def _part(files: Mapping[int, File]) -> tuple[pd.DataFrame, list[int]]:
    """The operations of some ranks, and the ranks of which not all is plain."""
    rows = _Rows()
    careful: list[int] = []
    for rank, file in files.items():
        try:
            with file.open() as stream:
                rows.add(rank, stream.read())
        except (OSError, ValueError, RecursionError):
            careful.append(rank)
    frame, odd = _frame(rows)
    return frame, careful + sorted(odd)


def _frame(rows: _Rows) -> tuple[pd.DataFrame, set[int]]:
    """The columns, and the ranks that have a number that cannot be used.

    MB of 10^6 bytes become bytes as ms become ns: both are 10^6 of the small unit.
    """
    ranks = np.array(rows.ranks, dtype=np.int64)
    keys = [key.partition("@") for key in rows.keys]
    start, start_known, odd_start = _numbers([info.times.start for info in rows.infos], "us")
    amounts, known, odd = _numbers(list(chain.from_iterable(map(_AMOUNTS, rows.infos))), "ms")
    elapse, transit, wait, *sizes = amounts.reshape(-1, _NUM_AMOUNTS).T
    elapse_known, transit_known, wait_known, *sizes_known = known.reshape(-1, _NUM_AMOUNTS).T
    is_odd = odd_start | np.logical_or.reduce(odd.reshape(-1, _NUM_AMOUNTS), axis=1) | ~elapse_known
    size, size_known = _sent(*sizes), np.logical_or.reduce(sizes_known)
    unknown = (transit == 0) & (size == 0)
    frame = pd.DataFrame(
        {
            "rank": ranks,
            "step": pd.array(rows.steps, dtype="Int64"),
            "name": pd.Series([name for name, _, _ in keys], dtype="object"),
            "group": pd.Series([group or None for _, _, group in keys], dtype="object"),
            "start_ns": pd.arrays.IntegerArray(start, ~start_known),
            "duration_ns": pd.arrays.IntegerArray(elapse, ~elapse_known),
            "transit_ns": pd.arrays.IntegerArray(transit, ~transit_known | unknown),
            "wait_ns": pd.arrays.IntegerArray(wait, ~wait_known | (unknown & (wait == 0))),
            "bytes": pd.arrays.IntegerArray(size, ~size_known | unknown),
        }
    )
    return frame, set(ranks[is_odd].tolist())


def _numbers(texts: Sequence[msgspec.Raw], unit: Literal["us", "ms"]) -> tuple[_Ints, _Flags, _Flags]:
    """Decimal texts as whole numbers of the small unit (0 where there is none), which are known, and which are odd.

    Odd is a text that is there and no number, or a negative one. No known one is made into bytes of its own, which would take
    longer than all else that is done with it.
    """
    values, known = exact_ns(texts, unit)
    odd: _Flags = values < 0
    for place in np.flatnonzero(~known):
        odd[place] = bytes(texts[int(place)]).decode("utf-8", "replace").strip('" ') not in NULLS
    return values, known, odd


def _sent(rdma: _Ints, hccs: _Ints, pcie: _Ints, sio: _Ints, sdma: _Ints) -> _Ints:
    """What an operation sent: over RDMA, and inside a node the sum of its links, which SDMA repeats."""
    inside: _Ints = np.maximum(hccs + pcie + sio, sdma)
    return rdma + inside
