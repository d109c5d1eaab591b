"""The device copies, between its memory and that of the host or inside its own, and computes nothing meanwhile.

What is measured: copies as far as no kernel of the rank runs beside them, as a share of the step: those to and from the host, with
how much of them moves pageable memory, which the driver has to copy twice and for which the host waits; those inside the device, of
which a healthy step has some; and memory that is set to a value. Copies that are long in some steps alone name those. Copies that
hide behind kernels cost nothing and do not count; values that are read one by one are `frequent-sync`, and what a step waits for
before its first kernel is `data-feed`.

What to do: pin the memory of the host and copy ahead on a stream of its own, so that the copy hides behind the step before;
keep what every step needs on the device; make tensors on the device instead of moving them there. Inside the device: operators
that write where the next one reads, in place of cat, clone, contiguous and copy_. Where memory is set: gradients that are dropped
instead of zeroed, buffers without a first value.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose import host, kernels, work
from perfkit.explain.diagnose.advice import Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import KERNELS_BY
from perfkit.explain.diagnose.episodes import EPISODE_SHARE, Episode, episode_of, price_ns
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict
from perfkit.explain.diagnose.thresholds import LEAST_SHARE
from perfkit.record.overlap import union

HOST_COPY_SHARE = Threshold(
    "host-copy-share", 0.02, "share of the step", "chosen: a batch and a loss take 0.02 % in a bundled recording"
)

INSIDE_COPY_SHARE = Threshold(
    "inside-copy-share",
    0.05,
    "share of the step",
    "chosen: buckets of gradients take up to 3 % in bundled recordings, a model that copies what it has 13 %",
)

USUAL_SET_SHARE = 0.006
"""Every step sets some memory: so much of it at most in bundled recordings. A step wins what is beyond it."""
SET_SHARE = Threshold(
    "memory-set-share", 0.02, "share of the step", "chosen: three times what bundled recordings have at most, 0.6 %"
)

COPIES = re.compile(r"\b(?:htod|dtoh|h2d|d2h)\b|host ?to ?device|device ?to ?host", re.IGNORECASE)
UNNAMED = re.compile("^memcpy_async$", re.IGNORECASE)
"""How CANN names the copies of a stream, whichever way they go."""
INSIDE = re.compile(r"\b(?:dtod|d2d)\b|device ?to ?device", re.IGNORECASE)
SETS = re.compile(r"^memset", re.IGNORECASE)
WAYS = (
    ("host", COPIES, ("exposed_copies_host_ns", "exposed_copies_host_share")),
    ("inside", INSIDE, ("exposed_copies_inside_ns", "exposed_copies_inside_share")),
    ("unnamed", UNNAMED, ("exposed_copies_unnamed_ns", "exposed_copies_unnamed_share")),
    ("set", SETS, ("exposed_copies_set_ns", "exposed_copies_set_share")),
)
"""Which way, by which names, and as what in the evidence."""
TITLES = {
    "host": "The device waits up to {exposed_copies_ns} of the mean step for copies between host and device, most of them "
    "{copies}{when}",
    "inside": "The device copies inside its own memory for up to {exposed_copies_ns} of the mean step and computes nothing "
    "then{when}",
    "unnamed": "The device copies for up to {exposed_copies_ns} of the mean step and computes nothing then, which way was not "
    "recorded{when}",
    "set": "The device sets memory for up to {exposed_copies_ns} of the mean step and computes nothing then{when}",
}
ACTIONS: tuple[Action, ...] = (
    {
        "mindspore": "let the queue of the dataset copy ahead of the step: sink_mode: True; keep asnumpy and new Tensors out of it",
        "torch": "pin the memory of the host (DataLoader(pin_memory=True), tensor.pin_memory()) and copy with non_blocking=True, "
        "ahead of the step and on a stream of its own",
    },
    "keep on the device what every step needs, and make masks, positions and random numbers there",
    "if states were moved to the host to save memory: move less of them, or hide the copies behind computing",
)
INSIDE_ACTIONS: tuple[Action, ...] = (
    {
        "mindspore": "write where the next operator reads: in-place operators, no Concat or TensorMove of what is there already",
        "torch": "write where the next operator reads: out=, in-place operators and views in place of cat, clone, contiguous and "
        "copy_; gradients as views of their buckets (DistributedDataParallel(gradient_as_bucket_view=True))",
    },
    "look at which operators launch the largest ones in the timeline",
)
SET_ACTIONS: tuple[Action, ...] = (
    {
        "mindspore": "make buffers that are written whole without a first value: mint.empty in place of mint.zeros",
        "torch": "drop gradients instead of zeroing them, optimizer.zero_grad(set_to_none=True), and make buffers that are written "
        "whole with torch.empty",
    },
    INSIDE_ACTIONS[-1],
)


def check(case: Case) -> Verdict:
    """Copies that nothing hides."""
    names = case.kernels["name"].astype("category")
    codes, known = names.cat.codes.to_numpy(), names.cat.categories.tolist()
    copying = (case.kernels["kind"] == "copy").to_numpy(dtype=bool)
    evidence: dict[str, float] = {}
    found = []
    for way, pattern, figures in WAYS:
        chosen = copying & np.array([pattern.search(str(name)) is not None for name in known] or [False])[codes]
        if (copies := _within(case.steps, case.whole(case.kernels[chosen]))).empty:
            continue
        exposed = _exposed(copies, case.kernels[~chosen])
        exposed_ns = exposed["duration_ns"] * exposed["exposed"]
        by_rank = exposed_ns.groupby(exposed["rank"]).sum() / case.num_kernel_steps
        share = float(by_rank.max()) / (case.step_ns or 1)
        evidence |= dict(zip(figures, (float(by_rank.max()), share), strict=True))
        copied = exposed.assign(alone_ns=exposed_ns, named=exposed["rank"].map(by_rank >= 0.5 * by_rank.max()))
        by_step = copied[copied["rank"] == by_rank.idxmax()].groupby("step")["alone_ns"].sum()
        by_step = by_step.reindex(list(case.kernel_steps), fill_value=0.0)
        inside = case.limit(INSIDE_COPY_SHARE)
        least = {"host": case.limit(HOST_COPY_SHARE), "set": case.limit(SET_SHARE)}.get(way, inside)
        episode = episode_of(by_step, case.limit(EPISODE_SHARE) * (case.step_ns or 1))
        if episode is not None and episode.usual >= least * (case.step_ns or 1):
            episode = None  # What all steps copy lasts, though some copy for longer.
        if share >= least or episode is not None:
            found.append(_finding(case, way, copied, by_step, episode))
    if not evidence:
        raise NotMeasuredError("copies by name", how_to_collect=KERNELS_BY)
    return Verdict(tuple(found), evidence)


def _finding(case: Case, way: str, copied: pd.DataFrame, by_step: pd.Series, episode: Episode | None) -> Finding:
    """What copies of one way cost; of an episode what they take in its steps beyond the others."""
    totals = copied.groupby(copied["name"].astype("object"))["alone_ns"].sum().sort_values(ascending=False)
    mean_ns = float(by_step.mean())
    evidence = {
        "exposed_copies_ns": mean_ns,
        "exposed_copies_share": mean_ns / (case.step_ns or 1),
        "copies_a_rank_and_step": len(copied) / max(1, copied["rank"].nunique()) / case.num_kernel_steps,
        **({} if episode is None else episode.evidence(by_step, len(by_step))),
    }
    if way == "host":
        pageable = copied["name"].astype(str).str.contains("pageable", case=False).to_numpy(dtype=bool)
        evidence["pageable_share"] = float(copied["alone_ns"][pageable].sum() / copied["alone_ns"].sum())
    rows = copied.assign(gone=1.0)
    if episode is not None:
        rows = copied[copied["step"].isin(episode.steps).to_numpy(dtype=bool)]
        beyond = 1.0 - episode.usual / evidence["in_these_steps_ns"]
        rows = rows.assign(exposed=rows["exposed"] * beyond, gone=beyond)
    elif way == "set":
        beyond = max(0.0, 1.0 - USUAL_SET_SHARE / (evidence["exposed_copies_share"] or USUAL_SET_SHARE))
        rows = rows.assign(exposed=rows["exposed"] * beyond, gone=beyond)
    exposed_ns = (rows["duration_ns"] * rows["exposed"]).groupby(rows["rank"]).sum().max() / case.num_kernel_steps
    # What hides a copy is told by timing the step anew, where that can be; nothing wins more than its time.
    share = rows["exposed"] if case.moments is None else rows["gone"]
    cost_ns = min(work.won_ns(case, rows, fraction=share), round(float(exposed_ns)))
    return Finding(
        rule=RULE.name,
        title=say(
            TITLES[way],
            copies=kernels.told(tuple(str(name) for name in totals.index), top=1),
            when="" if episode is None else say(", {when}", when=episode.told(len(by_step))),
            **evidence,
        ),
        subject={
            "ranks": tuple(sorted(int(rank) for rank in copied.loc[copied["named"].to_numpy(dtype=bool), "rank"].unique())),
            "operators": tuple(str(name) for name in totals.index[:3]),
            **({} if episode is None else {"steps": episode.steps}),
        },
        evidence=evidence,
        actions=fitting(case, {"inside": INSIDE_ACTIONS, "set": SET_ACTIONS}.get(way, ACTIONS)),
        cost_ns=cost_ns if episode is None else price_ns(case, episode.steps, cost_ns, whole=True),
        severity="low" if cost_ns < case.limit(LEAST_SHARE) * (case.step_ns or 0) else None,
        next=("14_timeline", "12_operators") if way in ("inside", "set") else ("14_timeline", "16_data_feed"),
        part="free",
    )


def _within(steps: pd.DataFrame, copies: pd.DataFrame) -> pd.DataFrame:
    """What of the copies lies in the windows of their steps: an early one runs beside the kernels of the step before."""
    windows = steps.dropna(subset=["start_ns"]).set_index(["rank", "step"])
    windows = windows.reindex(pd.MultiIndex.from_frame(copies[["rank", "step"]]))
    known = windows["start_ns"].notna().to_numpy(dtype=bool)
    starts = copies["start_ns"].to_numpy(dtype=np.int64)
    ends = starts + copies["duration_ns"].to_numpy(dtype=np.int64)
    begin = windows["start_ns"].fillna(0).to_numpy(dtype=np.int64)
    end = begin + windows["duration_ns"].fillna(0).to_numpy(dtype=np.int64)
    first = np.where(known, np.maximum(starts, begin), starts)
    last = np.where(known, np.minimum(ends, end), ends)
    kept: pd.DataFrame = copies.assign(start_ns=first, duration_ns=last - first)[first < last]
    return kept


def _exposed(copies: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    """The copies with `exposed`, the share of each in which no kernel of its rank runs; what two copies share counts once."""
    frames = []
    for rank, mine in copies.groupby("rank"):
        starts = mine["start_ns"].to_numpy(dtype=np.int64)
        ends = starts + mine["duration_ns"].to_numpy(dtype=np.int64)
        covered = np.maximum.accumulate(np.concatenate([[0], ends[:-1]]))
        theirs = others[(others["rank"] == rank).to_numpy(dtype=bool)]
        begins = theirs["start_ns"].to_numpy(dtype=np.int64)
        busy = union(begins, begins + theirs["duration_ns"].to_numpy(dtype=np.int64))
        first = np.minimum(np.maximum(starts, covered), ends)
        alone = (ends - first) - (host.busy_until(busy, ends) - host.busy_until(busy, first))
        frames.append(mine.assign(exposed=alone / np.maximum(ends - starts, 1)))
    return pd.concat(frames)


RULE = Rule(
    "host-copies",
    "Copies that nothing hides",
    frozenset({"steps", "kernels"}),
    KERNELS_BY,
    (HOST_COPY_SHARE, INSIDE_COPY_SHARE, SET_SHARE, EPISODE_SHARE),
    check,
)
