"""Memory stays allocated after its last use, or more of it is kept with every step.

What is measured: with a memory tracker the peak of what is allocated over the peak if every block were freed after its last use,
weights left out, and the blocks that are held longest against their size. With a curve of memory over at least three steps: what is
left at the lowest point of every step, which must not grow.

What to do: name what a custom backward function needs (used_bprop_inputs), drop references in Python (lists of losses, caches,
hooks), detach what is only logged, collect garbage at fixed steps; record with the tracker to see the owners.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose import who
from perfkit.explain.diagnose.advice import Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import MEMORY_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict
from perfkit.record import memory

HELD_RATIO = Threshold(
    name="held-ratio",
    value=1.15,
    unit="live peak over the peak in use",
    origin="chosen: rounding explains less: PyTorch rounds blocks to 512 bytes, large ones to 2 MiB",
)
GROWTH_SHARE = Threshold("growth-share", 0.01, "of the peak a step", "chosen: at this rate the peak doubles in 100 steps")

MIN_STEPS = 3
"""Two differences: one that grows may be an optimizer that takes its states in the first step."""
SHOWN = 5
ACTIONS: tuple[Action, ...] = (
    {
        "mindspore": "name what a custom backward function needs (used_bprop_inputs), and free the rest",
        "torch": "keep for a custom backward function only what it needs (ctx.save_for_backward), and free the rest",
    },
    "drop references in Python: lists of losses with their graphs, caches, hooks; detach what is only logged",
    {
        "mindspore": "find the owner with MS_ALLOC_CONF=memory_tracker:True and few layers, then switch it off again",
        "torch_npu": "find the owner with torch_npu.npu.memory._record_memory_history() and few layers, then switch it off again",
        "torch": "find the owner with torch.cuda.memory._record_memory_history() and few layers, then switch it off again",
    },
)


def check(case: Case) -> Verdict:
    """Ranks whose memory is held after its last use, or grows."""
    held, grown = _held(case), _grown(case)
    if not held and not grown:
        raise NotMeasuredError("uses of memory blocks, or memory over three steps", how_to_collect=MEMORY_BY)
    evidence: dict[str, float] = {}
    findings = []
    if held:
        worst = max(held, key=lambda rank: held[rank][0] / max(1, held[rank][1]))
        live, used = held[worst]
        evidence |= {"live_peak_bytes": live, "use_peak_bytes": used, "live_over_use_ratio": live / max(1, used)}
        if live >= case.limit(HELD_RATIO) * used:
            findings.append(_held_finding(case, worst, evidence))
    if grown:
        share, per_step = max(grown.values())
        evidence |= {"growth_a_step_share_of_peak": share, "growth_a_step_bytes": per_step}
        ranks = tuple(sorted(rank for rank, (own, _) in grown.items() if own >= case.limit(GROWTH_SHARE)))
        if ranks:
            told = who.count(len(ranks), "rank")
            title = say("Memory of {ranks} grows by up to {growth_a_step_bytes} with every step", ranks=told, **evidence)
            findings.append(_finding(case, title, {"ranks": ranks}, evidence))
    return Verdict(tuple(findings), evidence)


def _held(case: Case) -> dict[int, tuple[int, int]]:
    """By rank the peak of what is allocated and of what is used, in bytes, where uses were recorded."""
    if not case.run.has("memory_blocks"):
        return {}
    rows = case.run.frame("memory_blocks")
    rows = rows[rows["rank"].isin(rows.loc[rows["last_use"].notna(), "rank"].unique()[:16])]
    found = {}
    for (rank, _), blocks in rows.groupby(["rank", "clock"], observed=True):
        live = memory.live_peak(_own(blocks)).num_bytes
        found[int(str(rank))] = (live, memory.use_peak(_own(blocks)).num_bytes)
    return found


def _own(blocks: pd.DataFrame) -> pd.DataFrame:
    return blocks[(blocks["kind"] != memory.WEIGHT).fillna(True).to_numpy(dtype=bool)]


def _held_finding(case: Case, rank: int, evidence: dict[str, float]) -> Finding:
    blocks = case.run.frame("memory_blocks", ranks=[rank])
    worst = memory.held_after_use(blocks[blocks["clock"] == blocks["clock"].iloc[0]], limit=None)
    names = tuple(dict.fromkeys(block.name or "block without a name" for block in worst))[:SHOWN]
    held = evidence["live_peak_bytes"] - evidence["use_peak_bytes"]
    evidence = {**evidence, "held_after_use_bytes": held, "num_blocks_held": float(len(worst))}
    form = "{held_after_use_bytes} of the peak is held after its last use ({num_blocks_held} blocks), most by {name}"
    return _finding(case, say(form, name=names[0], **evidence), {"ranks": (rank,), "operators": names}, evidence)


def _finding(case: Case, title: str, subject: dict[str, tuple[object, ...]], evidence: dict[str, float]) -> Finding:
    return Finding(
        rule=RULE.name,
        title=title,
        subject=subject,
        evidence=evidence,
        actions=fitting(case, ACTIONS),
        severity="medium",
        next=("15_memory_profile", "23_user_code"),
    )


def _grown(case: Case) -> dict[int, tuple[float, float]]:
    """By rank what is added a step to the least memory of a step, as a share of the peak and in bytes; 0 unless every step adds."""
    if not case.run.has("memory_curve") or case.steps["start_ns"].isna().all():
        return {}
    columns = ("rank", "component", "time_ns", "allocated_bytes")
    rows = case.run.frame("memory_curve", ranks=case.detail_ranks, columns=columns).dropna()
    found = {}
    for rank, curve in rows.groupby("rank"):
        sums = curve.groupby("component", observed=True)["allocated_bytes"].max()
        steps = case.steps[(case.steps["rank"] == rank).to_numpy() & case.steps["start_ns"].notna().to_numpy()].sort_values("step")
        if len(steps) < MIN_STEPS or sums.empty:
            continue
        main = curve[(curve["component"] == sums.index[int(sums.to_numpy().argmax())]).to_numpy(dtype=bool)]
        starts = steps["start_ns"].to_numpy(dtype=np.int64)
        at = np.searchsorted(starts, main["time_ns"].to_numpy(dtype=np.int64), side="right") - 1
        lowest = main["allocated_bytes"].astype("int64")[at >= 0].groupby(at[at >= 0]).min().to_numpy()
        if len(lowest) < MIN_STEPS:
            continue
        added = np.diff(lowest)
        per_step = float(np.median(added)) if (added > 0).all() else 0.0
        found[int(str(rank))] = (per_step / max(1.0, float(sums.max())), per_step)
    return found


RULE = Rule(
    "memory-late-release", "Memory that is held after its last use", frozenset(), MEMORY_BY, (HELD_RATIO, GROWTH_SHARE), check
)
