"""Stated: what a step's own row says of its parts, where no timeline tells more, and how a timeline is held to it.

Summaries of many ranks state how long a step computed, communicated with nothing else, and was free. Where waiting and moving data
are stated for each operation too, only what is certain of them is told: what was not hidden is at least the one less all of the
other. The rest is unexplained.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from perfkit.explain.ledger import causes
from perfkit.explain.ledger._paint import shared

PARTS = ("computing", "communication", "free")
COLUMNS = ["rank", "step", "cause", "who", "place", "detail", "part", "ns"]
WHOLE = 0.9
"""The share of the computing time stated that the kernels must hold for idle times between them to be idle times."""
NOBODY = -1
NEXT_TO_NOTHING = 0.1
"""The share of what other members wait that the one they wait for may wait itself."""


def stated_parts(steps: pd.DataFrame) -> pd.DataFrame:
    """By row of `steps` the ns of PARTS, null where the step does not state them; they sum to its duration."""
    computing = steps["computing_ns"].astype("Int64")
    talking = steps["exposed_communication_ns"].astype("Int64") + steps["bubble_ns"].astype("Int64").fillna(0)
    free = steps["duration_ns"].astype("Int64") - computing - talking
    told = (free >= 0).fillna(False)
    return pd.DataFrame({part: amounts.where(told) for part, amounts in zip(PARTS, (computing, talking, free), strict=True)})


def held_to(entries: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Entries of timelines so that each part sums to what the step states, and all to its duration.

    What a part lacks is unexplained; what it has too much is taken from all of its entries alike. Where kernels are missing, times
    between those that are there say nothing and are unexplained.
    """
    stated = {
        (int(row["rank"]), int(row["step"])): row
        for row in pd.concat([steps[["rank", "step", "duration_ns"]], stated_parts(steps)], axis=1).to_dict("records")
    }
    frames = []
    for (rank, step), rows in entries.groupby(["rank", "step"], sort=False):
        told = stated[int(str(rank)), int(str(step))]
        limits = [_whole(told[part]) for part in PARTS]
        if limits[0] is None:
            frames.append(_fitted(rows, int(told["duration_ns"]), "kernels"))
            continue
        torn = int(rows.loc[rows["part"] == "computing", "ns"].sum()) < WHOLE * limits[0]
        for part, limit in zip(PARTS, limits, strict=True):
            own = rows[(rows["part"] == part).to_numpy(dtype=bool)]
            if torn and part != "computing":
                own = own[:0]
            frames.append(_fitted(own, limit or 0, _LACKING[part], like=(rank, step, part)))
    return pd.concat(frames, ignore_index=True)[COLUMNS] if frames else entries


_LACKING = {"computing": "kernels", "communication": "communication", "free": "idle"}


def _whole(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)


def _fitted(rows: pd.DataFrame, total: int, lacking: str, like: tuple[Any, Any, str] | None = None) -> pd.DataFrame:
    """The rows so that they sum to `total`."""
    found = int(rows["ns"].sum())
    if found > total:
        return rows.assign(ns=shared(total, rows["ns"].to_numpy(dtype=np.int64)))
    if found == total:
        return rows
    rank, step, part = like or (rows["rank"].iloc[0], rows["step"].iloc[0], "free")
    rest = pd.DataFrame([[rank, step, causes.UNEXPLAINED, NOBODY, "inside", lacking, part, total - found]], columns=COLUMNS)
    return pd.concat([rows, rest], ignore_index=True)


def summaries(steps: pd.DataFrame, members: pd.DataFrame, fed: pd.DataFrame) -> pd.DataFrame:
    """The entries of steps of which only the parts are stated.

    `members` are rows of `collectives.members`, `fed` has `rank`, `step` and `ns` that the run states as waiting for input.
    """
    parts = stated_parts(steps)
    frames = []
    unknown = parts["computing"].isna().to_numpy(dtype=bool)
    rows, whole = steps[unknown], steps.loc[unknown, "duration_ns"].to_numpy(dtype=np.int64)
    data = np.minimum(_looked_up(rows, fed), whole)
    frames.append(_column(rows, causes.FEED, data, None, "free", place="before"))
    frames.append(_column(rows, causes.UNEXPLAINED, whole - data, "step", "free"))
    rows, known = steps[~unknown], parts[~unknown]
    frames.append(_column(rows, causes.ALL_WORK, known["computing"], None, "computing"))
    bubble = np.minimum(rows["bubble_ns"].fillna(0).to_numpy(dtype=np.int64), known["communication"].to_numpy(dtype=np.int64))
    frames.append(_column(rows, causes.OTHER_STAGE, bubble, None, "communication"))
    exposed = known["communication"].to_numpy(dtype=np.int64) - bubble
    waited, moved, other = _recorded(rows, members)
    least_wait = np.clip(exposed - moved - other, 0, np.minimum(exposed, waited))
    least_move = np.clip(
        exposed - least_wait - np.maximum(waited - least_wait, 0) - other, 0, np.minimum(exposed - least_wait, moved)
    )
    told = (waited + moved) > 0
    least_wait, least_move = np.where(told, least_wait, 0), np.where(told, least_move, 0)
    frames.append(_for_whom(_column(rows, causes.WAITING_UNTOLD, least_wait, None, "communication"), members))
    frames.append(_column(rows, causes.TRANSFER, least_move, None, "communication"))
    frames.append(_column(rows, causes.UNEXPLAINED, exposed - least_wait - least_move, "communication", "communication"))
    free = known["free"].to_numpy(dtype=np.int64)
    data = np.minimum(_looked_up(rows, fed), free)
    copies = np.minimum(rows["copy_ns"].fillna(0).to_numpy(dtype=np.int64), free - data)
    frames.append(_column(rows, causes.FEED, data, None, "free", place="before"))
    frames.append(_column(rows, causes.COPY, copies, None, "free"))
    frames.append(_column(rows, causes.UNEXPLAINED, free - data - copies, "idle", "free"))
    return pd.concat([frame for frame in frames if len(frame)] or frames[:1], ignore_index=True)


