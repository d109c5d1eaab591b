"""The allocator holds much more memory than it hands out, or takes and returns memory in the middle of steps.

What is measured, whichever was recorded: memory reserved over memory allocated at the peak of each rank; the peak with gaps over
the peak of the blocks in a printed statistic, against the memory budget; and calls that take memory from the device or return it
inside steps, which stop the device each time. Where kernels are replayed from captured graphs, what is reserved says nothing: the
memory of a graph is handed out only while it is captured.

What to do: virtual memory (MS_ALLOC_CONF=enable_vmm:True; PYTORCH_CUDA_ALLOC_CONF or
PYTORCH_NPU_ALLOC_CONF=expandable_segments:True), fewer dynamic shapes, no emptying of the cache inside the step.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose import device, host, who, work
from perfkit.explain.diagnose.advice import EXPANDABLE, KEEP_CACHE, Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import MEMORY_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict

FRAGMENTED_RATIO = Threshold(
    name="fragmented-ratio",
    value=1.3,
    unit="reserved over allocated",
    origin="chosen: healthy bundled recordings reserve up to 1.29 times what they allocate, faulty ones 1.42 times",
)
FRAGMENTS_SHARE = Threshold(
    name="fragments-share",
    value=0.05,
    unit="share of the memory budget, or of the device",
    origin="chosen: a layer more or less moves memory by as much; less does not decide whether a job fits",
)

RETRIES_A_STEP = 2.0
"""One may be for a shape that is new; a second one finds the pool torn although it was just cleaned."""
MOST_RANKS = 16
UNCACHED = 0.5
"""So many calls a kernel take and return the memory of every operator."""
RETRY_NS = (200_000, 20_000_000)
"""Idle times of a device that an allocator's retry may explain."""
GRAPHS = re.compile(r"(?:cuda|cu|hip)GraphLaunch", re.IGNORECASE)
ACTIONS: tuple[Action, ...] = (
    EXPANDABLE,
    "keep shapes equal from step to step, and leave the allocator some memory",
    KEEP_CACHE,
)


def check(case: Case) -> Verdict:
    """Ranks with much reserved memory that is not handed out, or with an allocator that works inside steps."""
    ratios = {**_curve_ratios(case), **_report_ratios(case)}
    retries = _retries(case)
    if not ratios and not retries:
        raise NotMeasuredError("memory reserved and allocated", how_to_collect=MEMORY_BY)
    evidence: dict[str, float] = {}
    if ratios:
        evidence["largest_reserved_over_allocated"] = max(ratios.values())
    if retries:
        evidence["largest_allocator_calls_a_step"] = max(retries.values())
    limit = case.limit(FRAGMENTED_RATIO)
    named = tuple(
        sorted(
            {rank for rank, ratio in ratios.items() if ratio >= limit}
            | {rank for rank, n in retries.items() if n >= RETRIES_A_STEP}
        )
    )
    if not named:
        return Verdict((), evidence)
    cost_ns = _cost_ns(case, named)
    ranks = who.count(len(named), "rank")
    of, on = (say(form, ranks=ranks) if len(case.run.ranks) > 1 else "" for form in (" of {ranks}", " on {ranks}"))
    finding = Finding(
        rule=RULE.name,
        title=say(
            "Memory{of} is fragmented: up to {largest_reserved_over_allocated} x as much reserved as allocated"
            if ratios
            else "The allocator takes and returns memory up to {largest_allocator_calls_a_step} times a step{on}",
            of=of,
            on=on,
            **evidence,
        ),
        subject={"ranks": named},
        evidence=evidence,
        actions=fitting(case, ACTIONS),
        cost_ns=cost_ns or None,
        severity="medium" if not cost_ns else None,
        next=("15_memory_profile",),
        part="free",
    )
    return Verdict((finding,), evidence)


def _curve_ratios(case: Case) -> dict[int, float]:
    """By rank the largest reserved over the largest allocated memory of the component that reserves most."""
    if not case.run.has("memory_curve"):
        return {}
    ranks = None if len(case.run.ranks) <= len(case.detail_ranks) else case.detail_ranks
    rows = case.run.frame("memory_curve", ranks=ranks, columns=("rank", "component", "allocated_bytes", "reserved_bytes")).dropna()
    peaks = rows.groupby(["rank", "component"], observed=True)[["allocated_bytes", "reserved_bytes"]].max().reset_index()
    peaks = (
        peaks[peaks["allocated_bytes"] > 0].sort_values("reserved_bytes", ascending=False, kind="stable").drop_duplicates("rank")
    )
    memory = min((float(spec.memory_bytes) for spec in device.candidates(case)), default=0.0)
    gaps = peaks["reserved_bytes"] - peaks["allocated_bytes"]
    # What a device has plenty of decides nothing.
    peaks["reserved_bytes"] = peaks["reserved_bytes"].where(gaps >= case.limit(FRAGMENTS_SHARE) * memory, peaks["allocated_bytes"])
    ratios = {int(row["rank"]): float(row["reserved_bytes"] / row["allocated_bytes"]) for row in peaks.to_dict("records")}
    high = [rank for rank in ratios if ratios[rank] >= case.limit(FRAGMENTED_RATIO)]
    return {} if high and _replays_graphs(case, high[0]) else ratios


