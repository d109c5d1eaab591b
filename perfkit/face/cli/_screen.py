"""Screen: the one door through which commands write text, to a terminal, a pipe or a file.

What recordings, configurations and paths hold is data: control characters in it are shown as escapes and never reach a terminal,
where they would move its cursor or set its title. Bold and colour are added here and nowhere else, on a terminal only; NO_COLOR
(no-color.org) and TERM=dumb switch them off. Lines are broken between words at the width of a terminal, and left whole elsewhere.
What is `Said` is told in the language of the process; any other text is data, or was told before.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, TextIO
from unicodedata import category

from perfkit.core.shortening import width_of
from perfkit.core.texts import Said, told
from perfkit.record.listing import printable

Style = Literal["bold", "dim", "red", "green", "yellow", "cyan"]
_CODES: dict[Style, int] = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}
_HANGING = 2
_OPEN, _CLOSE, _WIDE = "（《「“", "，。；：、！？）》」”", "\u2e80-\uffef"
_PIECE = re.compile(
    rf" +|[^ {_OPEN}{_CLOSE}]*/[^ {_OPEN}{_CLOSE}]*[{_CLOSE}]*"
    rf"|[{_OPEN}]*(?:[\u2e80-\u9fff]|[^ {_OPEN}{_CLOSE}{_WIDE}]+)[{_CLOSE}]*|."
)
"""A word, a path, a character of Chinese with the marks beside it, or spaces."""
_LEAST, _USUAL = 26, 80


@dataclass(frozen=True, slots=True)
class Styled:
    """A piece of a line that stands out on a terminal."""

    text: str
    style: Style | None


def screen_width(out: TextIO) -> int | None:
    """Columns of a terminal (COLUMNS wins; 80 if it does not say); None where `out` is none, and nothing is shortened."""
    if not out.isatty():
        return None
    asked = os.environ.get("COLUMNS", "")
    try:
        columns = int(asked) if asked.isdecimal() else os.get_terminal_size(out.fileno()).columns
    except OSError:
        columns = 0
    return max(_LEAST, columns or _USUAL)


def has_colour(out: TextIO) -> bool:
    """Whether `out` takes bold and colour."""
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def say(out: TextIO, *parts: str | Styled, wrapped: bool = True) -> None:
    """Print one line, after an empty one where it begins with a line end; other line ends are data and shown as escapes.

    `wrapped` breaks it between words at the width of a terminal.
    """
    given = [part if isinstance(part, Styled) else Styled(part, None) for part in parts]
    pieces = [Styled(told(piece.text), piece.style) if isinstance(piece.text, Said) else piece for piece in given]
    if pieces and pieces[0].text.startswith("\n"):
        out.write("\n")
        pieces[0] = Styled(pieces[0].text[1:], pieces[0].style)
    line = [Styled(visible(piece.text), piece.style if has_colour(out) else None) for piece in pieces]
    width = screen_width(out) if wrapped else None
    for row in [line] if width is None else broken(line, width, _HANGING):
        for style, group in groupby(row, key=lambda piece: piece.style):
            text = "".join(piece.text for piece in group)
            out.write(text if style is None else f"\x1b[{_CODES[style]}m{text}\x1b[0m")
        out.write("\n")


def visible(text: str) -> str:
    """`text` with every control character, mark of direction and byte that is no UTF-8 as an escape; spaces of any width stay."""
    return text if text.isprintable() else "".join(char if category(char) == "Zs" else printable(char) for char in text)


def broken(line: Sequence[Styled], width: int, hanging: int = 0) -> Iterator[Sequence[Styled]]:
    """The line in rows of at most `width` cells, broken at spaces and in Chinese between characters, all but the first `hanging`.

    A word that is longer, or a path, stands alone, to be copied whole.
    """
    words = [Styled(word, piece.style) for piece in line for word in _PIECE.findall(piece.text)]
    indent = " " * min(hanging + (len(words[0].text) if words and words[0].text.isspace() else 0), width // 2)
    row: list[Styled] = []
    used = 0
    for word in words:
        cells = width_of(word.text)
        if used + cells > width and used > len(indent):
            yield row[:-1] if row[-1].text.isspace() else row
            row, used = [Styled(indent, None)], len(indent)
            if word.text.isspace():
                continue
        row.append(word)
        used += cells
    yield row


def write_text(out: TextIO, text: str) -> None:
    """Write a document as it is to a pipe or file; a terminal gets its control characters as escapes."""
    pieces = re.split(r"([\n\t])", text) if out.isatty() else ()
    out.write("".join(piece if piece in "\n\t" else visible(piece) for piece in pieces) if pieces else text)
