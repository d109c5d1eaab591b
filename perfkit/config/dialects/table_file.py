"""Files of tables as frames: a cell is the word that stands in it (`None` and `NA` too), and empty only where nothing does."""

from __future__ import annotations

import io
import re
from typing import Any

import pandas as pd

from perfkit.config.dialects._table_names import is_text
from perfkit.core.errors import InputError

_LONG = re.compile(r"Expected (\d+) fields in line (\d+), saw (\d+)")
_FORM: dict[str, Any] = {"encoding": "utf-8-sig", "skipinitialspace": True, "keep_default_na": False, "na_values": [""]}


def read_frame(name: str, text: str | None = None) -> pd.DataFrame:
    """The table in the file `name`, or in `text`, which then only has that name.

    Raises InputError if it cannot be read, is not UTF-8 or no CSV, or has a row with more cells than its header.
    """
    try:
        # Without a header pandas refuses a first row that is too long; with one it would drop the cells that are too many.
        head = pd.read_csv(_source(name, text), header=None, nrows=2, dtype=str, **_FORM)
        words = dict.fromkeys((label for label in head.iloc[0].dropna() if is_text(label)), "str")
        frame: pd.DataFrame = pd.read_csv(_source(name, text), index_col=False, low_memory=False, dtype=words, **_FORM)
    except FileNotFoundError as error:
        raise InputError(name, ["the file does not exist"]) from error
    except UnicodeDecodeError as error:
        raise InputError(name, [f"byte {error.start} is not UTF-8; save the table as UTF-8"]) from error
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise InputError(name, [_told(str(error))]) from error
    except OSError as error:
        raise InputError(name, [f"the file cannot be read: {error.strerror}"]) from error
    return frame


def _source(name: str, text: str | None) -> str | io.StringIO:
    return name if text is None else io.StringIO(text)


def _told(message: str) -> str:
    long = _LONG.search(message)
    if not long:
        return f"not a table in CSV: {message}"
    return (
        f"not a table in CSV: line {long[2]} has {long[3]} cells, the lines before it {long[1]}; quote cells with a comma in them"
    )