def _replays_graphs(case: Case, rank: int) -> bool:
    """Whether kernels of a rank come from captured graphs: their memory is reserved, and handed out to nobody while they run."""
    calls = host.rows(case, rank, GRAPHS)
    return calls is not None and len(calls) > 0


def _report_ratios(case: Case) -> dict[int, float]:
    """By rank the peak with gaps over that of the blocks, from printed statistics in which the gaps matter."""
    rows = case.run.frame("memory_reports")
    found: dict[int, float] = {}
    for row in rows.to_dict("records"):
        used, actual, budget = (row[name] for name in ("used_peak_bytes", "actual_peak_bytes", "budget_bytes"))
        if pd.isna(used) or pd.isna(actual) or not used:
            continue
        gaps_matter = pd.isna(budget) or (actual - used) >= case.limit(FRAGMENTS_SHARE) * budget
        ratio = (
            max(float(actual / used), case.limit(FRAGMENTED_RATIO))
            if gaps_matter and actual > used and not pd.isna(budget)
            else float(actual / used)
        )
        found[int(row["rank"])] = max(ratio, found.get(int(row["rank"]), 0.0))
    return found


def _retries(case: Case) -> dict[int, float]:
    """By rank the calls a step of the allocator to the device inside steps, of ranks that idle in pieces that may be retries."""
    if "host" not in case.run.tables or not case.run.has("kernels") or not case.idle_known or case.unmarked:
        return {}
    gaps = case.gaps[~case.gaps["lead"].astype(bool) & case.gaps["duration_ns"].between(*RETRY_NS)]
    often = gaps.groupby("rank").size() / case.num_kernel_steps
    found: dict[int, float] = {}
    if case.detail_ranks and host.rows(case, case.detail_ranks[0], host.ALLOCATORS) is not None:
        found[case.detail_ranks[0]] = 0.0
    for rank in [int(rank) for rank in often.index[(often >= RETRIES_A_STEP).to_numpy()]][:MOST_RANKS]:
        calls = host.rows(case, rank, host.ALLOCATORS)
        spans = case.kernels[case.kernels["rank"] == rank]
        if calls is None or spans.empty:
            continue
        inside = (calls["start_ns"] >= spans["start_ns"].min()) & (calls["start_ns"] <= spans["start_ns"].max())
        # More is no retry of an allocator but the lack of one, which `allocator-churn` says.
        if inside.sum() < UNCACHED * len(spans):
            found[rank] = float(inside.sum()) / case.num_kernel_steps
    return found


def _cost_ns(case: Case, ranks: tuple[int, ...]) -> int:
    """What the step would win without the idle times of the named ranks that retries may explain; 0 where they are few."""
    if not case.run.has("kernels") or not case.idle_known:
        return 0
    gaps = case.gaps[~case.gaps["lead"].astype(bool) & case.gaps["rank"].isin(ranks) & case.gaps["duration_ns"].between(*RETRY_NS)]
    gaps = _at_calls(case, gaps)
    often = gaps.groupby("rank").size() / case.num_kernel_steps
    guilty = often.index[(often >= 1.0).to_numpy()]
    rows = gaps[gaps["rank"].isin(np.asarray(guilty))]
    return work.won_ns(case, rows) if len(rows) else 0


def _at_calls(case: Case, gaps: pd.DataFrame) -> pd.DataFrame:
    """Of ranks whose calls are known the idle times in which one ends, of the others all."""
    for rank in [int(rank) for rank in gaps["rank"].unique()][:MOST_RANKS]:
        calls = host.rows(case, rank, host.ALLOCATORS)
        if calls is not None:
            gaps = gaps[((gaps["rank"] != rank) | gaps.index.isin(host.idle_at(case, rank, calls).index)).to_numpy(dtype=bool)]
    return gaps


RULE = Rule(
    name="memory-fragmentation",
    title="Fragmented memory",
    needs=frozenset(),
    how_to_collect=MEMORY_BY,
    thresholds=(FRAGMENTED_RATIO, FRAGMENTS_SHARE),
    check=check,
    explains=frozenset({"host-pause", "host-bound", "jitter"}),
)
