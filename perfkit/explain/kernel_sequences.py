"""Kernel sequences: which kernels an operator launches one after the other, and how often: candidates for fusion.

A sequence is what one call of an operator launched, in the order of the device. The question is that of Holistic Trace Analysis
(get_frequent_cuda_kernel_sequences in hta/analyzers/cuda_kernel_analysis.py); where HTA takes the calls at the least depth of all,
here every call counts that is inside no other one that was asked for, so that none is counted twice and none is lost.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.questions import nearest
from perfkit.core.run import Run
from perfkit.explain.queue_length import HOW_TO_COLLECT
from perfkit.record.events.graph import causal_graph
from perfkit.record.events.host_steps import STEP_MARK
from perfkit.record.readers.host import NONE, innermost, parents_of

LEAST = 3
"""Kernels of a sequence worth naming."""
BETWEEN = " | "
COLUMNS = ("rank", "operator", "sequence", "num_kernels", "count", "device_ns", "host_ns")


def kernel_sequences(run: Run, rank: int, operator: str = "", *, step: int | None = None, least: int = LEAST) -> pd.DataFrame:
    """The sequences of at least `least` kernels of one rank, with the columns of `Run.kernel_sequences`, the most frequent first.

    `operator` is part of the names to look at; "" stands for all outermost operators. Raises InputError that names operators if
    none has it, NotMeasuredError if the run has no operators or no launches.
    """
    events = causal_graph(run).rank(rank)
    host = events.host.rows[events.host.of_kind("operator")]
    launches = events.device.assign(thread=events.launches["thread"], launch_ns=events.launches["launch_ns"])
    launches = launches.dropna(subset=["launch_ns", "thread"])
    if host.empty or launches.empty:
        raise NotMeasuredError(f"which operator launched what on rank {rank}", how_to_collect=HOW_TO_COLLECT)
    names = {name for name in map(str, host["name"].unique()) if operator in name and not STEP_MARK.match(name)}
    if not names:
        raise InputError(
            run.name, [nearest(operator, sorted(map(str, host["name"].unique()))[:2_000], "part of an operator's name")]
        )
    if step is not None:
        launches = launches[(launches["step"] == step).fillna(False).to_numpy(dtype=bool)]
    chosen = host[host["name"].isin(names).to_numpy(dtype=bool)].reset_index(drop=True)
    calls = _by_call(chosen, launches)
    calls = calls[(calls["num_kernels"] >= least).to_numpy(dtype=bool)]
    groups = calls.groupby(["operator", "sequence", "num_kernels"], sort=False)[["device_ns", "host_ns"]]
    table = groups.sum().assign(count=groups.size()).reset_index().assign(rank=rank)
    order = ["count", "device_ns", "sequence"]
    return table.sort_values(order, ascending=[False, False, True], ignore_index=True).loc[:, list(COLUMNS)]


def _by_call(operators: pd.DataFrame, launches: pd.DataFrame) -> pd.DataFrame:
    """One row a call that is inside no other: `operator`, `sequence`, `num_kernels`, `device_ns`, `host_ns`."""
    starts = operators["start_ns"].to_numpy(dtype=np.int64)
    ends = starts + operators["duration_ns"].to_numpy(dtype=np.int64)
    codes = pd.factorize(pd.concat([operators["thread"].astype("object"), launches["thread"].astype("object")], ignore_index=True))
    threads = codes[0].astype(np.int64)
    outer = np.flatnonzero(parents_of(starts, ends, threads[: len(operators)]) == NONE)
    moments = launches["launch_ns"].to_numpy(dtype=np.int64)
    around = innermost(starts[outer], ends[outer], threads[outer], moments, threads[len(operators) :])
    rows = launches.assign(call=outer[around], name=launches["name"].astype("object"))[around != NONE]
    groups = rows.sort_values("start_ns", kind="stable").groupby("call")
    told = pd.DataFrame(
        {
            "sequence": groups["name"].agg(BETWEEN.join),
            "num_kernels": groups.size(),
            "device_ns": groups["duration_ns"].sum(),
        }
    )
    calls = operators.loc[told.index]
    return told.assign(operator=calls["name"].astype("object"), host_ns=calls["duration_ns"])
