"""Select: a query in SQL over tables, answered by the columnar engine, which can read nothing else and change nothing."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.schema import Table
from perfkit.record.store._cells import categories, nullable
from perfkit.record.store._parquet import stored

if TYPE_CHECKING:
    import polars as pl
else:
    from perfkit.record.store._polars import pl

_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_QUESTION = re.compile(r"\s*(?:SELECT|WITH)\b", re.IGNORECASE)
_LITERAL = re.compile(r"'(?:[^']|'')*'")
_FILE = re.compile(r"(?:read|scan)_\w+", re.IGNORECASE)
"""Functions of the engine that read files. They are refused wherever their name stands, also where it seems to be in a comment or a
literal: what is a comment is the engine's to say, and no table or column has such a name."""
_WORD = re.compile(r"\w+")
_QUOTED = re.compile(r"['\"`](\w+)['\"`]|column (\w+)|:\s*(\w+)")


def select(query: str, frame: Callable[[str], pd.DataFrame], tables: Mapping[str, Table]) -> pd.DataFrame:
    """The answer to one SELECT (WITH is allowed) over `tables`, of which `frame` gives those that the query names.

    Raises InputError for anything else than a question, for tables read from files, and for wrong names with the nearest ones.
    """
    plain = _COMMENT.sub(" ", _LITERAL.sub("''", query))  # what is looked at; literals may hold anything
    if not _QUESTION.match(plain):
        raise InputError("sql", ["only SELECT over the tables of the run is answered: " + ", ".join(tables)])
    if files := _FILE.search(query):
        raise InputError("sql", [f"{files[0]!r}: only the tables of the run are answered, no files: " + ", ".join(tables)])
    words = {word.lower() for word in _WORD.findall(plain)}
    named = [name for name in tables if name in words]
    try:
        context = pl.SQLContext({name: _columns(frame(name)) for name in named})
        answer = context.execute(query, eager=True)
        return pd.DataFrame({series.name: _restored(series) for series in answer.get_columns()})
    except pl.exceptions.PolarsError as error:
        raise InputError("sql", [_explained(str(error), named, tables)]) from error


def _columns(frame: pd.DataFrame) -> pl.DataFrame:
    return pl.DataFrame([stored(str(name), frame[name]) for name in frame.columns])


def _restored(values: pl.Series) -> pd.Series:
    if values.dtype.is_integer():
        return nullable(values.cast(pl.Int64)) if values.null_count() else pd.Series(values.to_numpy().copy())
    if isinstance(values.dtype, pl.Enum):
        return categories(values)
    return (
        pd.Series(values.to_list())
        if values.dtype.is_nested() or values.dtype == pl.String
        else pd.Series(values.to_numpy().copy())
    )


def _explained(error: str, named: list[str], tables: Mapping[str, Table]) -> str:
    """What the engine says, in one line, with the names that come closest to those that it does not know."""
    columns = [column.name for name in named for column in tables[name].columns]
    known = [*tables, *columns]
    said = next(iter(error.splitlines()), error)
    wrong = [word for found in _QUOTED.findall(said) for word in found if word and word not in known]
    close = [match for word in wrong for match in difflib.get_close_matches(word, known, n=2, cutoff=0.5)]
    hint = f"; do you mean {' or '.join(dict.fromkeys(close))}?" if close else ""
    of = "; ".join(f"{name} has {', '.join(column.name for column in tables[name].columns)}" for name in named)
    return f"{said}{hint} " + (of or f"tables are {', '.join(tables)}")
