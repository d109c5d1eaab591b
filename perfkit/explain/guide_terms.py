"""Guide terms: where a step went, in the words with which the tuning guides begin; the same time as the ledger's, grouped.

The guides of graph mode name six: loading data (to the device, too), forward and backward, optimizer, post-processing behind it,
communication that computing does not hide, and scheduling (from an instruction of the host to a kernel). The PyNative guide names
four: data, launching by the host as far as it is not hidden, the device, communication not hidden. What a recording does not tell
apart is a term of its own, so that the terms of a step sum to it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, get_args

import numpy as np
import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.run import Run
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


def guide_terms(run: Run, group: Group = "guide", *, steps: Collection[int] | None = None) -> pd.DataFrame:
    """The steps of a run in the guides' terms: columns `rank`, `step`, `term`, `ns` (whole; those of a step sum to its duration).

    Every rank and step has all terms of its group. `steps` are all unless given. Raises InputError for an unknown group.
    """
    if group not in get_args(Group):
        raise InputError("guide terms", [f"group = {group!r} must be one of {', '.join(get_args(Group))}"])
    return terms_of(ledger(run, steps=steps), group)


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
    moving = cause.str.startswith(("transfer", "waiting"))
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
