"""Decimals: plain decimal numbers as exact integers, many at once.

Traces have a hundred thousand times a block, most of a few widths and with the point in one place. Those of one shape are added up
digit column by digit column; whatever is not plain (signs, exponents, blanks, text) is left to a slower reader.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_MOST_CHARACTERS = 20
_MOST_DIGITS = 19
_LINE, _POINT, _ZERO, _NINE = b"\n.09"


def plain_decimals(texts: Sequence[bytes], fraction_digits: int) -> tuple[Ints, Flags]:
    """The numbers times 10^fraction_digits, and which of them were plain and so are known; quotes around them are ignored."""
    values, known = np.zeros(len(texts), dtype=np.int64), np.zeros(len(texts), dtype=bool)
    data = np.frombuffer(b"\n".join([*texts, b""]).replace(b'"', b""), dtype=np.uint8)
    ends = np.flatnonzero(data == _LINE)
    if len(ends) != len(texts):  # one of them has lines of its own
        return values, known
    starts = np.append(0, ends + 1)[:-1]
    widths = ends - starts
    for width in np.flatnonzero(np.bincount(widths)[: _MOST_CHARACTERS + 1]).tolist():
        rows = np.flatnonzero(widths == width) if width else np.array([], dtype=np.int64)
        while len(rows):
            characters = np.lib.stride_tricks.sliding_window_view(data, width)[starts[rows]]
            place = characters[0].tobytes().find(b".")
            alike = characters[:, place] == _POINT if place >= 0 else (characters != _POINT).all(axis=1)
            values[rows[alike]], known[rows[alike]] = _of_one_shape(characters[alike], place, fraction_digits)
            rows = rows[~alike]
    return values, known


def _of_one_shape(characters: npt.NDArray[np.uint8], place: int, fraction_digits: int) -> tuple[Ints, Flags]:
    """Numbers of one width with the point in one place (-1: without), and which of them are plain."""
    count, width = characters.shape
    values = np.zeros(count, dtype=np.int64)
    missing = fraction_digits - (width - place - 1 if place >= 0 else 0)
    num_digits = width + missing - (place >= 0)
    if missing < 0 or num_digits > _MOST_DIGITS or width == 1 + place == 1:
        return values, np.zeros(count, dtype=bool)
    plain = characters[:, 0] < _NINE + (num_digits < _MOST_DIGITS)  # 19 digits from 9 on may not fit into 64 bits
    for at in range(width):
        if at != place:
            digits = characters[:, at] - np.uint8(_ZERO)
            plain &= digits <= 9
            values = values * 10 + digits
    return values * 10**missing, plain
