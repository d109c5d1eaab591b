"""The allocator gives memory back to the device inside steps and takes it again, which stops the device each time.

What is measured: how often in a step the reserved memory of a rank shrinks, or the host frees memory of the device (cudaFree,
aclrtFree, on up to two ranks) while kernels of the step run. A caching allocator keeps what it has: giving back is an emptied
cache, or a retry because no free piece was large enough, which `memory-fragmentation` says more exactly. The cost is idle time at
those calls.

What to do: no empty_cache inside the step, a larger limit of memory, fewer shapes, virtual memory (expandable segments).
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose import host, who, work
from perfkit.explain.diagnose.advice import EXPANDABLE, KEEP_CACHE, Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import MEMORY_BY, STEPS_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict

CHURN_CALLS = Threshold(
    name="churn-calls",
    value=4.0,
    unit="times a step that memory goes back to the device",
    origin="chosen: healthy bundled recordings give memory back once a step at most",
)

FREES = re.compile(r"(?:cuda|hip|aclrt)(?:Free|MemUnmap)\w*", re.IGNORECASE)
LEAST_BYTES = 2**20
"""Half of the smallest block that PyTorch takes of a device, 2 MiB (`kSmallBuffer`)."""
MOST_RANKS = 16
UNCACHED = 0.25
"""With so many returns a kernel nothing keeps memory for the next operator."""
CACHE: Action = {
    "torch_npu": "let the allocator keep memory: unset PYTORCH_NO_NPU_MEMORY_CACHING",
    "torch": "let the allocator keep memory: unset PYTORCH_NO_CUDA_MEMORY_CACHING",
}
ACTIONS: tuple[Action, ...] = (
    KEEP_CACHE,
    EXPANDABLE,
    "keep shapes equal from step to step, and leave the allocator some memory",
)


def check(case: Case) -> Verdict:
    """Ranks that return memory to the device again and again inside steps."""
    counts: dict[int, float] = {}
    idle: list[pd.DataFrame] = []
    looked_at = host.busiest(case)
    for rank in case.detail_ranks[:MOST_RANKS]:
        shrunk, calls = _shrunk(case, rank), _calls(case, rank) if rank in looked_at else None
        known = [value for value in (shrunk, None if calls is None else len(calls)) if value is not None]
        if known:
            counts[rank] = max(known) / max(1, len(case.step_numbers))
        if calls is not None and counts[rank] >= case.limit(CHURN_CALLS):
            idle.append(host.idle_at(case, rank, calls)[work.COLUMNS])
    if not counts:
        raise NotMeasuredError("memory reserved over time, or calls that free it", how_to_collect=MEMORY_BY)
    most = max(counts.values())
    evidence = {"most_returns_a_step": most}
    ranks = tuple(rank for rank, count in counts.items() if count >= case.limit(CHURN_CALLS))
    if not ranks:
        return Verdict((), evidence)
    cost_ns = work.won_ns(case, pd.concat(idle, ignore_index=True)) if idle else 0
    kernels = len(case.kernels) / case.num_kernel_steps / max(1, len(case.detail_ranks)) if case.run.has("kernels") else 0.0
    uncached = 0 < UNCACHED * kernels <= most
    if case.unmarked and not uncached:
        raise NotMeasuredError("marks of steps, to count returns in one", how_to_collect=STEPS_BY)
    where = say(" on {ranks}", ranks=who.count(len(ranks), "rank")) if len(case.run.ranks) > 1 else ""
    cached = ": no allocator keeps it" if uncached else ""
    finding = Finding(
        rule=RULE.name,
        title=say(
            "Memory goes back to the device up to {most_returns_a_step} times a step{where}{cached}",
            where=where,
            cached=cached,
            **evidence,
        ),
        subject={"ranks": ranks},
        evidence=evidence,
        actions=fitting(case, (CACHE, *ACTIONS) if uncached else ACTIONS),
        cost_ns=cost_ns or None,
        # Told whatever it costs: the hosts of two ranks are read, and the others may stop as often.
        severity=work.severity_of(case, cost_ns),
        next=("15_memory_profile", "memory-fragmentation"),
        part="free",
    )
    return Verdict((finding,), evidence)


def _shrunk(case: Case, rank: int) -> int | None:
    """How often the reserved memory of a rank shrinks inside the judged steps; None if it was not recorded."""
    if not case.run.has("memory_curve"):
        return None
    columns = ("component", "time_ns", "reserved_bytes")
    rows = case.run.frame("memory_curve", ranks=[rank], columns=columns).dropna()
    steps = case.steps[(case.steps["rank"] == rank).to_numpy() & case.steps["start_ns"].notna().to_numpy()]
    if rows.empty or steps.empty:
        return None
    main = rows.groupby("component", observed=True)["reserved_bytes"].max()
    curve = rows[(rows["component"] == main.index[int(main.to_numpy().argmax())]).to_numpy(dtype=bool)].sort_values("time_ns")
    first = int(steps["start_ns"].min())
    last = int((steps["start_ns"] + steps["duration_ns"]).max())
    inside = curve["time_ns"].between(first, last).to_numpy(dtype=bool)
    return int((np.diff(curve["reserved_bytes"].to_numpy(dtype=np.int64)[inside]) <= -LEAST_BYTES).sum())


def _calls(case: Case, rank: int) -> pd.DataFrame | None:
    """Calls of a rank that free memory of the device between its first and last kernel; None if its host was not recorded."""
    if not case.run.has("kernels") or case.kernels.empty:
        return None
    rows = host.rows(case, rank, FREES)
    spans = case.kernels.loc[case.kernels["rank"] == rank, "start_ns"]
    if rows is None or spans.empty:
        return None
    return rows[rows["start_ns"].between(spans.min(), spans.max()).to_numpy(dtype=bool)]


RULE = Rule(
    name="allocator-churn",
    title="Memory taken and returned inside steps",
    needs=frozenset(),
    how_to_collect=MEMORY_BY,
    thresholds=(CHURN_CALLS,),
    check=check,
    symptom_of=frozenset({"memory-fragmentation"}),
)
