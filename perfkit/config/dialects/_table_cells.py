"""Cells of a table of plans by column, as numbers, words or texts, and what is to be told about each row."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from perfkit.config.dialects._table_names import NAMES, plain
from perfkit.core.plan_columns import Coded, Flags, Floats

LARGEST = 1e12
"""No size of a plan is larger; beyond it products would overflow."""
FLAGS = {"1": 1.0, "0": 0.0, "true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, "": np.nan}

T = TypeVar("T", bound=Hashable)


@dataclass(slots=True)
class Cells:
    """The table, its own names of the columns, and what is told by position: `problems` (the row cannot be read) and `assumed`."""

    frame: pd.DataFrame
    labels: Mapping[str, str]
    problems: dict[int, list[str]] = field(default_factory=dict)
    assumed: dict[int, list[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.frame)

    def label(self, name: str) -> str:
        """What the table calls a column, or would."""
        return self.labels.get(name) or NAMES.get(name, (name,))[0]

    def numbers(self, name: str) -> Floats:
        """The column as numbers, nan where it is empty; a cell that is no finite number is a problem of its row."""
        if name not in self.labels:
            return np.full(len(self), np.nan)
        label = self.labels[name]
        cells: Any = self.frame[label]
        if cells.dtype.kind in "iuf":
            values = cells.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            values = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
            stated = cells.notna().to_numpy() & (cells.astype(str).str.strip() != "").to_numpy()
            self.problem(stated & np.isnan(values), lambda row: f"{label} = {cells.iloc[row]!r} is not a number")
        self.problem(np.isinf(values), lambda row: f"{label} = {values[row]} must be finite")
        return np.where(np.isfinite(values), values, np.nan)

    def sizes(self, name: str, low: int) -> Floats:
        """The column as whole numbers of at least `low`; others are a problem and read as empty."""
        values = self.numbers(name)
        wrong = np.isfinite(values) & ((values < low) | (values > LARGEST) | (values != np.floor(values)))
        self.problem(
            wrong, lambda row: f"{self.label(name)} = {values[row]:.15g} must be a whole number from {low} to {LARGEST:.0e}"
        )
        return np.where(wrong, np.nan, values)

    def texts(self, name: str) -> Coded[str]:
        """The column as texts without spaces around them, "" where it is empty; a whole number has no fraction.

        A cell that is no text and no number, such as a list, is a problem of its row and reads as empty.
        """
        if name not in self.labels:
            return Coded.same("", len(self))
        label = self.labels[name]
        cells: Any = self.frame[label]
        try:
            codes, values = pd.factorize(cells)
        except TypeError:  # of a cell that has no hash
            wrong = np.array([isinstance(cell, dict | list | set | np.ndarray) for cell in cells], dtype=np.bool_)
            self.problem(wrong, lambda row: f"{label} = {cells.iloc[row]!r} is not a text")
            codes, values = pd.factorize(cells.mask(wrong).astype(str).mask(wrong | cells.isna()))
        return Coded(np.where(codes < 0, len(values), codes), (*map(_text, values), ""))

    def chosen(self, name: str, words: Mapping[str, T], default: T) -> Coded[T]:
        """The meanings of the words of a column that takes a few only; any other is a problem of its row."""
        texts = self.texts(name)
        for code, text in enumerate(texts.values):
            if text and plain(text) not in words:
                self.problem(texts.codes == code, said(f"{self.label(name)} = {text!r} must be one of {listed(text, words)}"))
        return Coded(texts.codes, tuple(words.get(plain(text), default) if text else default for text in texts.values))

    def switches(self, name: str) -> Floats:
        """The column as 1 (true, yes), 0 (false, no) or nan (empty)."""
        texts = self.texts(name)
        for code, text in enumerate(texts.values):
            if text.lower() not in FLAGS:
                self.problem(texts.codes == code, said(f"{self.label(name)} = {text!r} must be 1 or 0"))
        return texts.numbers(lambda text: FLAGS.get(text.lower(), np.nan))

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


def first_of(stated: Coded[str], usual: Coded[str]) -> Coded[str]:
    """The stated words, and the usual ones where the cell is empty."""
    words = (*stated.values, *usual.values)
    places = {word: place for place, word in enumerate(dict.fromkeys(filter(None, words)))}
    codes = np.where(stated.is_(""), len(stated.values) + usual.codes, stated.codes)
    return Coded(np.array([places.get(word, 0) for word in words], dtype=np.intp)[codes], tuple(places))


def coded(values: Floats) -> Coded[float]:
    """A column of numbers by its different values."""
    codes, unique = pd.factorize(values, sort=True, use_na_sentinel=False)
    return Coded(codes, tuple(unique.tolist()))


def _text(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def listed(text: str, words: Mapping[str, Any]) -> str:
    """A word of every meaning that a column can have, and the word nearest to `text`."""
    near = difflib.get_close_matches(plain(text), words, n=1, cutoff=0.6)
    first = {meaning: word for word, meaning in reversed(tuple(words.items()))}
    return ", ".join(word for word in words if word in first.values()) + (f"; nearest is {near[0]}" if near else "")


def _note(notes: dict[int, list[str]], mask: Flags, message: Callable[[int], str]) -> None:
    for row in np.flatnonzero(mask).tolist():
        notes.setdefault(row, []).append(message(row))
