"""Communication: what of it is hidden, who waits for whom, and which link is slow, in tables and sentences."""

from __future__ import annotations

from typing import Any

import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.looks import brief, folded
from perfkit.core.run import Run
from perfkit.core.texts import joined, say
from perfkit.core.units import significant
from perfkit.explain import links
from perfkit.explain.collectives import waiting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.rules.slow_link import slow_pairs
from perfkit.explain.exposure import by_operation, exposed
from perfkit.record.events.graph import causal_graph

ALL = "all"
POINT_TO_POINT = ("send", "receive", "send_receive")
CLEARLY = 2.0
"""A rank is named as the late one only if it is this many times further from the others than the next one."""
_COLLECT = "record communication: profiler level 1 with communication, or activities CUDA or NPU with record_shapes"


def names_of(run: Run, table: str, column: str) -> list[str]:
    """What a column of a table holds, after "all"."""
    return [ALL, *sorted(run.distinct(table, columns=[column])[column].astype(str))] if run.has(table) else [ALL]


def operations_of(run: Run, *, operation: str = ALL, group: str = ALL, ranks: tuple[int, ...] | None = None) -> pd.DataFrame:
    """Hidden and exposed communication by operation, a rank and step: the rows of `exposure.by_operation`.

    Raises NotMeasuredError if the run has no collectives.
    """
    _refuse(run)
    return by_operation(_chosen(exposed(run, ranks=ranks), operation, group))


def members_of(run: Run, *, operation: str = ALL, group: str = ALL) -> pd.DataFrame:
    """Every collective by member, with its waiting and transfer (the members of the causal graph).

    Raises NotMeasuredError if the run has no collectives.
    """
    _refuse(run)
    return _chosen(causal_graph(run).members(), operation, group)


def waiting_by_rank(members: pd.DataFrame) -> pd.DataFrame:
    """One row a rank, the one that others wait for longest first, from rows of `members_of`.

    Columns: `rank`, `wait_ns`, `transfer_ns`, `other_ns`, `total_ns` (the three together), `wait_ratio` (of the first
    two together), `caused_ns` (what the others waited for it), `times_last`, `operations`.
    """
    columns = ["rank", "wait_ns", "transfer_ns", "other_ns", "total_ns", "wait_ratio", "caused_ns", "times_last", "operations"]
    if members.empty:
        return pd.DataFrame(columns=columns)
    sums = members.groupby("rank")[["transfer_ns", "other_ns"]].sum(min_count=1)
    table = waiting(members).merge(sums.reset_index(), on="rank", how="left")
    total = (table["wait_ns"] + table["transfer_ns"]).astype("Float64")
    table["total_ns"] = table[["wait_ns", "transfer_ns", "other_ns"]].sum(axis="columns", min_count=1)
    table["wait_ratio"] = table["wait_ns"].astype("Float64") / total.where(total > 0)
    return brief(table[columns], "rank", "wait_ns", "transfer_ns", "wait_ratio", "caused_ns")


