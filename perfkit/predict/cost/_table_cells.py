"""Cells of a table of plans by column, as numbers or words, and what is to be told about each row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core.plan_columns import Flags, Floats

LARGEST = 1e12
"""No size of a plan is larger; beyond it products would overflow."""

Codes = npt.NDArray[np.intp]


@dataclass(slots=True)
class Cells:
    """The table, and the notes collected so far: `problems` (the row cannot be computed) and `assumed` (it can), by position."""

    frame: pd.DataFrame
    problems: dict[int, list[str]] = field(default_factory=dict)
    assumed: dict[int, list[str]] = field(default_factory=dict)
    factorized: dict[str, Any] = field(default_factory=dict)

    def numbers(self, column: str) -> Floats:
        """The column as numbers, nan where it is empty; a cell that is no finite number is a problem of its row."""
        if column not in self.frame:
            return np.full(len(self.frame), np.nan)
        cells: Any = self.frame[column]
        if cells.dtype.kind in "iuf":
            values = cells.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            values = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
            stated = cells.notna().to_numpy() & (cells.astype(str).str.strip() != "").to_numpy()
            self.problem(stated & np.isnan(values), lambda row: f"{column} = {cells.iloc[row]!r} is not a number")
        self.problem(np.isinf(values), lambda row: f"{column} = {values[row]} must be finite")
        return np.where(np.isfinite(values), values, np.nan)

    def sizes(self, column: str, low: int) -> Floats:
        """The column as whole numbers of at least `low`; others are a problem and read as empty."""
        values = self.numbers(column)
        wrong = np.isfinite(values) & ((values < low) | (values > LARGEST) | (values != np.floor(values)))
        self.problem(wrong, lambda row: f"{column} = {values[row]:.15g} must be a whole number from {low} to {LARGEST:.0e}")
        return np.where(wrong, np.nan, values)

    def words(self, column: str, default: str = "") -> tuple[Codes, list[str]]:
        """Codes and words of a text column; empty cells read as `default`."""
        if column not in self.frame:
            return np.zeros(len(self.frame), dtype=np.intp), [default]
        if column not in self.factorized:
            self.factorized[column] = pd.factorize(self.frame[column])
        codes, uniques = self.factorized[column]
        words = [str(word).strip() or default for word in uniques]
        return np.where(codes < 0, len(words), codes), [*words, default]

    def chosen(self, column: str, allowed: Iterable[str], default: str) -> tuple[Codes, list[str]]:
        """As `words`, for a column that takes a few words only."""
        codes, words = self.words(column, default)
        known = tuple(allowed)
        for code, word in enumerate(words):
            if word not in known:
                self.problem(codes == code, said(f"{column} = {word!r} must be one of {', '.join(known)}"))
        return codes, words

    def flags(self, column: str, test: Callable[[str], bool], default: str = "") -> Flags:
        """Whether the words of a column pass a test."""
        codes, words = self.words(column, default)
        return np.asarray(np.array([test(word) for word in words], dtype=bool)[codes])

    def problem(self, mask: Flags, message: Callable[[int], str]) -> None:
        """Note `message(row)` as a problem of every row of the mask."""
        _note(self.problems, mask, message)

    def assume(self, mask: Flags, message: Callable[[int], str]) -> None:
        """Note `message(row)` as an assumption about every row of the mask."""
        _note(self.assumed, mask, message)


def said(text: str) -> Callable[[int], str]:
    """The same message for every row."""
    return lambda _: text


def filled(values: Floats, default: Floats | float) -> Floats:
    """The values with `default` where they are empty."""
    return np.where(np.isnan(values), default, values)


def frozen(notes: Mapping[int, list[str]]) -> dict[int, tuple[str, ...]]:
    """Notes that no longer change."""
    return {row: tuple(messages) for row, messages in notes.items()}


def _note(notes: dict[int, list[str]], mask: Flags, message: Callable[[int], str]) -> None:
    for row in np.flatnonzero(mask):
        notes.setdefault(int(row), []).append(message(int(row)))
