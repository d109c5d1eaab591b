"""Recomputation as it was measured: how often attention runs again, and what runs again around it.

Forward attention that runs more often than backward attention is recomputation. Around one that runs again the kernels follow one
another as in the forward pass; so far as they do they are computed again, at most what lies between two forward attentions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.explain.diagnose import kernels, planned, work
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import KERNELS_BY
from perfkit.explain.diagnose.rule import Threshold

RECOMPUTE_SHARE = Threshold(
    name="recompute-share",
    value=0.01,
    unit="share of the step",
    origin="chosen: less saves less than repeats differ by; bundled: 0.01 % by the first layer's shape, 16 % where it is on",
)

ATTENTION = re.compile(r"flash|fmha|attention|attn|sdpa", re.IGNORECASE)
BACKWARD = re.compile(r"grad|bwd|backward|bprop|cutlassB_", re.IGNORECASE)
"""Backward attention; cuDNN names it bprop, the memory-efficient one of PyTorch fmha_cutlassB (forward: fmha_cutlassF)."""
MAY_LACK = 3
"""Kernels in a row of the forward pass that may not run again, such as the casts of weights that are kept."""
PLANNED_MORE = 0.05
"""Layers computed again beyond the planned share that are no finding."""


@dataclass(frozen=True)
class Repeated:
    """Spans computed again (`rank`, `start_ns`, `duration_ns`, `op`), none where that is little or planned, and evidence."""

    spans: pd.DataFrame
    evidence: dict[str, float]

    def won_ns(self, case: Case) -> int | None:
        """What a step would win if nothing were computed again."""
        return work.won_ns(case, self.spans, faster_ns=_communication(case, self.spans))


def beyond_plan(case: Case) -> Repeated:
    """What is computed again beyond what the plan of the run asks for. Raises NotMeasuredError without attention by name."""
    found, share = _measured(case), planned.recomputed_ratio(case)
    if share and len(found.spans) and found.evidence["layers_recomputed_ratio"] <= share + PLANNED_MORE:
        return Repeated(found.spans[:0], {**found.evidence, "planned_recomputed_ratio": share})
    return found


def _measured(case: Case) -> Repeated:
    rows = case.whole(kernels.matching(case, ATTENTION))
    if rows.empty:
        raise NotMeasuredError("attention kernels by name, which show what runs twice", how_to_collect=KERNELS_BY)
    names = rows["op"].astype(str)
    backward = names.map({name: bool(BACKWARD.search(name)) for name in names.unique()}).to_numpy(dtype=bool)
    # A mean over ranks, as stages differ in what they compute again.
    forward_count, backward_count = (
        _largest_counts(part).mean() if len(part) else 0.0 for part in (rows[~backward], rows[backward])
    )
    again = max(0.0, forward_count - backward_count) if backward_count else 0.0
    evidence = {"attention_forward_a_step": forward_count, "attention_backward_a_step": backward_count}
    if again < 0.02 * backward_count or not backward_count:
        return Repeated(rows[:0], evidence)
    repeated = _repeated(case, rows[~backward], rows[backward])
    share = kernels.share_of_step(case, repeated)
    evidence = {**evidence, "recomputed_share": share, "layers_recomputed_ratio": again / backward_count}
    return Repeated(repeated if share >= case.limit(RECOMPUTE_SHARE) else repeated[:0], evidence)


def _largest_counts(rows: pd.DataFrame) -> pd.Series[float]:
    """By rank, executions a step of the operator that runs most often; a pass may launch several kernels of an attention."""
    counts = rows.groupby(["rank", "step", "op"], observed=True).size()
    return counts.groupby(level=["rank", "step"]).max().groupby(level="rank").median().astype("float64")


def _repeated(case: Case, forward: pd.DataFrame, backward: pd.DataFrame) -> pd.DataFrame:
    """What runs again: before each backward attention its forward one, with all that runs around it as in the forward pass.

    As (`rank`, `start_ns`, `duration_ns`, `op`) of spans: from the forward attention before a backward one, as long as what runs
    again of a layer takes.
    """
    marks = pd.concat([forward.assign(back=False), backward.assign(back=True)]).sort_values(["rank", "start_ns"], kind="stable")
    ranks, back = marks["rank"].to_numpy(), marks["back"].to_numpy(dtype=bool)
    follows = np.concatenate([back[1:] & (ranks[1:] == ranks[:-1]), [False]])
    again = marks[~back & follows]
    layer_ns = min(_layer_ns(forward, backward), _alike_ns(case, marks, again))
    # The first backward attention after the forward pass follows a forward one also where nothing is recomputed.
    return pd.DataFrame({"rank": again["rank"], "start_ns": again["start_ns"], "duration_ns": round(layer_ns), "op": again["op"]})


def _alike_ns(case: Case, marks: pd.DataFrame, again: pd.DataFrame) -> float:
    """The median time of the kernels around attentions that run `again` which follow one another as in a forward pass.

    Infinite where no rank has two forward attentions with nothing backward in between to compare with.
    """
    lengths: list[int] = []
    for rank, rows in case.computing.groupby("rank"):
        mine = marks[marks["rank"] == rank]
        back = mine["back"].to_numpy(dtype=bool)
        first = np.flatnonzero(~back[1:] & ~back[:-1])
        if not len(first):
            continue
        starts = rows["start_ns"].to_numpy(dtype=np.int64)
        ends = starts + rows["duration_ns"].to_numpy(dtype=np.int64)
        ops = rows["op"].astype("object").astype(str).to_numpy()
        # The middle one: the first layers of a step may stand beside the optimizer, the last ones beside the loss.
        at = int(first[len(first) // 2])
        begin, end = np.searchsorted(starts, mine["start_ns"].to_numpy(dtype=np.int64)[at : at + 2])
        layer = ops[begin + 1 : end]
        for place in np.searchsorted(starts, again.loc[again["rank"] == rank, "start_ns"].to_numpy(dtype=np.int64)):
            after = _alike(layer, ops[place + 1 : place + 1 + len(layer)])
            before = _alike(layer[::-1], ops[max(0, place - len(layer)) : place][::-1])
            lengths.append(int(ends[place + after] - starts[place - before]))
    return float(np.median(lengths)) if lengths else np.inf


def _alike(wanted: np.ndarray, found: np.ndarray) -> int:
    """How many of the first of `found` are those of `wanted` in this order, of which a few may be left out."""
    at = 0
    for count, op in enumerate(found):
        skipped = np.flatnonzero(wanted[at : at + MAY_LACK + 1] == op)
        if not len(skipped):
            return count
        at += int(skipped[0]) + 1
    return len(found)


def _communication(case: Case, repeated: pd.DataFrame) -> dict[int, float]:
    """The transfers of the collectives that start in the repeated spans, by instance: they would not happen either."""
    if case.replay is None:
        return {}
    found: dict[int, float] = {}
    members = case.members[case.members["transfer_ns"].notna() & case.members["start_ns"].notna()]
    for rank, rows in repeated.groupby("rank"):
        mine = members[members["rank"] == rank]
        starts = np.sort(rows["start_ns"].to_numpy(dtype=np.int64)) + case.run.clock.get(int(str(rank)), 0)
        begin = mine["start_ns"].to_numpy(dtype=np.int64)
        at = np.searchsorted(starts, begin, side="right") - 1
        inside = (at >= 0) & (begin < starts[at.clip(min=0)] + int(rows["duration_ns"].iloc[0]))
        blocking = ~mine["operation"].isin(("send", "receive")).to_numpy()
        chosen = mine[inside & blocking]
        found.update(zip(chosen["instance"].astype(int), chosen["transfer_ns"].astype(float), strict=True))
    return found


def _layer_ns(forward: pd.DataFrame, backward: pd.DataFrame) -> float:
    """The median time between two forward attentions of a rank with no backward one in between; else that of the attention."""
    marks = pd.concat([forward.assign(back=False), backward.assign(back=True)]).sort_values(["rank", "start_ns"], kind="stable")
    plain = ~marks["back"].to_numpy(dtype=bool)
    both = plain[1:] & plain[:-1] & (np.diff(marks["rank"].to_numpy()) == 0)
    distance = np.diff(marks["start_ns"].to_numpy())[both]
    return float(np.median(distance)) if len(distance) else float(forward["duration_ns"].median())