def late_rank(members: pd.DataFrame, *, wait_ratio: float = 0.2) -> tuple[int, str] | None:
    """The rank that others wait for, and how that is known; None if nothing says it, or less than `wait_ratio` is waiting.

    A stage of a pipeline that has not finished yet is not late: sends and receives blame nobody.
    """
    ranks = waiting_by_rank(members)
    wait, transfer = ranks["wait_ns"].sum(), ranks["transfer_ns"].sum()
    rows = members[~members["operation"].isin(POINT_TO_POINT)]
    if rows.empty or wait + transfer <= 0 or wait / (wait + transfer) < wait_ratio:
        return None
    told = waiting(rows)
    told = told[told["wait_ns"].notna()].assign(caused_ns=told["caused_ns"].fillna(0))
    named = _named_by_tasks(rows, wait)
    if len(told) < 2:
        return named
    first, second = told.iloc[0], told.iloc[1]
    if first["caused_ns"] > CLEARLY * second["caused_ns"]:
        last, operations = str(int(first["times_last"])), str(int(first["operations"]))
        return int(first["rank"]), say("it comes last in {last} of {operations} operations", last=last, operations=operations)
    if named is not None:
        return named
    by_wait = told.sort_values("wait_ns", kind="stable")
    least, next_least = by_wait.iloc[0], by_wait.iloc[1]
    if not (rows["basis"] == "recorded").all() or next_least["wait_ns"] <= CLEARLY * least["wait_ns"]:
        return None
    held_up_ns = rows.loc[(rows["rank"] == least["rank"]).to_numpy(dtype=bool), "other_ns"].sum(min_count=1)
    if pd.notna(held_up_ns) and held_up_ns > next_least["wait_ns"]:  # it stands as long itself, by whatever that is told
        return None
    each_ns = least["wait_ns"] / num_steps(members)
    return int(least["rank"]), say("of the ranks recorded it waits least ({wait_ns} a step)", wait_ns=each_ns)


def _named_by_tasks(rows: pd.DataFrame, wait_ns: float) -> tuple[int, str] | None:
    """The rank for which most of the waiting was, recorded or not, as the tasks of the operations say."""
    waits = rows.groupby("waits_for")["wait_ns"].sum()
    if waits.empty or waits.max() < wait_ns / CLEARLY:
        return None
    return int(str(waits.idxmax())), say("the tasks of the operations wait for it")


def num_steps(members: pd.DataFrame) -> int:
    """The steps in which there was communication, at least 1."""
    return max(1, int(members["step"].nunique()))


def exposed_by_step(run: Run) -> pd.DataFrame:
    """How much communication every rank exposes and hides in every step, the most exposed first; none where it was not measured.

    Columns: `rank`, `step`, `duration_ns`, `communication_ns`, `exposed_communication_ns`, `overlapped_ns`, `exposed_share`.
    """
    columns = ["rank", "step", "duration_ns", "communication_ns", "exposed_communication_ns", "overlapped_ns"]
    steps = run.steps()[columns]
    known = steps[steps["communication_ns"].notna() & steps["exposed_communication_ns"].notna()]
    share = known["exposed_communication_ns"].astype("float64") / known["duration_ns"].astype("float64").clip(lower=1)
    told = known.assign(exposed_share=share).iloc[::-1]
    told = told.sort_values("exposed_communication_ns", ascending=False, kind="stable", ignore_index=True)
    return brief(told, "rank", "step", "communication_ns", "exposed_communication_ns", "exposed_share")


def exposed_told(run: Run) -> str:
    """How much of its communication the rank with the most exposed could not hide, in a sentence."""
    known = exposed_by_step(run)
    if known.empty:
        return "How much of the communication is exposed was not measured."
    if not known["communication_ns"].any():
        return "No rank communicates in any step that was recorded."
    row = known.iloc[0]
    return say(
        "Rank {rank} communicates {communication_ns} in step {step}; {exposed_ns} of it are exposed ({exposed_share} of the step), "
        "{hidden}.",
        rank=str(int(row["rank"])),
        step=str(int(row["step"])),
        communication_ns=row["communication_ns"],
        exposed_ns=row["exposed_communication_ns"],
        exposed_share=row["exposed_share"],
        hidden=_hidden_told(row["overlapped_ns"]),
    )


def _hidden_told(hidden_ns: Any) -> str:
    """What computing hides, in a clause: an amount, none, or not measured."""
    if pd.isna(hidden_ns):
        return "what is hidden behind computing was not measured"
    return (
        say("{hidden_ns} are hidden behind computing", hidden_ns=hidden_ns)
        if hidden_ns
        else "none of it is hidden behind computing"
    )