def _for_whom(waits: pd.DataFrame, members: pd.DataFrame) -> pd.DataFrame:
    """Waiting shared among the ranks that were waited for, as the whole waiting of each rank and step was, hidden or not."""
    last = latest_members(members)
    told = members.assign(who=members["instance"].map(last).astype("Int64").fillna(members["waits_for"]))
    told = told[told["who"].notna().to_numpy() & (told["wait_ns"] > 0).fillna(False).to_numpy() & (told["who"] != told["rank"])]
    sums = told.groupby(["rank", "step", "who"])["wait_ns"].sum()
    by_step: dict[Any, pd.Series] = {key: own.droplevel(["rank", "step"]) for key, own in sums.groupby(level=["rank", "step"])}
    frames = []
    for row in waits.to_dict("records"):
        own = by_step.get((row["rank"], row["step"]))
        if own is None:
            frames.append(pd.DataFrame([row]))
            continue
        parts = shared(int(row["ns"]), own.to_numpy(dtype=np.int64))
        frames.append(pd.DataFrame([row] * len(parts)).assign(who=own.index.to_numpy(dtype=np.int64), ns=parts))
    return pd.concat(frames, ignore_index=True)[COLUMNS] if frames else waits


def latest_members(members: pd.DataFrame) -> pd.Series:
    """By operation of which several members were read, the one that waited least: it came last.

    Where some were not read one of those may have come last, unless one that was waited next to nothing beside the others, and was
    not held up in the operation for longer than they waited, neither waiting nor moving data.
    """
    known = members[members["wait_ns"].notna().to_numpy() & (members["num_seen"] > 1).fillna(False).to_numpy()]
    ordered = known.sort_values(["instance", "wait_ns", "rank"], kind="stable")
    least, most = (ordered.drop_duplicates("instance", keep=keep).set_index("instance") for keep in ("first", "last"))
    paired = least["operation"].isin(["send", "receive"]) & (least["num_seen"] == 2)
    whole = paired | (least["num_seen"] >= least["group_size"]).fillna(False)
    held_up = (least["other_ns"] > most["wait_ns"]).fillna(False)
    told = (whole | ((least["wait_ns"] <= NEXT_TO_NOTHING * most["wait_ns"]) & ~held_up)).to_numpy(dtype=bool)
    return least.loc[told, "rank"].astype("int64")


def _column(rows: pd.DataFrame, cause: str, ns: Any, detail: str | None, part: str, *, place: str = "inside") -> pd.DataFrame:
    amounts = np.asarray(ns, dtype=np.int64)
    keep = amounts > 0
    frame = pd.DataFrame({"rank": rows["rank"].to_numpy()[keep], "step": rows["step"].to_numpy()[keep]})
    return frame.assign(cause=cause, who=NOBODY, place=place, detail=detail, part=part, ns=amounts[keep])[COLUMNS]


def _recorded(rows: pd.DataFrame, members: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Waiting, moving and neither of the operations of each rank and step, where all of them state it; else 0."""
    told = members[members["step"].notna().to_numpy()]
    sums = told.groupby(["rank", "step"])[["wait_ns", "transfer_ns", "other_ns"]].sum(min_count=1)
    lacks = told["wait_ns"].isna().groupby([told["rank"], told["step"]]).any()
    sums = sums[~lacks.reindex(sums.index).fillna(True).to_numpy(dtype=bool)]
    wanted = pd.MultiIndex.from_frame(rows[["rank", "step"]].astype("int64"))
    found = sums.reindex(wanted).fillna(0).to_numpy(dtype=np.int64)
    return found[:, 0], found[:, 1], found[:, 2]


def _looked_up(rows: pd.DataFrame, fed: pd.DataFrame) -> np.ndarray:
    by_step = fed.set_index(["rank", "step"])["ns"] if len(fed) else pd.Series(dtype="int64")
    if not len(by_step):
        return np.zeros(len(rows), dtype=np.int64)
    found: np.ndarray = by_step.reindex(pd.MultiIndex.from_frame(rows[["rank", "step"]])).fillna(0).to_numpy(dtype=np.int64)
    return found
