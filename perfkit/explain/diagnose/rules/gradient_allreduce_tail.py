"""After the backward pass the step goes on for long: gradients are still being reduced, or the optimizer runs in small pieces.

What is measured: the time from the end of the last product, convolution, attention or backward operator of a step to its end, on
the rank where it is shortest in that step, because the others may wait for that one; and what it is made of: communication that
nothing hides, optimizer, other kernels, idle times. Without an optimizer and without communication what follows is no tail: the
recording ends before the step does, or it is no training. A step trace without kernels states the tail as a whole only. A tail of
one rank alone is no finding: its cause lies before it. Idle times in a tail are the host's (`host-bound`, `host-pause`). The cost
is the reduction without its last bucket, or the idle times inside the optimizer.

What to do: buckets whose reduction starts while the backward pass runs (all_reduce_fusion_config, overlap of gradients), a sharded
optimizer, reduction inside a node first (optimizer_weight_shard_size); a fused optimizer.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose import kernels as _kernels
from perfkit.explain.diagnose import planned, unplaced, work
from perfkit.explain.diagnose.advice import REDUCE_INSIDE_FIRST, SMALLER_BUCKETS, Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import KERNELS_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict
from perfkit.explain.ledger import causes
from perfkit.record.overlap import Intervals, overlap_ns, union

TAIL_SHARE = Threshold(
    name="tail-share",
    value=0.10,
    unit="share of the step",
    origin="chosen: healthy bundled recordings end with up to 6.4 %, faulty ones with 18 % and more",
)
TAIL_PART = Threshold("tail-part", 0.5, "share of the tail", "chosen: half of the tail")

HEAVY = re.compile(
    r"mat_?mul|gemm|\bmm\b|bmm|conv(?!ert)|attention|flash|fmha|nvjet|cijk_|cudnn|xmma|[dw]grad|fprop|winograd|"
    r"grad\b|backward|_bwd|_bw_|batch_?norm",
    re.IGNORECASE,
)
BUCKETS = 8
"""A reduction in one piece could be cut into so many, of which the last one cannot hide."""
ACTIONS: dict[str, tuple[Action, ...]] = {
    "reduction": (
        SMALLER_BUCKETS,
        REDUCE_INSIDE_FIRST,
    ),
    "optimizer": (
        {
            "mindspore": "compile the optimizer with the step (mode: 0), and shard it: enable_parallel_optimizer: True",
            "megatron": "shard the optimizer: --use-distributed-optimizer; with Apex or Transformer Engine Adam is one kernel",
            "torch_npu": "use a fused optimizer: torch_npu.optim.NpuFusedAdamW; shard it with fully_shard",
            "torch": "use a fused optimizer: torch.optim.AdamW(fused=True); shard it with fully_shard",
        },
    ),
    "other": ("look at the named operators after the backward pass: clipping, loss scaling, logging", "compile them, or fuse them"),
    "": ("record kernels, to see what the tail is made of", "look for communication and the optimizer after the backward pass"),
}
WHAT = {
    "reduction": "gradients that are reduced then",
    "optimizer": "the optimizer",
    "other": "other operators",
}


def check(case: Case) -> Verdict:
    """The tail of steps, and what it is made of."""
    stated = _stated(case)
    if stated is not None:
        return _verdict(case, stated, None, {})
    if not case.run.has("kernels"):
        raise NotMeasuredError("kernels, or the tail of steps", how_to_collect=KERNELS_BY)
    rows = _after_backward(case)
    if rows.empty:
        raise NotMeasuredError("products of the backward pass, after which the tail begins", how_to_collect=KERNELS_BY)
    tails = _tails(rows)
    # Of each step the rank that waits for no other, and of these the middle one: a host that stops in one step is no habit.
    least = tails.sort_values("tail", kind="stable").drop_duplicates("step")
    shortest = least.iloc[(len(least) - 1) // 2]
    rank, tail_ns = int(shortest["rank"]), float(shortest["tail"])
    parts = {name: float(shortest[name]) for name in ("reduction", "optimizer", "other", "idle", "gaps")}
    largest = max((*WHAT, "idle"), key=lambda name: parts[name])
    # Idle times are the host's, and told by the rules about it.
    if largest == "idle" or (largest == "other" and not parts["optimizer"]):
        return Verdict((), {"tail_ns": tail_ns, "optimizer_ns": parts["optimizer"], "idle_ns": parts["idle"]})
    computing = rows[(rows["rank"] == rank).to_numpy() & rows["computes"].to_numpy()]
    names = _kernels.largest(computing) if largest != "reduction" else ()
    return _verdict(case, tail_ns, largest, parts, names, untold=largest == "reduction" and _untold(case, rank))


def _untold(case: Case, rank: int) -> bool:
    """Whether what of the reductions of a rank is waiting for others is not known."""
    return case.run.has("collectives") and unplaced.mostly_untold(case.members[case.members["rank"] == rank])


def _verdict(
    case: Case,
    tail_ns: float,
    largest: str | None,
    parts: dict[str, float],
    names: tuple[str, ...] = (),
    *,
    untold: bool = False,
) -> Verdict:
    share = tail_ns / (case.step_ns or 1)
    evidence = {"tail_ns": tail_ns, "tail_share": share, **{f"{name}_ns": parts[name] for name in parts if name != "gaps"}}
    whole = max(tail_ns, 1.0)
    if share < case.limit(TAIL_SHARE) or (largest is not None and parts[largest] < case.limit(TAIL_PART) * whole):
        return Verdict((), evidence)
    planned_ns = planned.predicted_ns(case, "communication/exposed/dp", "computing/optimizer")
    if planned_ns is not None and tail_ns <= planned.AS_PLANNED * planned_ns:
        return Verdict((), {**evidence, "planned_tail_ns": planned_ns})
    cost = {"reduction": (1 - 1 / BUCKETS) * parts.get("reduction", 0.0), "optimizer": parts.get("gaps", 0.0)}
    cost_ns = None if largest not in cost or untold else work.less_busy_ns(case, dict.fromkeys(case.run.ranks, cost[largest]))
    if largest is not None:
        evidence["largest_part_share"] = parts[largest] / whole
    made = say(": {largest_part_share} is {what}", what=WHAT[largest], **evidence) if largest is not None else ""
    if untold:
        made = say("{made}, or ranks that come late and were not recorded", made=made)
    finding = Finding(
        rule=RULE.name,
        title=say("Steps go on {tail_ns} after the backward pass{made}", made=made, **evidence),
        subject={"operators": names},
        evidence=evidence,
        actions=fitting(case, ACTIONS[largest or ""]),
        cost_ns=cost_ns or None,
        severity=None if cost_ns else "medium",
        next=("13_communication", "small-messages") if largest == "reduction" else ("12_operators", "14_timeline"),
        part="communication" if largest == "reduction" else "step",
    )
    return Verdict((finding,), evidence)


def _stated(case: Case) -> float | None:
    """The shortest mean tail that a step trace states, in ns."""
    if not case.run.has("step_parts"):
        return None
    rows = case.run.frame("step_parts", columns=("rank", "step", "path", "amount_ns"))
    rows = rows[(rows["path"].astype("object") == "computing/tail").to_numpy(dtype=bool) & rows["amount_ns"].notna().to_numpy()]
    rows = rows[rows["step"].isin(case.step_numbers)]
    return None if rows.empty else float(rows.groupby("rank")["amount_ns"].mean().min())


def _after_backward(case: Case) -> pd.DataFrame:
    """Kernels that end after the last product of their step (`begin`), with `end_ns`, `computes` and `optimizer`."""
    kernels = case.whole(case.kernels[case.kernels["kind"] != "copy"])
    names = kernels["op"].astype("category").cat
    flags = {
        what: np.array([bool(pattern.search(str(name))) for name in names.categories.tolist()] or [False])[names.codes.to_numpy()]
        for what, pattern in (("heavy", HEAVY), ("optimizer", causes.UPDATES))
    }
    computes = (kernels["kind"] == "computing").to_numpy(dtype=bool)
    kernels = kernels.assign(
        end_ns=kernels["start_ns"] + kernels["duration_ns"].astype("int64"),
        heavy=flags["heavy"] & computes,
        optimizer=flags["optimizer"] & computes,
        computes=computes,
    )
    begins = kernels[kernels["heavy"]].groupby(["rank", "step"])["end_ns"].max().rename("begin")
    rows = kernels.merge(begins.reset_index(), on=["rank", "step"])
    return rows[(rows["end_ns"] > rows["begin"]).to_numpy(dtype=bool)]


def _tails(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a rank and step: lengths in ns of its tail and of the parts of that, `gaps` those inside the optimizer."""
    return pd.DataFrame(
        [
            {"rank": int(part["rank"].iloc[0]), "step": int(part["step"].iloc[0]), **_parts(part)}
            for _, part in rows.groupby(["rank", "step"])
        ]
    )


