"""Answers in a terminal: the rows of a table with units, as one JSON document or as CSV."""

from __future__ import annotations

from typing import Any, Literal, TextIO

import pandas as pd

from perfkit.core.spreadsheet import safe_frame
from perfkit.core.units import format_bytes, format_ns, format_ratio
from perfkit.face.cli._document import print_document
from perfkit.face.cli._tables import print_table
from perfkit.record.listing import printable

WIDTH = 60
_MOMENTS = ("time_ns", "start_ns", "end_ns", "latest_start_ns")


def print_answer(
    answer: pd.DataFrame, out: TextIO, *, run: str, question: str, form: Literal["text", "json", "csv"], top: int | None
) -> None:
    """Print the first `top` rows of an answer; JSON has `run`, `question`, `rows_found` and `rows`, null for what is not known."""
    shown = answer if top is None else answer.head(top)
    if form == "json":
        rows = [{str(name): _plain(value) for name, value in row.items()} for row in shown.to_dict("records")]
        print_document({"run": run, "question": question, "rows_found": len(answer), "rows": rows}, out)
    elif form == "csv":
        safe_frame(shown).to_csv(out, index=False, lineterminator="\n")
    else:
        names = [str(name) for name in answer.columns]
        cells = [[_cell(name, row[name]) for name in names] for row in shown.to_dict("records")]
        print_table([_title(name) for name in names], cells, out)
        print(f"\n{len(shown)} of {len(answer)} rows", file=out)


def _plain(value: Any) -> Any:
    """A cell as JSON has it."""
    if pd.isna(value):
        return None
    return value.item() if hasattr(value, "item") else value


def _title(name: str) -> str:
    return name if name in _MOMENTS else name.removesuffix("_ns").replace("_bytes_per_s", " rate").replace("bytes_per_s", "rate")


def _cell(name: str, value: Any) -> str:
    if pd.isna(value):
        return "-"
    if name.endswith("bytes_per_s"):
        return f"{format_bytes(value)}/s"
    if name.endswith("_ns") and name not in _MOMENTS:
        return format_ns(value)
    if name.endswith("bytes"):
        return format_bytes(value)
    if name in {"share", "full_ratio"}:
        return format_ratio(value)
    if isinstance(value, float):
        return f"{value:.3g}"
    text = printable(str(value))
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"
