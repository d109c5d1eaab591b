"""One link between two ranks moves data slower than links like it.

What is compared: the bandwidth of each link with that of links of the same transport, operation and number of peers, at least
four; less than a MiB a step says nothing about bandwidth. The matrix of the operation is solved by medians over rows and columns:
what all links of a rank share belongs to that rank, and only the rest to the link. It must hold in most steps, or in both
directions.

Without a matrix the operations of two ranks, which use one link, are compared with those of other pairs. And the operations of
every group are compared with themselves in other steps: where nearly all of them take longer in some steps, in proportion, a link
was slow in those.

What to do: check and repair the link or its ports; until then plan groups so that tensor parallel traffic stays off it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from perfkit.core import clock
from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain import collectives, links
from perfkit.explain.diagnose import slow_transfers, work
from perfkit.explain.diagnose.advice import Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import COMMUNICATION_BY
from perfkit.explain.diagnose.episodes import EPISODE_SHARE
from perfkit.explain.diagnose.rule import Finding, Loss, Rule, Threshold, Verdict
from perfkit.record.events.graph import causal_graph
from perfkit.record.overlap import Intervals, overlap_ns, union

LINK_RATIO = Threshold(
    name="link-ratio",
    value=1.25,
    unit="time a byte over that of like links",
    origin="chosen: 0.8 of the bandwidth of its class; healthy bundled links are up to 1.09",
)
LINK_Z = Threshold("link-z", 3.5, "robust standard deviations", "Iglewicz and Hoaglin (1993): outliers by MAD from 3.5 on")
LINK_PERSISTENCE = Threshold(
    "link-persistence", 0.7, "share of the steps", "chosen: 70 % of the steps; what slows a link now and then is other traffic"
)
LINK_PEERS = Threshold("link-peers", 4.0, "like links", "chosen: four; of three the odd one is half of the spread")

ACTIONS: tuple[Action, ...] = (
    {
        "ascend": "check the link, its cable, ports and drivers: hccn_tool -i N -link -g and -optical -g on both ends",
        "nvidia": "check the link, its cable, ports and drivers: nvidia-smi nvlink -s inside a node, ibstat between nodes",
        "amd": "check the link, its cable, ports and drivers: amd-smi xgmi inside a node, ibstat between nodes",
    },
    "until then place the groups so that tensor parallel traffic stays off the link",
)


def check(case: Case) -> Verdict:
    """Links that are slower than their like in most steps, and groups whose transfers are slow in some."""
    episodes = slow_transfers.findings(case, RULE.name)
    try:
        verdict = _among_links(case)
    except NotMeasuredError:
        if not episodes:
            raise
        return Verdict(episodes, {"num_steps": float(len(case.step_numbers))})
    return replace(verdict, findings=(*verdict.findings, *episodes))


def _among_links(case: Case) -> Verdict:
    """Links against links like them."""
    if not case.run.has("links"):
        return _by_pairs(case)
    table = links.slow_links(case.run, steps=case.step_numbers)
    if table.empty or table["num_like"].max() < case.limit(LINK_PEERS):
        raise NotMeasuredError("like links with bytes and times", how_to_collect=COMMUNICATION_BY)
    worst = _passing(table, case)
    confirmed = _lasting(worst, case)
    evidence = {
        "largest_slowness_ratio": float(table["slowness"].max()),
        "largest_z": float(table["z"].max()),
        "num_links": float(len(table)),
    }
    return Verdict(tuple(_finding(pair, share, worst, case) for pair, share in sorted(confirmed.items())), evidence)


def slow_pairs(case: Case) -> frozenset[tuple[int, int]]:
    """The pairs of ranks, the lower one first, whose link is slow; none where links were not recorded."""
    if not case.run.has("links"):
        return frozenset()
    return frozenset(_lasting(_passing(links.slow_links(case.run, steps=case.step_numbers), case), case))


def _lasting(rows: pd.DataFrame, case: Case) -> dict[tuple[int, int], float]:
    """The share of the steps in which each pair of `rows` is slow, of those that are in most."""
    pairs = {_pair(row) for row in rows.to_dict("records")}
    return {pair: share for pair in pairs if (share := _persistence(pair, case)) >= case.limit(LINK_PERSISTENCE)}


def _by_pairs(case: Case) -> Verdict:
    """Without a matrix: operations of two ranks go over one link, so their time a byte is compared with that of other pairs."""
    if not case.run.has("collectives"):
        raise NotMeasuredError("links, or operations of two ranks", how_to_collect=COMMUNICATION_BY)
    alone = case.members[case.members["num_seen"] == 2]
    # The later of two members does not wait: the shorter time is that of the transfer, whatever the clocks say.
    rows = alone.groupby("instance").agg(
        operation=("operation", "first"),
        bytes=("bytes", "max"),
        min=("rank", "min"),
        max=("rank", "max"),
        time=("duration_ns", "min"),
    )
    rows = rows[(rows["bytes"] >= links.MIN_BYTES).fillna(False).to_numpy(dtype=bool)]
    kind = rows["operation"].astype(str).replace({"send": "pass on", "receive": "pass on"})
    keys = [kind.rename("kind"), rows["bytes"], rows["min"], rows["max"]]
    medians = rows["time"].astype("float64").groupby(keys).median().rename("time").reset_index()
    like = medians.groupby(["kind", "bytes"])["time"]
    medians = medians[(like.transform("size") >= case.limit(LINK_PEERS)).to_numpy()]
    if medians.empty:
        raise NotMeasuredError(
            "links, or operations of two ranks of which four and more are alike", how_to_collect=COMMUNICATION_BY
        )
    medians["slowness"] = medians["time"] / medians.groupby(["kind", "bytes"])["time"].transform("median")
    evidence = {"largest_slowness_ratio": float(medians["slowness"].max()), "num_links": float(len(medians))}
    worst = medians[medians["slowness"] >= case.limit(LINK_RATIO)].sort_values("slowness", ascending=False)
    findings = []
    for row in worst.drop_duplicates(["min", "max"]).to_dict("records"):
        pair = int(row["min"]), int(row["max"])
        loss = _loss(pair, float(row["slowness"]), case)
        cost_ns = _cost_ns(pair, float(row["slowness"]), loss, case)
        findings.append(
            Finding(
                rule=RULE.name,
                title=say(
                    "Link {link} takes {times} times as long as links of other pairs of ranks (medians)",
                    link=f"{pair[0]}-{pair[1]}",
                    times=float(row["slowness"]),
                ),
                subject={"links": (pair,)},
                evidence={**evidence, "slowness_ratio": float(row["slowness"]), "transfer_ns": float(row["time"])},
                actions=fitting(case, ACTIONS),
                cost_ns=cost_ns,
                severity="medium" if cost_ns is None else work.severity_of(case, cost_ns),
                next=("13_communication",),
                part="communication",
                loss=loss,
            )
        )
    return Verdict(tuple(findings), evidence)


def _passing(table: pd.DataFrame, case: Case) -> pd.DataFrame:
    return table[
        (table["num_like"] >= case.limit(LINK_PEERS))
        & (table["link"] >= case.limit(LINK_RATIO))
        & (table["slowness"] >= case.limit(LINK_RATIO))
        & (table["z"] >= case.limit(LINK_Z))
    ]


def _pair(row: Mapping[object, object]) -> tuple[int, int]:
    ends = int(str(row["source_rank"])), int(str(row["target_rank"]))
    return min(ends), max(ends)


def _persistence(pair: tuple[int, int], case: Case) -> float:
    """The share of steps in which the link is slow by itself."""
    hits = sum(
        pair in {_pair(row) for row in _passing(links.slow_links(case.run, steps=[step]), case).to_dict("records")}
        for step in case.step_numbers[:MOST_STEPS]
    )
    return hits / max(1, len(case.step_numbers[:MOST_STEPS]))


MOST_STEPS = 5
"""Steps that are looked at one by one."""


def _finding(pair: tuple[int, int], share: float, table: pd.DataFrame, case: Case) -> Finding:
    rows = table[[_pair(row) == pair for row in table.to_dict("records")]]
    row = rows.iloc[0]
    loss = _loss(pair, float(row["slowness"]), case)
    cost_ns = _cost_ns(pair, float(row["slowness"]), loss, case)
    return Finding(
        rule=RULE.name,
        title=say(
            "Link {link} ({transport}) moves {bytes_per_s}, links like it {typical_bytes_per_s} in the median",
            link=f"{pair[0]}-{pair[1]}",
            transport=str(row["transport"]),
            bytes_per_s=float(row["bytes_per_s"]),
            typical_bytes_per_s=float(row["typical_bytes_per_s"]),
        ),
        subject={"links": (pair,)},
        evidence={
            "slowness_ratio": float(row["slowness"]),
            "own_share_ratio": float(row["link"]),
            "z": float(row["z"]),
            "bytes_per_s": float(row["bytes_per_s"]),
            "like_links_bytes_per_s": float(row["typical_bytes_per_s"]),
            "num_like_links": float(row["num_like"]),
            "slow_steps_share": share,
            "excess_transfer_ns": float(rows["excess_ns"].max()) / max(1, len(case.step_numbers)),
        },
        actions=fitting(case, ACTIONS),
        cost_ns=cost_ns,
        severity="medium" if cost_ns is None else work.severity_of(case, cost_ns),
        next=("13_communication",),
        part="communication",
        loss=loss,
    )


def _cost_ns(pair: tuple[int, int], slowness: float, loss: Loss | None, case: Case) -> int | None:
    """What a step wins if operations over the link were as fast as equal ones elsewhere, or, without such, as its like allow."""
    if not case.run.has("collectives"):
        return None
    if case.replay is None:
        return _shown_ns(pair, slowness, case)
    return None if loss is None else work.price(case, [loss])


def _loss(pair: tuple[int, int], slowness: float, case: Case) -> Loss | None:
    """What the operations over the link take longer; None where they cannot be replayed."""
    if not case.run.has("collectives") or case.replay is None:
        return None
    late = _late_ns(pair, slowness, case.members, case)
    nothing = pd.DataFrame({name: pd.Series(dtype="int64") for name in work.COLUMNS})
    faster = {int(str(number)): float(amount) for number, amount in late.items()}
    return work.loss(nothing, faster_ns=faster) if faster else None


def _late_ns(pair: tuple[int, int], slowness: float, rows: pd.DataFrame, case: Case) -> pd.Series:
    """By instance of `rows` that both ends of the link took part in, how much longer than equal operations elsewhere it took."""
    operations, kind = case.operations, ["operation", "group_size", "bytes"]
    known = operations["basis"].astype(str).isin(("arrival", "recorded")) & ~operations["instance"].isin(
        _through(pair, case.members)
    )
    typical = operations[known].groupby(kind, dropna=False, observed=True)["transfer_ns"].median()
    own = collectives.summed(rows[rows["instance"].isin(_through(pair, rows))])
    table = own.merge(typical.rename("typical_ns").reset_index(), on=kind, how="left")
    transfer = table["transfer_ns"].astype("Float64")
    like = (transfer / slowness).where((table["bytes"] >= links.MIN_BYTES).fillna(False), transfer)
    late = (transfer - table["typical_ns"].astype("Float64").fillna(like)).fillna(0.0).clip(lower=0.0)
    return pd.Series(late.to_numpy(dtype="float64"), index=table["instance"].to_numpy())


def _through(pair: tuple[int, int], rows: pd.DataFrame) -> set[int]:
    """The instances that both ends of a link took part in."""
    both = rows[rows["rank"].isin(pair)].groupby("instance")["rank"].nunique()
    return set(both.index[(both == 2).to_numpy()])


def _shown_ns(pair: tuple[int, int], slowness: float, case: Case) -> int | None:
    """The cost where not all ranks can be replayed: what is late in the operations of each group, as far as it is not hidden.

    Only the two ends of the link are read. A step of a pipeline takes one micro batch through all stages and the others through the
    slowest: a stage that computes less than another can be late by as much in all but one micro batch without a cost.
    """
    ends = replace(case.run, tables={"collectives": case.run.frame("collectives", ranks=pair)})
    clocks = clock.estimate(ends)
    rows = causal_graph(ends).members(clocks=clocks)
    rows = rows[rows["step"].isin(case.step_numbers).fillna(False).to_numpy(dtype=bool)]
    late = _late_ns(pair, slowness, rows, case)
    if late.empty:
        return None
    kernels = case.run.frame("kernels", ranks=pair, columns=["rank", "kind", "start_ns", "duration_ns"])
    kernels = kernels[(kernels["kind"] == "computing").to_numpy(dtype=bool) & kernels["start_ns"].notna().to_numpy()]
    kernels = kernels.assign(start_ns=clock.aligned(kernels, clocks)["start_ns"].fillna(kernels["start_ns"]))
    rows = rows.assign(late=rows["instance"].map(late)).dropna(subset=["late", "start_ns", "transfer_ns"])
    shown = [0.0]
    for rank, mine in rows.groupby("rank"):
        computing = _spans(kernels[kernels["rank"] == rank], "duration_ns")
        groups = mine.groupby(mine["group"].astype("object").fillna(""))
        shown.append(sum(_shown_of(group, computing) for _, group in groups))
    shown_ns = max(shown) / max(1, len(case.step_numbers))
    once_ns = shown_ns / (case.num_micro_batches or 1)
    return round(once_ns + max(0.0, shown_ns - _slack_ns(pair[0], case)) * (1 - once_ns / shown_ns)) if shown_ns else 0


def _slack_ns(rank: int, case: Case) -> float:
    """How much longer than the stage of a rank the stage that all others wait for computes in a step."""
    rows = case.steps.dropna(subset=["computing_ns"])
    of_stages = rows.groupby("stage")["computing_ns"].median().astype("float64")
    own = rows.loc[rows["rank"] == rank, "stage"]
    return float(of_stages.max() - of_stages[own.iloc[0]]) if len(own) else 0.0


def _shown_of(rows: pd.DataFrame, computing: Intervals) -> float:
    """What is late in operations of one group of a rank; no more than their transfers last while it computes nothing."""
    ends = rows["start_ns"].astype("int64") + rows["duration_ns"].astype("int64")
    moving = _spans(rows.assign(start_ns=ends - rows["transfer_ns"].astype("int64")), "transfer_ns")
    return min(float(rows["late"].sum()), float(moving.total_ns - overlap_ns(moving, computing)))


def _spans(rows: pd.DataFrame, length: str) -> Intervals:
    starts = rows["start_ns"].to_numpy(dtype=np.int64)
    return union(starts, starts + rows[length].to_numpy(dtype=np.int64))


RULE = Rule(
    name="slow-link",
    title="A link is slower than links like it",
    needs=frozenset({"steps"}),
    how_to_collect=COMMUNICATION_BY,
    thresholds=(LINK_RATIO, LINK_Z, LINK_PERSISTENCE, LINK_PEERS, EPISODE_SHARE),
    check=check,
    explains=frozenset({"bandwidth-low", "exposed-communication"}),
)
