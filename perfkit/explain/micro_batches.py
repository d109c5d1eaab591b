"""Micro batches: how many pass a pipeline in a step, by the plan of the run or counted by what its ends receive.

The first stage receives the gradients of each micro batch, the last one its activations; of several chunks a stage the former for
each chunk and the latter for all but one, or the other way round. Where a stage only makes calls that send and receive at once, the
last one makes one more than it receives: its last call only sends. What ranks of one stage pass among themselves, as rings of
attention do, is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from perfkit.core.run import Run
from perfkit.explain.stragglers import NO_STAGE


def chunks_of(run: Run) -> int:
    """Chunks a stage: of the plan or as the run states them; 1 where neither does."""
    if run.plan is not None:
        return run.plan.parallel.virtual_pipeline_parallel_size
    fact = run.facts.get("virtual_pipeline_parallel_size")
    return max(1, int(fact.value)) if fact is not None else 1


def micro_batches(run: Run, members: pd.DataFrame, stages: Mapping[int, int]) -> int | None:
    """Micro batches of a step; None without a plan or two stages that pass on what can be counted.

    `members` are those of `collectives.members`, `stages` by rank.
    """
    if run.plan is not None:
        return run.plan.num_micro_batches
    known, chunks = {stage for stage in stages.values() if stage != NO_STAGE}, chunks_of(run)
    if len(known) < 2:
        return None
    stage = members["rank"].map(stages).fillna(NO_STAGE)
    by_instance = stage.groupby(members["instance"]).agg(["nunique", "size"])
    inside = by_instance.index[(by_instance["nunique"] == 1) & (by_instance["size"] > 1)]
    passed = members["step"].notna().to_numpy(dtype=bool) & ~members["instance"].isin(inside).to_numpy()
    rows = members[["rank", "step"]].assign(stage=stage.astype("int64"), operation=members["operation"].astype("object"))[passed]
    last = rows[rows["stage"] == max(known)]
    both = _calls(last, "send_receive")
    if both and chunks > 1:
        return None  # such a call holds up to four messages
    apart = both - 1 if both == _calls(last, "send", "receive", "send_receive") else both + _calls(last, "receive")
    found = max(apart, _calls(rows[rows["stage"].isin([min(known), max(known)])], "receive"))
    return max(1, round(found / (2 * chunks - 1))) if found > 0 else None


def _calls(rows: pd.DataFrame, *operations: str) -> int:
    """How many such calls a rank makes in a step, in the median; 0 without any."""
    counts = rows[rows["operation"].isin(operations)].groupby(["rank", "step"]).size()
    return round(float(np.median(counts))) if len(counts) else 0
