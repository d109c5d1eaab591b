"""The thread that launches kernels does not get its CPU: single launch calls take many times as long as others.

What is measured: launch calls that take 20 times the median of their kind and at least 0.1 ms, on up to two ranks, and the time in
which the device idles for its host during them; calls that it does not idle for tell nothing. A call that blocks because the queue
is full is none: then the device is busy; nor is one that copies, which `host-copies` and `frequent-sync` tell. The first launch of
a kernel is left out, because it may load code. Which CPUs a process is bound to is not part of a recording.

What to do: bind every process to CPUs of its own, near its device (CPU_AFFINITY_CONF, numactl); fewer threads of the dataset
and of numerical libraries (OMP_NUM_THREADS); keep other jobs off the host.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose import host, work
from perfkit.explain.diagnose.advice import BIND, Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import HOST_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict
from perfkit.explain.ledger import causes
from perfkit.record.overlap import overlap_ns, union

CONTENTION_SHARE = Threshold(
    "contention-share", 0.01, "share of the step idle in held-up launches", "chosen: as much as is of medium severity"
)
HELD_UP_RATIO = Threshold(
    name="held-up-ratio",
    value=20.0,
    unit="median duration of the same call",
    origin="chosen: a cold cache costs some times the usual, a lost processor a slice of a scheduler: 1 ms against 10 us and more",
)
HELD_UP_LEAST = Threshold(
    "held-up-least", 1e5, "ns", "chosen: a slice of a scheduler is 0.75 to 4 ms; bundled healthy ones have one call of 0.16 ms"
)

LEAST_CALLS = 3
"""Fewer show no habit."""
ACTIONS: tuple[Action, ...] = (
    BIND,
    "use fewer threads: dataset workers, OMP_NUM_THREADS, and no more processes than CPUs",
    "look for other jobs on the host",
)


def check(case: Case) -> Verdict:
    """Ranks whose launch calls are held up while the device has nothing to do."""
    found = {rank: held for rank in host.busiest(case) if (held := _held_up(case, rank)) is not None}
    if not found:
        raise NotMeasuredError("calls that launch kernels", how_to_collect=HOST_BY)
    steps = case.num_kernel_steps
    lost = {rank: idle_ns / steps for rank, (_, idle_ns) in found.items()}
    rank = max(lost, key=lambda known: lost[known])
    calls = found[rank][0]
    evidence = {
        "held_up_calls_a_step": len(calls) / steps,
        "idle_in_held_up_calls_ns": lost[rank],
        "longest_call_ns": float(calls["launch_duration_ns"].max()) if len(calls) else 0.0,
    }
    if len(calls) < LEAST_CALLS or lost[rank] < case.limit(CONTENTION_SHARE) * (case.step_ns or 1):
        return Verdict((), evidence)
    ranks = tuple(sorted(known for known in lost if lost[known] >= 0.5 * lost[rank]))
    finding = Finding(
        rule=RULE.name,
        title=say(
            "{count} launches of rank {rank} are held up, the longest {longest_call_ns}: their thread does not get its CPU",
            count=len(calls),
            rank=str(rank),
            **evidence,
        ),
        subject={"ranks": ranks, "operators": tuple(str(name) for name in calls["call"].astype(str).value_counts().index[:3])},
        evidence=evidence,
        actions=fitting(case, ACTIONS),
        cost_ns=work.less_busy_ns(case, {known: lost[known] for known in ranks}),
        next=("14_timeline", "host-bound"),
        part="free",
    )
    return Verdict((finding,), evidence)


def _held_up(case: Case, rank: int) -> tuple[pd.DataFrame, float] | None:
    """Launch calls that took far longer than their kind, and for how long the device idled in them; None without launches."""
    rows = host.launches(case, rank)
    if rows is None or rows["launch_duration_ns"].isna().all():
        return None
    rows = rows.dropna(subset=["launch_duration_ns"]).sort_values("launch_ns")
    took = rows["launch_duration_ns"].astype("float64")
    usual = took.groupby(rows["call"].astype("object").fillna("")).transform("median").clip(lower=1.0)
    long = (took >= case.limit(HELD_UP_RATIO) * usual) & (took >= case.limit(HELD_UP_LEAST))
    # A copy of pageable memory blocks until it is done, and a full queue until a kernel is: neither lost its CPU.
    calls = rows[long.to_numpy(dtype=bool) & rows.duplicated("name").to_numpy() & (rows["kind"] != "copy").to_numpy(dtype=bool)]
    known = case.ledger.idle
    late = known["cause"].isin([causes.LAUNCHING, causes.PAUSE]) & (known["place"] == "inside") & (known["rank"] == rank)
    gaps = case.gaps[(case.gaps["rank"] == rank).to_numpy() & ~case.gaps["lead"].to_numpy(dtype=bool)]
    gaps = known[late.to_numpy(dtype=bool)] if rank in case.ledger.hosts else gaps
    starts = gaps["start_ns"].to_numpy(dtype=np.int64)
    idle = union(starts, starts + gaps["duration_ns"].to_numpy(dtype=np.int64))
    begin = calls["launch_ns"].to_numpy(dtype=np.int64)
    end = begin + calls["launch_duration_ns"].to_numpy(dtype=np.int64)
    cost = (host.busy_until(idle, end) - host.busy_until(idle, begin)) >= case.limit(HELD_UP_LEAST)
    return calls[cost], float(overlap_ns(idle, union(begin[cost], end[cost])))


RULE = Rule(
    name="cpu-contention",
    title="Launches that are held up",
    needs=frozenset({"steps", "kernels"}),
    how_to_collect=HOST_BY,
    thresholds=(CONTENTION_SHARE, HELD_UP_RATIO, HELD_UP_LEAST),
    check=check,
    explains=frozenset({"host-pause", "jitter"}),
)
