"""Tables on a screen: aligned columns that fit a terminal, and are whole in a pipe.

Where a terminal is too narrow, texts give way first: columns that are `told` are broken into lines, names lose their middle.
Figures are never shortened: columns that still do not fit follow below, each part with the columns that tell the rows apart.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TextIO

from perfkit.core import quantity
from perfkit.core.shortening import shortened, width_of
from perfkit.core.texts import Said
from perfkit.core.texts import told as in_language
from perfkit.face.cli._screen import Styled, broken, say, screen_width, visible

GAP = "  "
LEAST = 12
_FIGURE = re.compile(r"[+\-–]?\d|[-–]?$|nan$|-?inf$")


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], out: TextIO, *, told: Collection[str] = (), keys: int = 1
) -> None:
    """Print aligned columns under their heads in the language of the process: the first to the left, the others to the right.

    `told` are the headers of columns of sentences; the first `keys` columns tell rows apart.
    """
    heads = [in_language(head) for head in header]
    said = [head in told for head in header]
    cells = [
        [in_language(cell) if sentence or isinstance(cell, Said) else cell for sentence, cell in zip(said, row, strict=True)]
        for row in rows
    ]
    columns = list(zip(*([visible(cell) for cell in row] for row in (heads, *cells)), strict=True))
    widths = [max(map(width_of, column)) for column in columns]
    limit = screen_width(out)
    if limit is None:
        _print_columns(columns, widths, out)
        return
    least = [_least(column, width) for column, width in zip(columns, widths, strict=True)]
    for number, part in enumerate(_parts(least, limit, keys)):
        if number:
            say(out)
        fitted = _fitted([widths[index] for index in part], [least[index] for index in part], limit)
        _print_columns([columns[index] for index in part], fitted, out, [said[index] for index in part])


def print_rows(rows: Sequence[Mapping[str, Any]], out: TextIO, *, names: Sequence[str] | None = None, keys: int = 1) -> None:
    """Print rows under the words of their names, each value by what its name says it is; `keys` as for `print_table`.

    `names` are the columns, in their order; by default those of the first row.
    """
    shown = list(rows[0]) if names is None else names
    cells = [[_cell(name, row[name]) for name in shown] for row in rows]
    print_table([quantity.label(name) for name in shown], cells, out, keys=keys)


def _cell(name: str, value: Any) -> str:
    text = quantity.text(name, value, absent="-")
    return in_language(text) if isinstance(value, str | bool) and name not in quantity.NAMES else text


def _least(column: Sequence[str], width: int) -> int:
    """The least width of a column: names can be shortened, figures cannot."""
    figures = max((width_of(cell) for cell in column[1:] if _FIGURE.match(cell)), default=0)
    return min(width, max(figures, LEAST))


def _parts(least: Sequence[int], limit: int, keys: int) -> Iterator[list[int]]:
    """Columns by number, as many together as fit, the keys in every part."""
    part = list(range(keys))
    for index in range(keys, len(least)):
        if sum(least[each] + len(GAP) for each in part) + least[index] > limit and len(part) > keys:
            yield part
            part = list(range(keys))
        part.append(index)
    yield part


def _fitted(widths: Sequence[int], least: Sequence[int], limit: int) -> list[int]:
    """Widths that fit: the widest columns give first, below their least only if all have come down to it."""
    fitted = list(widths)
    while sum(fitted) + len(GAP) * (len(fitted) - 1) > limit:
        widest = max(range(len(fitted)), key=lambda index: (fitted[index] > least[index], fitted[index]))
        if fitted[widest] == 1:
            break
        fitted[widest] -= 1
    return fitted


def _print_columns(columns: Sequence[Sequence[str]], widths: Sequence[int], out: TextIO, told: Sequence[bool] = ()) -> None:
    for number, row in enumerate(zip(*columns, strict=True)):
        cells = [
            _lines(cell, width) if width_of(cell) > width and breaks else [cell]
            for cell, width, breaks in zip(row, widths, told if told and number else [True] * len(row), strict=True)
        ]
        for line in range(max(map(len, cells))):
            texts = [
                _aligned(lines[line] if line < len(lines) else "", width, left=index == 0)
                for index, (lines, width) in enumerate(zip(cells, widths, strict=True))
            ]
            text = GAP.join(texts).rstrip()
            say(out, text if number else Styled(text, "bold"), wrapped=False)


def _lines(cell: str, width: int) -> list[str]:
    return ["".join(piece.text for piece in row) for row in broken([Styled(cell, None)], width)]


def _aligned(text: str, width: int, *, left: bool) -> str:
    text = shortened(text, width)
    space = " " * (width - width_of(text))
    return f"{text}{space}" if left else f"{space}{text}"
