"""Communication that the same training does not need.

What is measured, from the order of kernels and collectives of up to four ranks:

- gradients that are reduced in every micro batch: data parallel all-reduces of equal sizes between the losses (or embeddings) of
  successive micro batches, where one reduction after the last would do;
- all-gathers of activations that are cut again at once: the next kernel of the rank is a slice or split. Weights that are gathered
  (data parallel groups) are cut by design;
- all-reduces of a tensor parallel group that follow one another with no computing in between, which one message could carry.

Which operators are cut differently only the graph tells (perfkit graph).

What to do: accumulate gradients and reduce once (no_sync, gradient accumulation of the framework); give neighbouring operators
equal strategies; concatenate messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose import hidden, planned
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import COMMUNICATION_BY
from perfkit.explain.diagnose.kernels import which
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict
from perfkit.explain.diagnose.thresholds import REPEATED_BYTES

REPEATED_COUNT = Threshold(
    name="repeated-count",
    value=4.0,
    unit="times a rank and step",
    origin="chosen: once for each of forward and backward pass may be meant, four times is a habit",
)

MOST_RANKS = 4
LOSS = re.compile(r"cross_?entropy|nll_?loss|(?:log_?softmax|cunn_softmax)(?!.*(?:grad|backward))", re.IGNORECASE)
INPUT = re.compile(r"embedding|gather_?v2|indexselect|embedding_lookup", re.IGNORECASE)
CUTS = re.compile(r"slice|split|strided", re.IGNORECASE)
Found = tuple[pd.DataFrame, float]
"""Collectives that could go, and the share of their time that would."""


def check(case: Case) -> Verdict:
    """Repeated, cut and joined communication."""
    rows = case.members
    if rows.empty or case.kernels.empty or rows["start_ns"].isna().all() or rows["bytes"].isna().all():
        raise NotMeasuredError("collectives with sizes and kernels with their start", how_to_collect=COMMUNICATION_BY)
    rows = _with_dimension(case, rows)
    if rows["dimension"].isna().all():
        raise NotMeasuredError("what the process groups are for", how_to_collect=COMMUNICATION_BY)
    evidence: dict[str, float] = {}
    findings = []
    sample = {rank: _kernels(case, rank) for rank in _sample(rows)}
    for what, (title, action, look) in KINDS.items():
        found = [look(case, rows[(rows["rank"] == rank).to_numpy()], kernels) for rank, kernels in sample.items()]
        chosen, share = max(found, key=lambda pair: len(pair[0]))
        count = len(chosen) / max(1, len(case.step_numbers))
        evidence[f"{what}_a_rank_and_step"] = count
        if count >= case.limit(REPEATED_COUNT):
            findings.append(_finding(case, (chosen, share), (title, action), count))
    return Verdict(tuple(findings), evidence)


def _finding(case: Case, found: Found, told: tuple[str, str], count: float) -> Finding:
    (rows, share), (title, action) = found, told
    exposed_ns = hidden.exposed_ns(case, rows)
    numbers = {
        "operations_a_rank_and_step": count,
        "bytes": float(rows["bytes"].sum()) / max(1, len(case.step_numbers)),
        "exposed_ns": exposed_ns,
        "avoidable_share": share,
    }
    cost_ns = round(share * exposed_ns)
    return Finding(
        rule=RULE.name,
        title=say(title, **numbers),
        subject={"groups": tuple(sorted({str(group) for group in rows["group"].dropna().unique()})[:8])},
        evidence=numbers,
        actions=(action, "look at the graph for operators that are cut differently: perfkit graph, page 18"),
        cost_ns=cost_ns or None,
        severity=None if cost_ns else "low",
        next=("13_communication", "18_graph_ir"),
        part="communication",
    )


def _with_dimension(case: Case, rows: pd.DataFrame) -> pd.DataFrame:
    """Collectives of the looked-at ranks whose group is known by what it is for (`dimension`)."""
    known = {(group.name, rank): group.dimension for group in case.groups for rank in group.members}
    rows = rows[rows["rank"].isin(case.detail_ranks).to_numpy() & rows["start_ns"].notna().to_numpy()]
    names = rows["group"].astype("object").where(rows["group"].notna(), None)
    replicas = planned.replicas(case)
    # A job that only has replicas need not say what its one group is for.
    alone = replicas is not None and replicas > 1 and replicas == len(case.run.ranks)
    dimensions = [
        known.get((name, int(rank))) or ("data" if alone and size == replicas else None)
        for name, rank, size in zip(names, rows["rank"], rows["group_size"].fillna(0), strict=True)
    ]
    return rows.assign(dimension=pd.Series(dimensions, index=rows.index, dtype="object"))


def _sample(rows: pd.DataFrame) -> list[int]:
    """The ranks with most collectives: stages differ."""
    return [int(str(rank)) for rank in rows["rank"].value_counts().sort_index().index[:MOST_RANKS]]


def _kernels(case: Case, rank: int) -> pd.DataFrame:
    """Computing kernels of a rank in order, with their start on the common clock (`at`) and end (`until`)."""
    rows = case.computing[case.computing["rank"] == rank]
    at = case.common_ns(rows)
    return rows.assign(at=at, until=at + rows["duration_ns"].to_numpy(dtype="int64"))


def _every_micro_batch(case: Case, rows: pd.DataFrame, kernels: pd.DataFrame) -> Found:
    """Gradient reductions that every micro batch repeats."""
    large = (rows["bytes"] >= case.limit(REPEATED_BYTES)).fillna(False)
    mine = rows[((rows["dimension"] == "data") & (rows["operation"] == "all_reduce") & large).to_numpy()]
    for pattern in (LOSS, INPUT):
        marks = kernels[which(kernels["op"], pattern)]
        found, batches = _repeated(mine, marks)
        if len(found):
            return found, (batches - 1) / batches
    return mine.iloc[:0], 0.0


def _repeated(rows: pd.DataFrame, marks: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Rows of steps in which every micro batch, from one mark to the next, has messages of the same sizes; and micro batches."""
    kept = []
    batches = 2
    for step, starts in marks.groupby("step")["at"]:
        once = starts.to_numpy(dtype=np.int64)
        mine = rows[(rows["step"] == step).to_numpy(dtype=bool)]
        if len(once) < 2 or mine.empty:
            continue
        part = np.searchsorted(once, mine["start_ns"].to_numpy(dtype=np.int64), side="right")
        sizes = [sorted(mine["bytes"].to_numpy()[part == at].tolist()) for at in range(1, len(once) + 1)]
        if sizes[0] and all(each == sizes[0] for each in sizes):
            kept.append(mine)
            batches = len(once)
    return (pd.concat(kept) if kept else rows.iloc[:0]), batches