def verdict_told(members: pd.DataFrame, *, wait_ratio: float = 0.2) -> list[str]:
    """Whether communication waits or moves data and where to look, in a sentence; then those of `waiting_told`."""
    if members.empty:
        return ["No operation of this choice was recorded."]
    notes = waiting_told(members, wait_ratio=wait_ratio)
    ranks = _told_apart(members)
    waited, moved, rest = (int(ranks[name].sum()) for name in ("wait_ns", "transfer_ns", "other_ns"))
    total, late = waited + moved + rest, late_rank(members, wait_ratio=wait_ratio)
    is_partial = "partial" in set(members["basis"].dropna())
    is_whole = members[["wait_ns", "transfer_ns"]].notna().all(axis=None)
    what = say("communication" if is_whole else "communication with known waiting")
    if not waited + moved:
        return notes
    if rest > waited + moved:
        return [say(_NEITHER, rest_ns=rest, total_ns=total, rest_ratio=rest / total), *notes]
    if waited < moved:
        form = _MOVES_AT_MOST if is_partial else _MOVES
        return [say(form, what=what, transfer_ns=moved, total_ns=total, transfer_ratio=moved / total), *notes]
    if late is not None:
        form = _LATE if (members["rank"] == late[0]).any() else _LATE_UNSEEN
    else:
        between_stages = members.loc[members["operation"].isin(POINT_TO_POINT), "wait_ns"].sum()
        is_unknown = is_partial or ranks["caused_ns"].isna().all()
        form = _STAGES if 2 * between_stages > waited else _WHO_IS_NOT_KNOWN if is_unknown else _NOBODY
    rank = "" if late is None else str(late[0])
    return [say(form, what=what, wait_ns=waited, total_ns=total, wait_ratio=waited / total, rank=rank), *notes]


# How long all communication takes stands elsewhere: what some of it is, nobody knows.
_LATE = "{wait_ratio} of {what} ({wait_ns} of {total_ns}) is waiting, longest for rank {rank}: see what delays it."
_LATE_UNSEEN = "{wait_ratio} of {what} ({wait_ns} of {total_ns}) is waiting, longest for rank {rank}: record it too, to see why."
_STAGES = "{wait_ratio} of {what} ({wait_ns} of {total_ns}) is waiting, most in sends and receives: see page 17."
_NOBODY = "{wait_ratio} of {what} ({wait_ns} of {total_ns}) is waiting, for no single rank: look at operations one by one."
_WHO_IS_NOT_KNOWN = (
    "{wait_ratio} of {what} ({wait_ns} of {total_ns}) is waiting; for whom is not known: record all ranks of a group."
)
_MOVES = "{transfer_ratio} of {what} ({transfer_ns} of {total_ns}) moves data: see if a link is slow or messages are small."
_MOVES_AT_MOST = "Up to {transfer_ratio} of {what} ({transfer_ns} of {total_ns}) moves data: record all ranks to see what waits."
_NEITHER = "Of {total_ns} in communication {rest_ns} neither waits nor moves data ({rest_ratio}): see on page 14 what runs then."


def _told_apart(members: pd.DataFrame) -> pd.DataFrame:
    """The rows of `waiting_by_rank` of which waiting and moving data are known."""
    ranks = waiting_by_rank(members)
    return ranks[ranks["wait_ns"].notna() & ranks["transfer_ns"].notna()]


def waiting_told(members: pd.DataFrame, *, wait_ratio: float = 0.2) -> list[str]:
    """How long ranks wait in collectives and for whom, in sentences; then what these figures cannot tell."""
    ranks, known, late = waiting_by_rank(members), _told_apart(members), late_rank(members, wait_ratio=wait_ratio)
    waited, moved = int(known["wait_ns"].sum()), int(known["transfer_ns"].sum())
    total = waited + moved
    if known.empty or not total:
        return ["Whether communication moves data or waits is not known: record every rank of a group, to see who comes late."]
    whom = (
        say("rank {rank} is the late one; {why}", rank=str(late[0]), why=late[1])
        if late
        else "no single rank makes the others wait"
    )
    form = "All ranks together wait {wait_ns} and move data for {transfer_ns}; {whom}."
    told: list[str] = [say(form, wait_ns=waited, transfer_ns=moved, whom=whom)]
    rest = int(ranks["other_ns"].sum())
    if rest > total:
        form = (
            "{rest_ns} of the {total_ns} in collectives ({rest_ratio}) are neither waiting nor transfer: no task of the operation "
            "is on record then."
        )
        told.append(say(form, rest_ns=rest, total_ns=rest + total, rest_ratio=rest / (rest + total)))
    if "partial" in set(members["basis"].dropna()):
        told.append("Of some groups only a part of the ranks was recorded: their waiting is a lower bound.")
    return told


