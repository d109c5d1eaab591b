"""Communication that could run beside computing does not, and the step waits for it.

What is measured: transfers (waiting for late ranks left out) of groups whose communication can be hidden, that is all but tensor
parallel ones and the transfers of a pipeline; how much of it runs beside kernels; and how much of it comes after the last kernel
of the backward pass although parts of it were ready before. Tensor parallel communication is exposed by nature and not judged,
nor what is alone because the kernels beside it were launched late, while it ran: that is `host-bound`.
Where the plan of the run is known, so is how much of it its software leaves exposed: only what is beyond that is a finding.

What to do: overlap gradients with the backward pass (buckets, gradient overlap of the distributed optimizer), split micro batches
in two copies, hide pipeline transfers by more chunks; or a strategy with less communication.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose import host, launching, planned
from perfkit.explain.diagnose.advice import SMALLER_BUCKETS, Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import COMMUNICATION_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict
from perfkit.record.overlap import overlap_ns, union

EXPOSED_SHARE = Threshold("exposed-share", 0.10, "share of the step", "MindInsight: 10 %")
LATE_SHARE = Threshold("late-share", 0.005, "share of the step", "chosen: what is worth a finding")
HIDDEN_RATIO = Threshold(
    "hidden-ratio", 0.3, "share of the communication", "chosen: less than 30 % of hideable communication hidden"
)

SAMPLE = 8
"""Groups that are looked at: those of one kind do the same."""
LEAST_BYTES = 4096
"""At 10 GB/s these take 0.4 us, far less than any collective starts in: hiding them wins nothing that their size tells."""
PIECES = 8
"""A message that is alone could be cut into so many, of which the last one cannot hide."""
BACKWARD = 2 / 3
"""The share of computing that is the backward pass, beside which gradients can be sent."""
EXCHANGES = re.compile(r"all_?to_?all", re.IGNORECASE)
PASSES = re.compile(r"(?:nccl|c10d|hccl|dist\w*)[:.]+_?i?(?:send|recv)|batch_isend_irecv", re.IGNORECASE)
PLANNED = ("communication/exposed/dp", "communication/exposed/cp", "communication/exposed/ep")
MOSTLY = 0.5
"""If data move for less than this share of the time of transfers, most of it is no transfer."""
FIND_THE_LATE = "record all ranks of the group, or compare when they start the same operation (pages 13, 17): some come late"
ACTIONS: tuple[Action, ...] = (
    SMALLER_BUCKETS,
    {"mindspore": "split micro batches into two copies that hide each other's communication: micro_batch_interleave_num: 2"},
    "compare with other strategies: page 03",
)


def check(case: Case) -> Verdict:
    """Transfers of groups that can be hidden, and are not."""
    rows = case.whole(_hideable(case))
    if rows.empty:
        return Verdict((), {"hideable_communication_ns": 0.0})
    totals = pd.DataFrame([_of_rank(case, rank, rows[rows["rank"] == rank]) for rank in _sample(case, rows)])
    steps = case.num_kernel_steps
    worst = totals.iloc[int(totals["won"].to_numpy().argmax())] / steps
    step_ns = case.step_ns or 1
    transfer, exposed, of_host = (float(worst[name]) for name in ("transfer", "exposed", "of_host"))
    evidence = {
        "hideable_communication_ns": transfer,
        "exposed_ns": exposed,
        "hidden_ratio": 1.0 - exposed / transfer if transfer else 1.0,
        "exposed_share": exposed / step_ns,
        **({"beside_late_launches_ns": of_host} if of_host else {}),
    }
    exposed -= of_host
    hidden = 1.0 - exposed / transfer if transfer else 1.0
    large = exposed >= case.limit(EXPOSED_SHARE) * step_ns
    late = worst["won"] >= case.limit(LATE_SHARE) * step_ns
    if hidden >= case.limit(HIDDEN_RATIO) or not (large or late):
        return Verdict((), evidence)
    planned_ns = planned.predicted_ns(case, *PLANNED)
    if planned_ns is not None:
        evidence["planned_exposed_ns"] = planned_ns
        if exposed <= planned.AS_PLANNED * planned_ns:
            return Verdict((), evidence)
    cost = float(max(min(worst["won"], exposed), exposed - worst["last"] + worst["alone"] if large else 0.0))
    title = say("{exposed_ns} of communication in the mean step that could be hidden is not ({hidden_ratio} is)", **evidence)
    actions: tuple[Action, ...] = ACTIONS
    if worst["moved"] < MOSTLY * worst["transfer"]:
        # Neither waiting for a rank that was recorded, nor data on their way: others come late, and hiding wins little of it.
        evidence["moving_ns"] = float(worst["moved"])
        title = say(
            "{exposed_ns} of communication in the mean step is not hidden, but data move in {moving_ns} of it: "
            "the rest is spent on ranks that come late or were not recorded",
            **evidence,
        )
        cost = min(cost, evidence["moving_ns"])
        actions = (FIND_THE_LATE, *ACTIONS)
    untold = worst["untold"] > MOSTLY * worst["transfer"]
    if untold:
        title = say(
            "{exposed_ns} of communication in the mean step is not hidden; what of it is waiting, and so what hiding it would win, "
            "is not known",
            **evidence,
        )
        actions = (FIND_THE_LATE, *ACTIONS)
    finding = Finding(
        rule=RULE.name,
        title=title,
        subject={"groups": tuple(sorted({str(group) for group in rows["group"].dropna().unique()})[:8])},
        evidence={**evidence, "sent_after_computing_ns": float(worst["won"])},
        actions=fitting(case, actions),
        cost_ns=None if untold else round(cost),
        severity="medium" if untold else None,
        next=("13_communication", "03_parallel_strategy"),
        part="communication",
    )
    return Verdict((finding,), evidence)


def _hideable(case: Case) -> pd.DataFrame:
    """Members of operations between ranks that do not split tensors or pass activations on."""
    rows = case.members
    if rows.empty or not len(case.kernels) or rows["start_ns"].isna().all():
        raise NotMeasuredError("collectives and kernels with their start", how_to_collect=COMMUNICATION_BY)
    dimensions = {(group.name, rank): group.dimension for group in case.groups for rank in group.members}
    names = rows["group"].astype("object").where(rows["group"].notna(), None)
    of_group = [dimensions.get((name, int(rank))) for name, rank in zip(names, rows["rank"], strict=True)]
    passing_on = rows["operation"].astype(str).isin(("send", "receive", "barrier", *_pairs(case)))
    small = (rows["bytes"] < LEAST_BYTES).fillna(False).to_numpy(dtype=bool)
    tensor = np.array([dimension in ("tensor", "pipeline") for dimension in of_group], dtype=bool)
    keep = ~tensor & ~passing_on.to_numpy() & ~small & rows["start_ns"].notna().to_numpy()
    return rows[keep & rows["rank"].isin(case.detail_ranks).to_numpy()]


def _pairs(case: Case) -> tuple[str, ...]:
    """What sends and receives at once: between stages of a pipeline, unless the host only asks for exchanges of all with all."""
    rank = case.detail_ranks[0]
    exchanges, passes = (host.rows(case, rank, pattern) for pattern in (EXCHANGES, PASSES))
    return ("send_receive",) if exchanges is None or passes is None or exchanges.empty or len(passes) else ()


def _sample(case: Case, rows: pd.DataFrame) -> list[int]:
    """Of each group the rank that waits least: only it shows whether messages were sent late, the others may wait for it.

    Where only some ranks are read and all of a group wait for longer than data move, the one that they wait for is not among them.
    """
    groups = rows.assign(group=rows["group"].astype("object").fillna("")).groupby(["group", "rank"])
    sums = groups[["wait_ns", "transfer_ns"]].sum().astype("float64").reset_index()
    least = sums.sort_values("wait_ns", kind="stable").drop_duplicates("group")
    if case.detail_ranks != case.run.ranks:
        least = least[least["wait_ns"] <= least["transfer_ns"]]
        if least.empty:
            raise NotMeasuredError("kernels of a rank that the others of its group wait for", how_to_collect=COMMUNICATION_BY)
    return sorted({int(rank) for rank in least["rank"]})[:SAMPLE]


def _of_rank(case: Case, rank: int, rows: pd.DataFrame) -> dict[str, float]:
    """Sums over steps in ns: transfer, of it exposed, the last message of each step, and what earlier sending would win.

    `of_host` is what of the exposed time is beside a launch that was late.

    `moved` is how long data move as the profiler states it, NaN where it does not; `untold` is what of the transfers may as well
    be waiting, since neither the profiler nor the other ranks say it.
    `alone` is what a message that is alone in its step would win in pieces, of which the last one stays: at most the backward pass.
    """
    sums = dict.fromkeys(("transfer", "exposed", "of_host", "last", "won", "alone", "moved", "untold"), 0.0)
    kernels = case.computing[case.computing["rank"] == rank]
    by_step = dict(iter(kernels.groupby("step")))
    for step, group in rows.groupby("step"):
        mine = by_step.get(step)
        if mine is None:
            continue
        shift = int((case.common_ns(mine.iloc[:1]) - mine["start_ns"].iloc[:1].to_numpy(dtype=np.int64))[0])
        starts = mine["start_ns"].to_numpy(dtype=np.int64) + shift
        computing = union(starts, starts + mine["duration_ns"].to_numpy(dtype=np.int64))
        begin = group["start_ns"].to_numpy(dtype=np.int64)
        end = begin + group["duration_ns"].to_numpy(dtype=np.int64)
        wait = group["wait_ns"].fillna(0).to_numpy(dtype=np.int64)
        moving = union(begin + wait, end)
        exposed = moving.total_ns - overlap_ns(moving, computing)
        of_host_ns = launching.late_beside(case, rank, moving, computing, shift).total_ns
        last = float((end - begin - wait)[int(end.argmax())])
        sums["transfer"] += moving.total_ns
        sums["exposed"] += exposed
        sums["of_host"] += of_host_ns
        sums["last"] += last
        sums["moved"] += float(group["transit_ns"].astype("float64").sum(skipna=False))
        untold = (group["wait_ns"].isna() & group["transit_ns"].isna()).to_numpy(dtype=bool)
        sums["untold"] += union(begin[untold], end[untold]).total_ns
        if len(group) == 1:
            sums["alone"] += min((1 - 1 / PIECES) * (exposed - of_host_ns), BACKWARD * computing.total_ns)
        else:
            sums["won"] += _late_ns(begin + wait, end, computing.ends, last)
    return sums


def _late_ns(begin: np.ndarray, end: np.ndarray, computed: np.ndarray, last: float) -> float:
    """Transfers in a row with no kernel from the first to the last of them, the last one left out: they came too late."""
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], end[order]
    between = np.searchsorted(computed, end, side="left") - np.searchsorted(computed, begin[:1], side="left")
    if len(begin) < 2 or between[-1] > 1:
        return 0.0
    return max(0.0, float((end - begin).sum()) - last)


RULE = Rule(
    name="exposed-communication",
    title="Communication that is not hidden",
    needs=frozenset({"steps", "collectives", "kernels"}),
    how_to_collect=COMMUNICATION_BY,
    thresholds=(EXPOSED_SHARE, HIDDEN_RATIO, LATE_SHARE),
    check=check,
)
