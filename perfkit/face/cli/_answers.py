"""Answers in a terminal: the rows of a table with units, as one JSON document or as CSV."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TextIO

import pandas as pd

from perfkit.core import quantity, texts
from perfkit.core.spreadsheet import safe_frame
from perfkit.face.cli._document import print_document
from perfkit.face.cli._screen import say, write_text
from perfkit.face.cli._tables import print_rows


def print_answer(
    answer: pd.DataFrame, out: TextIO, *, run: str, question: str, form: Literal["text", "json", "csv"], top: int | None
) -> None:
    """Print the first `top` rows of an answer; JSON has `run`, `question`, `rows_found` and `rows`, null for what is not known."""
    shown = answer if top is None else answer.head(top)
    if form == "json":
        print_document({"run": run, "question": question, "rows_found": len(answer), "rows": list(_rows(shown))}, out)
    elif form == "csv":
        write_text(out, safe_frame(shown).to_csv(index=False, lineterminator="\n"))
    else:
        print_rows(list(_rows(shown)), out, names=list(map(str, answer.columns)))
        say(out, "\n", texts.say("{shown} of {found} rows", shown=str(len(shown)), found=str(len(answer))))


def _rows(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    columns = {str(name): quantity.cells(frame[name]) for name in frame.columns}
    return (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