def _parts(rows: pd.DataFrame) -> dict[str, float]:
    begin, end = int(rows["begin"].iloc[0]), int(rows["end_ns"].max())
    computing = _spans(rows[rows["computes"]], begin)
    moving = _spans(rows[~rows["computes"]], begin)
    optimizer = rows[rows["optimizer"]]
    reduction = moving.total_ns - overlap_ns(moving, computing)
    own = _spans(optimizer, begin).total_ns
    idle = end - begin - computing.total_ns - reduction
    within = int(optimizer["end_ns"].max()) - int(optimizer["start_ns"].min()) if len(optimizer) else 0
    return {
        "tail": float(end - begin),
        "reduction": float(reduction),
        # Times between the kernels of an optimizer are its own: it was launched in pieces.
        "optimizer": float(max(own, min(within, own + idle))),
        "other": float(computing.total_ns - own),
        "idle": float(idle if within <= own else max(0, idle - (within - own))),
        "gaps": float(max(0, min(within - own, idle))),
    }


def _spans(rows: pd.DataFrame, begin: int) -> Intervals:
    return union(np.maximum(rows["start_ns"].to_numpy(dtype=np.int64), begin), rows["end_ns"].to_numpy(dtype=np.int64))


RULE = Rule(
    name="gradient-allreduce-tail",
    title="A long tail after the backward pass",
    needs=frozenset({"steps"}),
    how_to_collect=KERNELS_BY,
    thresholds=(TAIL_SHARE, TAIL_PART),
    check=check,
    symptom_of=frozenset({"exposed-communication", "small-messages", "slow-link", "bandwidth-low"}),
)