def _cut_at_once(case: Case, rows: pd.DataFrame, kernels: pd.DataFrame) -> Found:
    """All-gathers of activations whose next kernel cuts the result."""
    large = (rows["bytes"] >= case.limit(REPEATED_BYTES)).fillna(False)
    inside = rows["dimension"].isin(("tensor", "context"))
    mine = rows[(inside & (rows["operation"] == "all_gather") & large).to_numpy()]
    ends = (mine["start_ns"] + mine["duration_ns"]).to_numpy(dtype=np.int64)
    at = np.searchsorted(kernels["at"].to_numpy(dtype=np.int64), ends, side="left")
    return mine[np.concatenate([which(kernels["op"], CUTS), [False]])[at.clip(max=len(kernels))]], 1.0


def _in_a_row(case: Case, rows: pd.DataFrame, kernels: pd.DataFrame) -> Found:
    """Tensor parallel all-reduces with nothing computed since the one before."""
    mine = rows[((rows["dimension"] == "tensor") & (rows["operation"] == "all_reduce")).to_numpy()]
    mine = mine.sort_values("start_ns")
    if len(mine) < 2:
        return mine.iloc[:0], 0.0
    starts = mine["start_ns"].to_numpy(dtype=np.int64)
    ends = starts + mine["duration_ns"].to_numpy(dtype=np.int64)
    until = np.sort(kernels["until"].to_numpy(dtype=np.int64))
    # Nothing that computes ends between the start of the one before and the start of this one.
    computed = np.searchsorted(until, starts[1:], side="right") - np.searchsorted(until, starts[:-1], side="left")
    same = (mine["step"].to_numpy()[1:] == mine["step"].to_numpy()[:-1]) & (starts[1:] >= ends[:-1])
    return mine[np.concatenate([[False], (computed == 0) & same])], 0.5


KINDS: dict[str, tuple[str, str, Callable[[Case, pd.DataFrame, pd.DataFrame], Found]]] = {
    "reductions_in_every_micro_batch": (
        "Gradients are reduced in every micro batch: {operations_a_rank_and_step} messages a rank and step",
        "accumulate gradients, and reduce them once after the last micro batch (no_sync, gradient accumulation)",
        _every_micro_batch,
    ),
    "gathered_and_cut": (
        "Activations are gathered and cut again at once {operations_a_rank_and_step} times a rank and step",
        "give the operators before and after equal strategies, so that nothing is gathered between them",
        _cut_at_once,
    ),
    "reductions_in_a_row": (
        "{operations_a_rank_and_step} tensor parallel all-reduces a rank and step follow another one, nothing computed in between",
        "send both tensors in one message, or sum them before",
        _in_a_row,
    ),
}

RULE = Rule(
    name="avoidable-communication",
    title="Communication that is not needed",
    needs=frozenset({"steps", "collectives", "kernels"}),
    how_to_collect=COMMUNICATION_BY,
    thresholds=(REPEATED_BYTES, REPEATED_COUNT),
    check=check,
    explains=frozenset({"exposed-communication", "gradient-allreduce-tail"}),
)
