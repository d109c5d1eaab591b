"""Kernel counters: what the performance unit of Ascend's cores counted, whatever metrics were recorded, by kernel.

Beside PipeUtilization there are metrics of arithmetic, memory, cache hits and conflicts; each has columns of its own in
kernel_details.csv, with the unit in the name (`aic_l2_read_bw(GB/s)`, `aic_cube_fops`), and names of its own in TASK_PMU_INFO.
Their values are kept as they stand. Names: the table op_summary of the msprof guide ("AI Core metrics").
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from perfkit.record import store
from perfkit.record.listing import File

TABLE = "kernel_counters"
COUNTER = re.compile(
    r"(?:ai[cv]|aicore|cube|mac|vec|scalar|mte\d|fixpipe|icache|ub|l0[abc]|l1|l2|main_mem|vector|write_cache|read_cache|[rw]\d)_\w+"
    r"(?:\([\w%/]+\))?|ai(?:core|v)_time\(us\)"
)
_KEY = ["step", "name", "type", "counter"]


def counters_in(header: Sequence[str]) -> list[str]:
    """The columns of a table of kernels that are counters."""
    return [column for column in dict.fromkeys(header) if COUNTER.fullmatch(column)]


def of_table(file: File, header: Sequence[str]) -> tuple[pd.DataFrame, dict[str, int]]:
    """The table `kernel_counters` of one rank, without `rank`, from kernel_details.csv, and what its cells lost, by reason.

    A recording without steps is step 0. Rows that cannot be read are counted where the kernels are read.
    """
    counters = counters_in(header)
    columns: dict[str, store.Cell] = {"Step Id": "int", "Name": "label", "Type": "label", **dict.fromkeys(counters, "float")}
    read = store.read_csv(file, columns)
    rows = read.frame
    step = rows["Step Id"] if rows["Step Id"].notna().any() else pd.Series(0, index=rows.index, dtype="Int64")
    kernels = pd.DataFrame({"step": step, "name": rows["Name"], "type": rows["Type"]})
    lost = read.losses()
    return by_kernel(kernels, rows[counters]), {what: lost[what] for what in lost if what.startswith(tuple(counters))}


def by_kernel(kernels: pd.DataFrame, values: pd.DataFrame) -> pd.DataFrame:
    """One row a step, kernel name and counter, from one row a kernel: `step`, `name`, `type`, and a column a counter in `values`.

    Metrics of a core that a kernel did not use are 0 there, not absent: a kernel is left out of the counters of a core that has
    only zeros in it.
    """
    idle = {core: (values[[each for each in values if str(each).startswith(core)]] == 0).all(axis=1) for core in ("aic", "aiv")}
    key = _KEY[:-1]
    named = kernels["name"].notna().to_numpy(dtype=bool)
    kernel = kernels.groupby(key, dropna=False, sort=False, observed=True).ngroup().to_numpy()
    of_kernel = (
        kernels.assign(kernel=kernel).drop_duplicates("kernel").set_index("kernel")[key].astype(dict.fromkeys(key[1:], "object"))
    )
    pieces = []
    for counter in map(str, values.columns):  # one at a time: kernels times counters can be more than memory holds
        core = "aiv" if counter.startswith("aiv") else "aic" if counter.startswith("aic") else None
        used = named if core is None else named & ~idle[core].to_numpy(dtype=bool)
        counts = values[counter].to_numpy(dtype=np.float64, na_value=np.nan)
        used = used & ~np.isnan(counts)
        sums = pd.Series(counts[used]).groupby(kernel[used], sort=False).agg(["size", "sum", "min", "max"])
        pieces.append(
            of_kernel.loc[sums.index].assign(
                counter=counter, count=sums["size"], total=sums["sum"], least=sums["min"], most=sums["max"]
            )
        )
    if not pieces:
        return pd.DataFrame(columns=[*_KEY, "count", "total", "least", "most"])
    return pd.concat(pieces, ignore_index=True)
