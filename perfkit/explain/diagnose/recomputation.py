"""Recomputation as it was measured: how much of the step runs again, and what a step would win without."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.explain import recomputed
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
    ranks = [(rows, found) for _, rows in case.whole(case.computing).groupby("rank") if (found := _again(rows)) is not None]
    if not ranks:
        raise NotMeasuredError("attention kernels by name, which show what runs twice", how_to_collect=KERNELS_BY)
    # A mean over ranks, as stages differ in what they compute again.
    forward, backward = (float(np.mean([getattr(found, name) for _, found in ranks])) for name in ("forward", "backward"))
    spans = pd.concat([_spans(rows, found) for rows, found in ranks], ignore_index=True)
    evidence = {"attention_forward_a_step": forward, "attention_backward_a_step": backward}
    if spans.empty:
        return Repeated(spans, evidence)
    share = kernels.share_of_step(case, spans)
    evidence = {**evidence, "recomputed_share": share, "layers_recomputed_ratio": max(0.0, forward - backward) / backward}
    return Repeated(spans if share >= case.limit(RECOMPUTE_SHARE) else spans[:0], evidence)


def _again(rows: pd.DataFrame) -> recomputed.Again | None:
    return recomputed.again(rows["op"], rows["step"])


def _spans(rows: pd.DataFrame, found: recomputed.Again) -> pd.DataFrame:
    """The stretches of a rank that run again, in ns, with the operator of their attention."""
    starts = rows["start_ns"].to_numpy(dtype=np.int64)
    ends = starts + rows["duration_ns"].to_numpy(dtype=np.int64)
    begin = starts[found.firsts]
    return pd.DataFrame(
        {
            "rank": rows["rank"].to_numpy()[found.attentions],
            "start_ns": begin,
            "duration_ns": ends[found.lasts] - begin,
            "op": rows["op"].astype("object").to_numpy()[found.attentions],
        }
    )


def _communication(case: Case, repeated: pd.DataFrame) -> dict[int, float]:
    """The transfers of the collectives that start in the repeated spans, by instance: they would not happen either."""
    if case.replay is None:
        return {}
    found: dict[int, float] = {}
    members = case.members[case.members["transfer_ns"].notna() & case.members["start_ns"].notna()]
    for rank, rows in repeated.groupby("rank"):
        mine = members[members["rank"] == rank]
        spans = rows.sort_values("start_ns")
        starts = case.common_ns(spans)
        lengths = spans["duration_ns"].to_numpy(dtype=np.int64)
        begin = mine["start_ns"].to_numpy(dtype=np.int64)
        at = np.searchsorted(starts, begin, side="right") - 1
        inside = (at >= 0) & (begin < starts[at.clip(min=0)] + lengths[at.clip(min=0)])
        blocking = ~mine["operation"].isin(("send", "receive")).to_numpy()
        chosen = mine[inside & blocking]
        found.update(zip(chosen["instance"].astype(int), chosen["transfer_ns"].astype(float), strict=True))
    return found
