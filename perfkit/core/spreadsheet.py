"""Spreadsheet: cells of exported tables that a spreadsheet would run.

A program that opens CSV takes text that begins with one of `STARTS` for a formula (OWASP, "CSV Injection"); names in a recording, a
table or a class are anybody's. Such a cell gets an apostrophe in front, which spreadsheets take for "this is text".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfkit.core.quantity import cells, word

if TYPE_CHECKING:
    import pandas as pd

STARTS = ("=", "+", "-", "@", "\t", "\r")


def safe_cell(value: Any) -> Any:
    """`value` as it may stand in a CSV: text that would be run is quoted; numbers, also written ones, are as they were."""
    if not isinstance(value, str) or not value.startswith(STARTS):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def safe_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """`frame` with safe cells and safe column names."""
    texts = frame.select_dtypes(include=["object", "string", "category"]).columns
    safe = frame.assign(**{name: [safe_cell(word(value)) for value in cells(frame[name])] for name in texts})
    return safe.rename(columns=safe_cell)
