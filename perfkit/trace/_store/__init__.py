"""The columnar engine: reads big text files into exact columns, and keeps tables as Parquet. The only package that imports polars.

Every cell of a foreign CSV is text first: it is stripped (a tab follows time stamps in some files), `N/A`, `NA`, `nan`, `-` and
the empty text are null. What does not parse is null, counted by column, and never ends the reading.
"""

from perfkit.trace._store._cells import NULLS, Cell, times_ns
from perfkit.trace._store._csv import Csv, read_csv
from perfkit.trace._store._parquet import ROWS_PER_GROUP, read_table, write_table
from perfkit.trace._store._slices import read_slices, write_slices

__all__ = [
    "NULLS",
    "ROWS_PER_GROUP",
    "Cell",
    "Csv",
    "read_csv",
    "read_slices",
    "read_table",
    "times_ns",
    "write_slices",
    "write_table",
]
