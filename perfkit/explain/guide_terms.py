"""Guide terms: where a step went, in the words with which the tuning guides begin; the same time as the ledger's, grouped.

The guides of graph mode name six: loading data (to the device, too), forward and backward, optimizer, post-processing behind it,
communication that computing does not hide, and scheduling (from an instruction of the host to a kernel). The PyNative guide names
four: data, launching by the host as far as it is not hidden, the device, communication not hidden. What a recording does not tell
apart is a term of its own, so that the terms of a step sum to it. A term that the recording of a rank cannot tell is missing, not
0: without launches nothing is known of scheduling, without kernels nothing of the optimizer.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, get_args

import numpy as np
import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.run import Run
from perfkit.core.schema import TABLES
from perfkit.core.texts import say
from perfkit.explain.ledger import AFTER, BEHIND, Ledger, causes, ledger

Group = Literal["guide", "pynative"]
UNTOLD = "not told apart"
TERMS: dict[str, tuple[str, ...]] = {
    "guide": (
        "data loading",
        "forward and backward",
        "optimizer",
        "post-processing",
        "communication not hidden",
        "scheduling",
        UNTOLD,
    ),
    "pynative": ("data", "host launch", "device", "communication", UNTOLD),
}
"""The terms of each group, in the guides' order."""
_TOLD_BY = {
    ("host", "kernels"): ("data loading", "data"),
    ("computing_ns",): ("forward and backward", "device"),
    ("kernels",): ("optimizer", "post-processing"),
    ("exposed_communication_ns",): ("communication not hidden", "communication"),
    ("launches", "kernels"): ("scheduling", "host launch"),
}
"""Terms by the tables, or the columns of `steps`, that a rank must have for them to be told."""


def guide_terms(run: Run, group: Group = "guide", *, steps: Collection[int] | None = None) -> pd.DataFrame:
    """The steps of a run in the guides' terms: columns `rank`, `step`, `term`, `ns` (whole; those of a step sum to its duration).

    Every rank and step has all terms of its group, null where its recording cannot tell. `steps` are all unless given. Raises
    InputError for an unknown group.
    """
    if group not in get_args(Group):
        raise InputError("guide terms", [f"group = {group!r} must be one of {', '.join(get_args(Group))}"])
    found = terms_of(ledger(run, steps=steps), group).astype({"ns": "Int64"})
    for needed, terms in _TOLD_BY.items():
        told = set.intersection(*(_with(run, name) for name in needed))
        untold = ~found["rank"].isin(told) & found["term"].isin(terms) & (found["ns"] == 0)
        found.loc[untold.to_numpy(dtype=bool), "ns"] = pd.NA
    return found


def terms_of_step(run: Run, *, rank: int, step: int, group: Group = "guide") -> pd.DataFrame:
    """A step of a rank in the guides' terms: columns `term`, `duration_ns`, `of_step_ratio`; null where it was not measured."""
    terms = guide_terms(run, group, steps=[step])
    own = terms[(terms["rank"] == rank).to_numpy(dtype=bool)].reset_index(drop=True)
    ratio = own["ns"].astype("Float64") / float(own["ns"].sum() or 1)
    return pd.DataFrame({"term": own["term"], "duration_ns": own["ns"], "of_step_ratio": ratio})


def terms_told(terms: pd.DataFrame) -> str:
    """The term that is the largest part of a step, in a sentence; `terms` is of `terms_of_step`, "" where none was measured."""
    known = terms[terms["duration_ns"].notna()]
    if known.empty:
        return ""
    most = known.iloc[int(known["duration_ns"].to_numpy(dtype="int64").argmax())]
    form = "In the guides' terms the largest part is {term}: {duration_ns} ({of_step_ratio})."
    return say(form, term=str(most["term"]), duration_ns=int(most["duration_ns"]), of_step_ratio=float(most["of_step_ratio"]))


def _with(run: Run, name: str) -> set[int]:
    """The ranks that have rows of a table, or a value of a column of `steps`."""
    if name in TABLES:
        return {int(rank) for rank in run.frame(name, columns=["rank"])["rank"].unique()} if run.has(name) else set()
    steps = run.steps()
    return {int(rank) for rank in steps.loc[steps[name].notna().to_numpy(dtype=bool), "rank"].unique()}


def terms_of(found: Ledger, group: Group) -> pd.DataFrame:
    """The entries of a ledger in the terms of a group; columns as in `guide_terms`."""
    entries = found.entries
    named = pd.DataFrame({"rank": entries["rank"], "step": entries["step"], "term": _terms(entries, group), "ns": entries["ns"]})
    sums = named.groupby(["rank", "step", "term"], sort=True)["ns"].sum()
    if named.empty:
        return named.astype({"rank": "int64", "step": "int64", "term": "object", "ns": "int64"})
    places = named[["rank", "step"]].drop_duplicates().sort_values(["rank", "step"])
    index = pd.MultiIndex.from_tuples(
        [(rank, step, term) for rank, step in places.itertuples(index=False) for term in TERMS[group]],
        names=["rank", "step", "term"],
    )
    return sums.reindex(index, fill_value=0).astype("int64").reset_index()


def _terms(entries: pd.DataFrame, group: Group) -> np.ndarray:
    """The term of every entry of a ledger."""
    cause, place = entries["cause"].astype(str), entries["place"].astype(str)
    data = cause.isin([causes.FEED, causes.COPY])
    talking = (cause == causes.UNEXPLAINED) & (entries["part"].astype(str) == "communication")  # moving or waiting, not hidden
    moving = cause.str.startswith(("transfer", "waiting")) | talking
    work, host = cause.str.startswith("work"), cause.str.startswith("host") | (cause == causes.DEVICE)
    if group == "pynative":
        chosen: list[pd.Series] = [data, moving, work | (cause == causes.DEVICE), host]
        names = ["data", "communication", "device", "host launch"]
    else:
        behind = (work & (place == BEHIND)) | (host & (place == AFTER))
        chosen = [data, moving, cause == causes.OPTIMIZER, behind, work, host]
        names = ["data loading", "communication not hidden", "optimizer", "post-processing", "forward and backward", "scheduling"]
    found: np.ndarray = np.select([one.to_numpy(dtype=bool) for one in chosen], names, UNTOLD).astype(object)
    return found
