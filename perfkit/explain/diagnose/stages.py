"""Stages of a pipeline beside one another: what their ranks send among themselves, how many of their layers they compute again."""

from __future__ import annotations

import pandas as pd

from perfkit.explain import recomputed
from perfkit.explain.diagnose.case import Case
from perfkit.explain.stragglers import NO_STAGE

_BETWEEN = ("send", "receive", "send_receive")


def stage_of(case: Case) -> pd.Series:
    """The stage by rank, of those whose stage is known."""
    first = case.steps.drop_duplicates("rank").set_index("rank")["stage"]
    return first[(first != NO_STAGE).to_numpy(dtype=bool)]


def talks(case: Case) -> pd.DataFrame:
    """The members of collectives inside of one `stage`, which is a column, with a known transfer."""
    members = case.members.assign(stage=case.members["rank"].map(stage_of(case))).dropna(subset=["stage", "transfer_ns", "step"])
    inside = members.groupby("instance")["stage"].transform("nunique") == 1
    return members[inside.to_numpy(dtype=bool) & ~members["operation"].isin(_BETWEEN).to_numpy(dtype=bool)]


def talking_ns(case: Case) -> pd.Series[float]:
    """Transfers a step among the ranks of a stage, without waiting, in ns by stage: the median of its ranks; empty if not recorded.

    Sends and receives are not in it, nor collectives that reach into another stage: those are not the work of one.
    """
    if not case.run.has("collectives"):
        return pd.Series(dtype="float64")
    steps = talks(case).groupby(["stage", "rank", "step"])["transfer_ns"].sum().astype("float64")
    if set(steps.index.get_level_values("stage")) != set(stage_of(case)):
        return pd.Series(dtype="float64")
    return steps.groupby(["stage", "rank"]).mean().groupby("stage").median()


def again_ratio(case: Case) -> pd.Series[float]:
    """Of how many of its layers each stage computes attention again, by stage; empty where attention has no name."""
    if not case.run.has("kernels") or case.kernels.empty:
        return pd.Series(dtype="float64")
    stages = stage_of(case)
    found: dict[int, list[float]] = {}
    for rank, rows in case.whole(case.computing).groupby("rank"):
        again = recomputed.again(rows["op"], rows["step"])
        if again is not None and again.backward and rank in stages.index:
            found.setdefault(int(stages[rank]), []).append(max(0.0, again.forward - again.backward) / again.backward)
    return pd.Series({stage: float(pd.Series(values).median()) for stage, values in sorted(found.items())}, dtype="float64")
