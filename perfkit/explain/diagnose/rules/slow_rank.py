"""One rank computes longer than its peers, and all others wait for it.

What is compared: the computing time of a step between ranks of equal work, that is of one pipeline stage with the same operators in
the same numbers. Not the length of the step and not communication: waiting makes those equal, or the wrong way round. For stages
with fewer than three ranks, and for a whole stage that is slow, the mean times of equal operators are compared across stages.

How it is judged: the excess of a rank is the median over steps of its log ratio to its peers. It is held against the robust spread
between ranks, the noise from step to step, and the natural spread of healthy cards, whichever is largest; the bar rises with the
number of ranks, so that large healthy runs stay silent. Half or more of the peers slow at once moves the median: then the faster
half is the measure, and all ranks of a node are one finding. Of two ranks in all, the one whose equal operators take longer by a
tenth and more is named. Ranks that compute much longer in some steps than in their others,
with as many operators, are named with those steps, also without peers.

Who is never blamed: ranks that wait. A slow rank waits least in its collectives.

What to do: where the clock of the cores was recorded and that of the rank is lower than its peers', heat, a power limit or a
clock that was set is the cause; where none was recorded that is said. Else check clock, temperature, power limit and ECC errors
of the device and the load of its host; exchange it; if only some operators are slower, look at the inputs that the rank gets.

For comparison the classic rule (longest computing time more than 20 % over the mean of all ranks) is shown in the evidence; it sees
only large faults and takes stages of different load for slow ranks.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from perfkit.core import robust
from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose import excess as _excess
from perfkit.explain.diagnose import work
from perfkit.explain.diagnose.advice import HEALTH, Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import COMMUNICATION_BY
from perfkit.explain.diagnose.episodes import EPISODE_SHARE, Episode, episode_of, price_ns
from perfkit.explain.diagnose.excess import SLOW_RANK_EXCESS, SLOW_RANK_FLOOR, SLOW_RANK_PERSISTENCE, SLOW_RANK_STEP_Z, SLOW_RANK_Z
from perfkit.explain.diagnose.rule import Finding, Loss, Rule, Threshold, Verdict
from perfkit.explain.diagnose.thresholds import MEDIUM_SHARE
from perfkit.explain.frequency import working_mhz

CLASSIC_EXCESS = Threshold(
    "classic-excess", 1.2, "ratio to the mean of all ranks", "MindInsight's parallel proposer; shown, never used"
)

PAIR_EXCESS = Threshold(
    name="slow-rank-pair",
    value=0.1,
    unit="log ratio to the other of two ranks",
    origin="chosen: of two nobody says which is usual; healthy cards of the bundled clusters differ by up to 1.3 %",
)
CLOCK_LOWER = Threshold(
    "slow-rank-clock",
    0.02,
    "share of the peers' clock",
    "chosen: healthy cards of one cluster are clocked alike to some MHz of 1,800",
)
MOST_PEERS = 8
"""Ranks whose clock is read beside that of the named ones."""
SLOWER_CLOCK: Action = (
    "the cores are clocked lower than those of the peers: look for heat, a power limit or a clock that was set; "
    "exchange the device if it stays so"
)
NO_CLOCK: Action = {
    "ascend": "the clock of its cores was not recorded: level 1 or 2 records AI Core Freq, which tells heat or a power limit "
    "from other causes"
}
MOST_OPERATORS = 0.7
"""The share of the computing time whose operators must be slower for a rank to be."""
ACTIONS: tuple[Action, ...] = (
    HEALTH,
    "exchange the device or leave it out, and record again",
    "if only some operators are slower, look at the inputs of the rank (sequence lengths, expert load)",
)

EPISODE_ACTIONS: tuple[Action, ...] = (
    HEALTH,
    "look for other work on the device at those times: evaluation, saving, another job",
)
SAME_WORK = 0.02
"""Steps whose numbers of kernels differ by more have other work, and are no slower for it."""


def check(case: Case) -> Verdict:
    """Ranks, or whole nodes, that compute longer than ranks of equal work, or than they do in other steps."""
    alone = _in_some_steps(case)
    if (pair := _of_two(case, {rank for finding in alone for rank in finding.subject["ranks"]})) is not None:
        return replace(pair, findings=(*pair.findings, *alone))
    try:
        excess = _excess.of_ranks(case)
    except NotMeasuredError:
        if not alone:
            raise
        return Verdict(tuple(alone), {"num_steps": float(len(case.step_numbers))})
    told = {rank for finding in alone for rank in finding.subject["ranks"]}
    culprits = [one for one in excess.culprits if not (one.transient and told.issuperset(one.ranks))]
    found = [_finding(case, one, excess) for one in culprits] + alone
    evidence = {
        "largest_excess_ratio": float(excess.ranks["excess"].max()),
        "largest_z": float(excess.ranks["z"].max()),
        "z_needed": excess.z_needed,
        "num_ranks": len(excess.ranks),
        "num_steps": excess.num_steps,
    }
    return Verdict(tuple(found), evidence)


def _finding(case: Case, culprits: _excess.Culprits, excess: _excess.Excess) -> Finding:
    rows = excess.ranks.loc[list(culprits.ranks)]
    worst = float(rows["excess"].median())
    who = _named(culprits.ranks)
    loss = _loss(case, culprits, rows)
    cost_ns = _summed_ns(case, culprits, rows) if loss is None else work.price(case, [loss])
    clock, actions = _clock(case, culprits.ranks)
    return Finding(
        rule=RULE.name,
        title=say(
            "{who} {longer_ratio} longer than {peers}, in {count} of {num_steps} steps{node}",
            who=who,
            longer_ratio=math.expm1(worst),
            peers=culprits.peers,
            count=culprits.num_slow_steps,
            num_steps=excess.num_steps,
            node=": the whole node is slow" if culprits.node else "",
        ),
        subject={"ranks": culprits.ranks, **({"steps": culprits.steps} if culprits.transient else {})},
        evidence={
            "excess_ratio": worst,
            "longer_ratio": math.expm1(worst),
            "z": float(rows["z"].median()),
            "z_needed": excess.z_needed,
            "slow_steps_share": culprits.num_slow_steps / max(1, excess.num_steps),
            "excess_ns": float(rows["excess_ns"].max()),
            **_classic(case, culprits.ranks),
            **clock,
        },
        actions=fitting(case, actions),
        cost_ns=cost_ns,
        severity=work.severity_of(case, cost_ns),
        next=("jitter",) if culprits.transient else (),
        part="step",
        loss=loss,
    )


def _clock(case: Case, ranks: tuple[int, ...]) -> tuple[dict[str, float], tuple[Action, ...]]:
    """The clock of the named ranks over that of their peers, and what to do, by whether it is lower, alike or not recorded."""
    peers = [rank for rank in case.run.ranks if rank not in ranks][:MOST_PEERS]
    unknown = ACTIONS if case.run.kind == "simulated" else (*ACTIONS, NO_CLOCK)  # nobody can record what was never run
    try:
        clocks = working_mhz(case.run, [*ranks, *peers])
    except NotMeasuredError:
        return {}, unknown
    own, others = clocks.reindex(list(ranks)).dropna(), clocks.reindex(peers).dropna()
    if own.empty or others.empty:
        return {}, unknown
    ratio = float(own.median() / others.median())
    return {"clock_ratio_to_peers": ratio}, ((SLOWER_CLOCK, *ACTIONS) if ratio <= 1.0 - case.limit(CLOCK_LOWER) else ACTIONS)


def _of_two(case: Case, told: Collection[int]) -> Verdict | None:
    """Of two ranks the one whose equal operators take longer than those of the other; None if the kernels of two are not all."""
    if set(case.run.ranks) != case.known_ranks or len(case.known_ranks) != 2 or not case.run.has("kernels"):
        return None
    ratios = _excess.operator_ratios(case)
    apart = ratios.iloc[0] - ratios.iloc[1]
    excess, noise = float(apart.median()), robust.sigma(apart)
    slow, fast = (int(str(rank)) for rank in (ratios.index if excess > 0 else ratios.index[::-1]))
    each = _excess.equal_operators(case).groupby(["op", "rank"], observed=True)["duration_ns"]
    sums = each.agg(mean_ns="mean", total_ns="sum").unstack("rank")
    longer = (sums["mean_ns"][slow] > sums["mean_ns"][fast] * np.exp(abs(excess) / 2)).to_numpy(dtype=bool)
    share = float(sums["total_ns"][slow][longer].sum() / max(1.0, float(sums["total_ns"][slow].sum())))
    evidence = {
        "excess_ratio": abs(excess),
        "longer_ratio": math.expm1(abs(excess)),
        "noise_ratio": noise,
        "slower_operators_share": share,
        "num_ranks": 2.0,
    }
    least = max(case.limit(PAIR_EXCESS), case.limit(SLOW_RANK_Z) * noise / np.sqrt(max(1, len(apart))))
    if abs(excess) < least or share < MOST_OPERATORS or slow in told:
        return Verdict((), evidence)
    lost = work.loss(work.scaled_kernels(case, (slow,)), fraction=1.0 - float(np.exp(-abs(excess))))
    cost_ns = work.price(case, [lost])
    clock, actions = _clock(case, (slow,))
    evidence |= clock
    finding = Finding(
        rule=RULE.name,
        title=say(
            "Rank {slow} computes equal operators {longer_ratio} longer than rank {fast} in the median",
            slow=str(slow),
            fast=str(fast),
            **evidence,
        ),
        subject={"ranks": (slow,)},
        evidence=evidence,
        actions=fitting(case, actions),
        cost_ns=cost_ns,
        severity=work.severity_of(case, cost_ns),
        loss=lost,
    )
    return Verdict((finding,), evidence)


def _in_some_steps(case: Case) -> list[Finding]:
    """Ranks that compute much longer in some steps than in their others, with the same operators."""
    table = case.steps.dropna(subset=["computing_ns"]).pivot(index="rank", columns="step", values="computing_ns").astype("float64")
    least_ns = case.limit(EPISODE_SHARE) * (case.step_ns or 1)
    found = {int(rank): episode for rank in table.index if (episode := episode_of(table.loc[rank], least_ns)) is not None}
    # A rank that usually computes nothing is not slow where it does.
    found = {rank: episode for rank, episode in found.items() if episode.usual > 0 and _same_work(case, rank, episode)}
    findings = []
    for steps in sorted({episode.steps for episode in found.values()}):
        ranks = tuple(rank for rank, episode in found.items() if episode.steps == steps)
        inside = {rank: _mean_of(table, rank, steps) for rank in ranks}
        worst = max(ranks, key=lambda rank: inside[rank] / found[rank].usual)
        ratio = inside[worst] / found[worst].usual
        who = say("All ranks compute") if 1 < len(ranks) == len(table) else _named(ranks)
        evidence = {"ratio_to_other_steps": ratio, "longer_ratio": ratio - 1.0}
        evidence |= found[worst].evidence(table.T[worst], table.shape[1])
        gone = {rank: 1.0 - found[rank].usual / inside[rank] for rank in ranks}
        cost_ns = price_ns(case, steps, _episode_cost_ns(case, table, gone, steps), whole=case.moments is not None)
        if cost_ns < case.limit(MEDIUM_SHARE) * (case.step_ns or 1):
            continue
        findings.append(
            Finding(
                rule=RULE.name,
                title=say(
                    "{who} {longer_ratio} longer {when} than in the other steps",
                    who=who,
                    when=found[worst].told(table.shape[1]),
                    **evidence,
                ),
                subject={"ranks": ranks, "steps": steps},
                evidence=evidence,
                actions=fitting(case, EPISODE_ACTIONS),
                cost_ns=cost_ns,
                severity=work.severity_of(case, cost_ns),
                next=("14_timeline", "12_operators"),
            )
        )
    return findings


def _same_work(case: Case, rank: int, episode: Episode) -> bool:
    """Whether the rank runs as many kernels in the steps of an episode as in the others, where kernels are known."""
    if not case.run.has("kernels") or rank not in case.known_ranks:
        return True
    rows = case.computing[case.computing["rank"] == rank]
    counts = rows.groupby("step").size().astype("float64")
    inside = counts[counts.index.isin(episode.steps)]
    others = counts[~counts.index.isin(episode.steps)]
    return bool(len(inside)) and bool(len(others)) and abs(inside.mean() / others.mean() - 1.0) <= SAME_WORK


def _episode_cost_ns(case: Case, table: pd.DataFrame, gone: Mapping[int, float], steps: tuple[int, ...]) -> int:
    """What a step wins if ranks computed in some steps as long as in their others, a mean over all steps."""
    kernels = work.scaled_kernels(case, tuple(gone))
    if set(kernels["rank"]) != set(gone):
        share = len(steps) / table.shape[1]
        return work.less_busy_ns(case, {rank: share * part * _mean_of(table, rank, steps) for rank, part in gone.items()})
    inside = case.computing.loc[kernels.index, "step"].isin(steps)
    return work.won_ns(case, kernels, fraction=kernels["rank"].map(gone).astype("float64").where(inside, 0.0))


def _mean_of(table: pd.DataFrame, rank: int, steps: tuple[int, ...]) -> float:
    """The mean of a rank over some steps."""
    return float(table.T[rank].reindex(list(steps)).to_numpy(dtype=np.float64).mean())


def _named(ranks: tuple[int, ...]) -> str:
    return say("Ranks {ranks} compute" if len(ranks) > 1 else "Rank {ranks} computes", ranks=", ".join(map(str, ranks)))


def _summed_ns(case: Case, culprits: _excess.Culprits, rows: pd.DataFrame) -> int:
    """What a step wins if the named ranks computed as long as their peers, by the summaries."""
    share = len(culprits.steps) / max(1, len(case.step_numbers))
    less = {int(str(rank)): share * float(amount) for rank, amount in rows["excess_ns"].items()}
    return work.less_busy_ns(case, less)


def _loss(case: Case, culprits: _excess.Culprits, rows: pd.DataFrame) -> Loss | None:
    """What the named ranks compute longer than their peers; None unless the kernels of all of them were read."""
    kernels = work.scaled_kernels(case, culprits.ranks)
    if not set(kernels["rank"]).issuperset(culprits.ranks):
        return None
    gone: pd.Series = 1.0 - kernels["rank"].map(np.exp(-rows["excess"])).astype("float64")
    if culprits.transient:
        gone = gone.where(case.computing.loc[kernels.index, "step"].isin(culprits.steps), 0.0)
    return work.loss(kernels, fraction=gone)


def _classic(case: Case, ranks: tuple[int, ...]) -> dict[str, float]:
    """What the guides' rule would say: the ratio of the named ranks to the mean of all, and whether it names one of them."""
    means: pd.Series = case.steps.groupby("rank")["computing_ns"].mean().astype("float64")
    ratio = float(means.loc[list(ranks)].max() / means.mean())
    worst = means.index[int(means.to_numpy().argmax())]
    names = means.max() / means.mean() > case.limit(CLASSIC_EXCESS) and worst in ranks
    return {"classic_ratio_to_mean": ratio, "classic_rule_names_it": int(names)}


RULE = Rule(
    name="slow-rank",
    title="One rank holds up the others",
    needs=frozenset({"steps"}),
    how_to_collect=COMMUNICATION_BY,
    thresholds=(
        SLOW_RANK_Z,
        SLOW_RANK_STEP_Z,
        SLOW_RANK_PERSISTENCE,
        SLOW_RANK_EXCESS,
        SLOW_RANK_FLOOR,
        PAIR_EXCESS,
        CLASSIC_EXCESS,
        CLOCK_LOWER,
        EPISODE_SHARE,
    ),
    check=check,
    explains=frozenset({"jitter", "pipeline-bubble", "gradient-allreduce-tail"}),
)
