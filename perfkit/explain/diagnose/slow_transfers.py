"""Transfers that are slow in some steps: operations of a group against themselves in the other steps of the recording.

A slow link makes nearly all operations of a group longer, in proportion to what they move; a late peer makes few of them longer, by
as much as it is late. Where all members were recorded, waiting is left out; where one was, both are told apart by that alone.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit.core.texts import say
from perfkit.explain.diagnose import work
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.episodes import EPISODE_SHARE, PLAIN, Episode, episode_of, price_ns
from perfkit.explain.diagnose.rule import Finding
from perfkit.explain.diagnose.thresholds import MEDIUM_SHARE

MOST_SLOWER = 0.7
"""The share of the operations that must be slower, by SLOWER at least, for the links between their ranks to be slow."""
SLOWER = 1.25
"""As of a slow link: four fifths of the rate (`slow_link.LINK_RATIO`)."""
LEAST_OPERATIONS = 2
"""One operation a step may be slow for any reason of its own, unless several of its members show that it was the transfer."""
ACTIONS = (
    "look at the network and the ports of the named ranks at the time of those steps: other traffic, retries, links that go down",
    "record communication of all ranks of the group (profile_communication, level 1) to see which link it is",
)


def findings(case: Case, rule: str) -> tuple[Finding, ...]:
    """A finding for each set of steps in which transfers were slow."""
    if not case.run.has("collectives") or len(case.step_numbers) < 2:
        return ()
    rows = case.members.dropna(subset=["step", "duration_ns"])
    rows = rows.assign(
        moved=rows["transfer_ns"].astype("Float64").fillna(rows["duration_ns"].astype("Float64")).astype("float64"),
        group=rows["group"].astype("object").fillna(""),
    )
    by_steps: dict[tuple[int, ...], list[tuple[str, Episode, float]]] = {}
    for group, mine in rows.groupby("group"):
        found = _of_group(case, mine)
        if found is not None:
            by_steps.setdefault(found[0].steps, []).append((str(group), *found))
    least_ns = case.limit(MEDIUM_SHARE) * (case.step_ns or 1)
    told = (_finding(case, rule, rows, found) for _, found in sorted(by_steps.items()))
    return tuple(finding for finding in told if (finding.cost_ns or 0) >= least_ns)


def _of_group(case: Case, rows: pd.DataFrame) -> tuple[Episode, float] | None:
    """The steps in which a group's transfers are slow, and how many times as long they take then."""
    # In the first step of a job ranks connect: what is slow in it says nothing of links.
    rows = rows[rows["step"].isin(case.settled_steps).to_numpy(dtype=bool)]
    # The member that waits least says how long data moved.
    moved = rows.groupby(["step", "instance"])["moved"].min().groupby("step").sum()
    episode = episode_of(moved.reindex(list(case.settled_steps)), case.limit(EPISODE_SHARE) * (case.step_ns or 1))
    if episode is None:
        return None
    each = rows.groupby(["step", "instance"]).agg(moved=("moved", "min"), name=("name", "first")).reset_index()
    each["place"] = each.sort_values("instance").groupby("step").cumcount()
    slow = each["step"].isin(episode.steps)
    inside, others = (each[which].groupby("place")["moved"].median() for which in (slow, ~slow))
    ratios = (inside / others.clip(lower=1.0)).dropna()
    if len(ratios) < LEAST_OPERATIONS and not (len(ratios) and _shown_by_several(rows) and ratios.min() >= PLAIN):
        return None
    if (ratios >= SLOWER).mean() < MOST_SLOWER:
        return None
    return episode, float(moved[list(episode.steps)].mean() / max(1.0, episode.usual))


def _shown_by_several(rows: pd.DataFrame) -> bool:
    """Whether at least two members of every operation were seen, with waiting told apart from moving data."""
    seen = rows[rows["transfer_ns"].notna().to_numpy()].groupby("instance")["rank"].nunique()
    return bool(len(seen) == rows["instance"].nunique() and seen.min() > 1)


def _finding(case: Case, rule: str, rows: pd.DataFrame, found: list[tuple[str, Episode, float]]) -> Finding:
    groups = tuple(group for group, _, _ in found if group)
    _, episode, ratio = max(found, key=lambda one: one[2])
    mine = rows[rows["group"].isin([group for group, _, _ in found])]
    ranks = tuple(sorted(int(rank) for rank in mine["rank"].unique()))
    moved = mine.groupby(["step", "instance"])["moved"].min().groupby("step").sum()
    cost_ns = min(own_ns := _cost_ns(case, mine, found), price_ns(case, episode.steps, own_ns))
    moving = mine["transfer_ns"].notna().all()
    severity = work.severity_of(case, cost_ns)
    return Finding(
        rule=rule,
        title=say(
            "Transfers take {times} times as long {when} as in the other steps"
            if moving
            else "Operations among ranks (waiting included) take {times} times as long {when} as in the other steps",
            times=ratio,
            when=episode.told(len(case.step_numbers)),
        ),
        subject={"groups": groups, "steps": episode.steps, "ranks": ranks},
        evidence={"slowness_ratio": ratio, **episode.evidence(moved, len(case.step_numbers))},
        actions=ACTIONS,
        cost_ns=cost_ns,
        # That one member took longer does not say that the network was slow.
        severity=severity if moving or severity != "high" else "medium",
        next=("13_communication", "14_timeline"),
        part="communication",
    )


def _cost_ns(case: Case, rows: pd.DataFrame, found: list[tuple[str, Episode, float]]) -> int:
    """What a step wins if the transfers took what they take in other steps: by replay, else as far as nothing hid them."""
    gone = {group: 1.0 - 1.0 / ratio for group, _, ratio in found}
    steps = found[0][1].steps
    slow = rows[rows["step"].isin(steps).to_numpy(dtype=bool)]
    if case.replay is not None:
        each = slow.groupby("instance").agg(moved=("moved", "min"), group=("group", "first"))
        faster = {int(str(at)): float(ns) * gone[group] for at, ns, group in each.itertuples(name=None)}
        nothing = pd.DataFrame({name: pd.Series(dtype="int64") for name in work.COLUMNS})
        return work.won_ns(case, nothing, faster_ns=faster)
    lost = (slow["moved"] * slow["group"].map(gone)).groupby(slow["rank"]).sum()
    table = case.steps.pivot(index="rank", columns="step", values="exposed_communication_ns").astype("float64")
    usual = [step for step in case.settled_steps if step not in steps]
    shown = table[list(steps)].sum(axis=1, min_count=len(steps)) - len(steps) * table[usual].mean(axis=1)
    # What is hidden of a rank that does not state it is not known: its steps say how much longer they are.
    bound = np.minimum(lost.reindex(shown.index).fillna(0.0), shown.clip(lower=0.0).fillna(np.inf))
    return round(float(bound.max()) / max(1, len(case.step_numbers)))