def clocks_moved(run: Run) -> pd.DataFrame | None:
    """How far the clock of every rank was moved to compare their times: `rank`, `offset_ns`, `drift_ratio`, `uncertainty_ns`.

    `collectives` is how many tell it. None where no clock was moved.
    """
    rows = [
        {
            "rank": known.rank,
            "offset_ns": -known.offset_ns,
            "drift_ratio": known.drift,
            "uncertainty_ns": round(known.uncertainty_ns),
            "collectives": known.num_matches,
        }
        for known in causal_graph(run).clocks.values()
    ]
    moved = pd.DataFrame(rows, columns=["rank", "offset_ns", "drift_ratio", "uncertainty_ns", "collectives"])
    return folded(moved) if moved["offset_ns"].any() else None


def clocks_told(run: Run) -> list[str]:
    """By how much the clocks of `clocks_moved` were moved, and how sure that is, in a sentence; none where none was."""
    moved = clocks_moved(run)
    if moved is None:
        return []
    furthest = moved.loc[moved["offset_ns"].abs() == moved["offset_ns"].abs().max()].iloc[0]
    return [
        say(
            _DRIFTING if moved["drift_ratio"].any() else _ALIGNED,
            num=str(len(moved)),
            ranks=str(len(run.ranks)),
            offset_ns=abs(int(furthest["offset_ns"])),
            rank=str(int(furthest["rank"])),
            uncertainty_ns=int(moved["uncertainty_ns"].max()),
        )
    ]


_ALIGNED = "Clocks of {num} of {ranks} ranks were aligned, by up to {offset_ns} (rank {rank}); that is sure to {uncertainty_ns}."
_DRIFTING = (
    "Clocks of {num} of {ranks} ranks were aligned, by up to {offset_ns} (rank {rank}) and their drift; "
    "the offsets are sure to {uncertainty_ns}."
)


def link_table(run: Run, *, transport: str = ALL) -> pd.DataFrame:
    """One row a pair of ranks: its slowest link if the rule `slow-link` names it, else the one that moved most.

    Slow ones come first, then those that cost most: the time that their bytes take longer than over a link like it.

    Columns: `source_rank`, `target_rank`, `transport`, `operation`, `bytes`, `bytes_per_s`, `slowness` and `z` against like links
    (null where nothing is alike), `slow`.
    """
    if not run.has("links"):
        return pd.DataFrame(columns=[*_LINK_KEYS, "operation", "bytes", "bytes_per_s", "slowness", "z", "slow"])
    table = links.links(run)
    judged = links.slow_links(run)
    judged = judged[judged["num_like"] > 1][[*_LINK_KEYS, "operation", "peers", "slowness", "z"]]
    table = table.merge(judged, on=[*_LINK_KEYS, "operation", "peers"], how="left")
    table = table[table["bytes_per_s"].notna()]
    if transport != ALL:
        table = table[table["transport"].astype(str) == transport]
    named = slow_pairs(Case(run))
    ends = zip(table["source_rank"], table["target_rank"], strict=True)
    table["slow"] = [(min(pair), max(pair)) in named for pair in ends]
    table["first"] = table["slowness"].fillna(0.0).where(table["slow"], 0.0)
    table = table.sort_values(["slow", "first", "bytes"], ascending=False, kind="stable")
    table = table.drop_duplicates(["source_rank", "target_rank"])
    longer = 1.0 - 1.0 / table["slowness"].astype("float64").fillna(1.0)
    table = table.assign(cost_s=table["bytes"].astype("float64") / table["bytes_per_s"].astype("float64") * longer)
    table = table.sort_values(["slow", "cost_s"], ascending=False, kind="stable", ignore_index=True)
    shown = table[[*_LINK_KEYS, "operation", "bytes", "bytes_per_s", "slowness", "z", "slow"]]
    return brief(shown, "source_rank", "target_rank", "bytes_per_s", "slowness", "slow")


