"""The columnar engine: reads big text files into exact columns, and keeps tables as Parquet, small ones as JSON.

The only package that imports polars, and it does so when it first needs it.

Every cell of a foreign CSV is text first: it is stripped (a tab follows time stamps in some files), `N/A`, `NA`, `nan`, `-` and
the empty text are null. What does not parse is null, counted by column, and never ends the reading.
"""

from perfkit.record.store._cells import NULLS, Cell, exact_ns, times_ns
from perfkit.record.store._csv import MISSHAPEN, Csv, read_csv
from perfkit.record.store._few_cells import read_plain, series
from perfkit.record.store._few_rows import FEW_ROWS, read_rows, write_rows
from perfkit.record.store._parquet import ROWS_PER_GROUP, read_group, read_table, write_table
from perfkit.record.store._select import select
from perfkit.record.store._slices import Block, SliceFile, SliceWriter

__all__ = [
    "FEW_ROWS",
    "MISSHAPEN",
    "NULLS",
    "ROWS_PER_GROUP",
    "Block",
    "Cell",
    "Csv",
    "SliceFile",
    "SliceWriter",
    "exact_ns",
    "read_csv",
    "read_group",
    "read_plain",
    "read_rows",
    "read_table",
    "select",
    "series",
    "times_ns",
    "write_rows",
    "write_table",
]