_LINK_KEYS = ["source_rank", "target_rank", "transport"]


def links_judged(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of `link_table` as people read them: `slow` says of a link with none like it that it was not judged."""
    is_judged = table["slow"] | table["slowness"].notna()
    return table.assign(slow=table["slow"].astype("object").where(is_judged, "not judged"))


def links_told(table: pd.DataFrame) -> str:
    """Whether a link is slower than its like, in a sentence; `table` is of `link_table`."""
    if table.empty:
        return "Links: not measured. Record communication (profile_communication, or profiler level 1)."
    slow = table[table["slow"]]
    if slow.empty:
        median, alone = float(table["bytes_per_s"].median()), table[table["slowness"].isna()]
        if alone.empty:
            return say("Links move {median_bytes_per_s} (median); none is slower than its like.", median_bytes_per_s=median)
        slowest = _slowest_alone(alone, float(table["bytes_per_s"].max()))
        if len(alone) == len(table):
            form = "Links move {median_bytes_per_s} (median); none has another like it to be judged by."
            return joined([say(form, median_bytes_per_s=median), slowest])
        judged, links = len(table) - len(alone), str(len(table))
        compared = say(_ONE_COMPARED if judged == 1 else _COMPARED, judged=str(judged), links=links)
        others = say(_ONE_ALONE if len(alone) == 1 else _ALONE, alone=str(len(alone)))
        form = "Links move {median_bytes_per_s} (median). {compared}; {others}."
        return joined([say(form, median_bytes_per_s=median, compared=compared, others=others), slowest])
    row = slow.iloc[0]
    ends = f"{int(row['source_rank'])} to {int(row['target_rank'])}"
    return f"The link {ends} takes {significant(float(row['slowness']))} times as long a byte as links like it."


def _slowest_alone(alone: pd.DataFrame, fastest: float) -> str:
    """How much the slowest of links that none is like moved how fast, beside the fastest of all; "" where it is the fastest."""
    row = alone.nsmallest(1, "bytes_per_s").iloc[0]
    if row["bytes_per_s"] >= fastest:
        return ""
    one = "That is {link}: it moved {bytes} at {bytes_per_s}, the fastest link moves {fastest_bytes_per_s}."
    more = "The slowest of them, {link}, moved {bytes} at {bytes_per_s}; the fastest link moves {fastest_bytes_per_s}."
    return say(
        one if len(alone) == 1 else more,
        link=say("{source} to {target}", source=str(int(row["source_rank"])), target=str(int(row["target_rank"]))),
        bytes=int(row["bytes"]),
        bytes_per_s=float(row["bytes_per_s"]),
        fastest_bytes_per_s=fastest,
    )


_ONE_COMPARED = "1 of {links} links could be compared and is not slow"
_COMPARED = "{judged} of {links} links could be compared, and none is slow"
_ONE_ALONE = "1 has no link like it to compare with"
_ALONE = "{alone} have no link like them to compare with"


def _refuse(run: Run) -> None:
    if not run.has("collectives"):
        raise NotMeasuredError(f"communication: {run.name} holds no collectives", how_to_collect=_COLLECT)


def _chosen(rows: pd.DataFrame, operation: str, group: str) -> pd.DataFrame:
    if operation != ALL:
        rows = rows[rows["operation"].astype(str) == operation]
    if group != ALL:
        rows = rows[rows["group"].astype(str) == group]
    return rows.reset_index(drop=True)
