"""Excess: how much longer a rank takes than ranks of equal work, and whether that is more than noise.

This is the one definition of a slow rank: the rule `slow-rank` judges computing time by it, and pages whatever they compare.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core import robust
from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import COMMUNICATION_BY
from perfkit.explain.diagnose.rule import Threshold

SLOW_RANK_Z = Threshold(
    "slow-rank-z", 3.5, "robust standard deviations", "Iglewicz and Hoaglin (1993): outliers by MAD from 3.5 on"
)
SLOW_RANK_STEP_Z = Threshold(
    name="slow-rank-step-z",
    value=2.0,
    unit="robust standard deviations",
    origin="chosen: normal scatter passes it in 1 of 44 steps, and seven of ten are needed",
)
SLOW_RANK_PERSISTENCE = Threshold(
    name="slow-rank-persistence",
    value=0.7,
    unit="share of the steps",
    origin="chosen: a rank that is slow by chance half of the time has 7 of 10 slow steps in 17 % of runs, 14 of 20 in 6 %",
)
SLOW_RANK_EXCESS = Threshold(
    "slow-rank-excess", 0.02, "log ratio to the peers", "chosen: healthy ranks of the bundled clusters differ by up to 1.3 %"
)
SLOW_RANK_FLOOR = Threshold(
    name="slow-rank-floor",
    value=0.005,
    unit="log ratio to the peers",
    origin="chosen: the natural spread of healthy cards is 0.3 %; with few peers a MAD may be next to nothing",
)

MEDIAN_TO_MEAN = 1.2533
"""The standard error of a median over that of a mean, for normal noise."""
FALSE_ALARMS = 0.001
"""Healthy runs with normal spread in which any rank may pass the bar."""
MIN_PEERS = 3
"""The median of two lies between them and says of neither that it is the slow one."""
MOST_EQUAL = 0.5
"""The share of the computing time that operators of equal shapes must hold to stand for all."""
RUN_OF_STEPS = 3
"""Steps on end: one in 44 passes the bar by chance, so three on end are one in 85,000."""
NODE_SIZE = 8
"""Devices of a node where the run says nothing, as in nearly all of the catalogue."""
QUARTER = 0.25
"""Fewer of the ranks of a role do not move its median: then every rank is compared with that alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Culprits:
    """Ranks that are slow for one reason: one rank, or all of a node."""

    ranks: tuple[int, ...]
    peers: str
    num_slow_steps: int
    steps: tuple[int, ...]
    node: bool = False
    transient: bool = False


@dataclass(frozen=True, slots=True)
class Excess:
    """By rank: `excess` (median log ratio to its peers), `excess_ns`, `z`, `slow_steps`; and the `culprits` that pass all limits.

    `excess_ns` is the time beyond the peers in a slow step: in any step, for who is slow in all.

    `scale` is the standard deviation (log ratio) that `z` counts in, `least` the smallest excess that counts.
    """

    ranks: pd.DataFrame
    culprits: tuple[Culprits, ...]
    scale: float
    z_needed: float
    least: float
    num_steps: int

    @property
    def band(self) -> float:
        """The log ratio to its peers from which a rank is slow if it lasts."""
        return max(self.least, self.z_needed * self.scale)

    @property
    def slow_ranks(self) -> tuple[int, ...]:
        """The ranks of all culprits, ascending."""
        return tuple(sorted(rank for culprits in self.culprits for rank in culprits.ranks))


def of_ranks(case: Case) -> Excess:
    """The excess in computing of every rank that has peers. Raises NotMeasuredError where none has."""
    table = _table(case.steps, "computing_ns")
    return _judged(table, *_log_ratios(table, case, by_operator=True), case)


def of_values(values: pd.DataFrame, case: Case) -> Excess:
    """The excess in anything else, from rows `rank`, `step` and `value_ns`. Raises NotMeasuredError as `of_ranks` does."""
    table = _table(values, "value_ns")
    return _judged(table, *_log_ratios(table, case, by_operator=False), case)


def _judged(table: pd.DataFrame, ratios: pd.DataFrame, of_slow_nodes: tuple[int, ...], case: Case) -> Excess:
    excess = ratios.median(axis=1)
    steps = ratios.shape[1]
    others = excess[~excess.index.isin(of_slow_nodes)]
    distances = (ratios.to_numpy() - excess.to_numpy()[:, None]).ravel()
    noise = robust.sigma(distances[~np.isnan(distances)], middle=0.0)
    between = robust.sigma(others) * len(others) / max(1.0, len(others) - 0.8)
    scale = max(case.limit(SLOW_RANK_FLOOR), between, MEDIAN_TO_MEAN * noise / math.sqrt(steps))
    z_needed = max(case.limit(SLOW_RANK_Z), NormalDist().inv_cdf(1 - FALSE_ALARMS / len(excess)))
    step_scale = math.hypot(scale, noise)
    slow = ratios >= case.limit(SLOW_RANK_STEP_Z) * step_scale
    rows = pd.DataFrame({"excess": excess, "z": excess / scale, "slow_steps": slow.sum(axis=1)})
    rows["excess_ns"] = table.mean(axis=1).reindex(rows.index) * -np.expm1(-rows["excess"])
    known = ratios.notna().sum(axis=1)  # a recording may be cut short, but one step shows no habit
    wanted = case.limit(SLOW_RANK_PERSISTENCE) * known.where(known >= RUN_OF_STEPS, steps)
    persistent = rows[(rows["z"] >= z_needed) & (rows["excess"] >= case.limit(SLOW_RANK_EXCESS)) & (rows["slow_steps"] >= wanted)]
    culprits = _together(persistent, rows, case)
    culprits += _transient(
        rows, ratios.drop(index=persistent.index), table, max(z_needed * step_scale, 2 * case.limit(SLOW_RANK_EXCESS))
    )
    return Excess(rows, tuple(culprits), scale, z_needed, case.limit(SLOW_RANK_EXCESS), steps)


def _table(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """A column of ns by rank and step; values of 0 are left out, for which no ratio can be told."""
    known = rows[(rows[column] > 0).fillna(False).to_numpy(dtype=bool)]
    if known["rank"].nunique() < MIN_PEERS:
        raise NotMeasuredError(
            say(
                "peers: computing time is known of {count} rank(s), and {wanted} of equal work are needed",
                count=known["rank"].nunique(),
                wanted=MIN_PEERS,
            ),
            how_to_collect=COMMUNICATION_BY,
        )
    return known.pivot(index="rank", columns="step", values=column).astype("float64")


def _log_ratios(table: pd.DataFrame, case: Case, *, by_operator: bool) -> tuple[pd.DataFrame, tuple[int, ...]]:
    """The log ratio of each rank and step to ranks of equal work, by equal operators for roles that have too few ranks.

    With them the ranks of whole nodes that are slower than the others.
    """
    roles = pd.Series({rank: case.roles.get(int(rank), -1) for rank in table.index})
    sizes = roles.map(roles.value_counts())
    logs = np.log(table)
    several = [logs[(roles == role).to_numpy()] for role in sorted(set(roles[sizes >= MIN_PEERS]))]
    slow = [_slow_nodes(rows.median(axis=1), case, least_share=QUARTER) for rows in several]
    pieces = [rows - rows.loc[~rows.index.isin(left)].median(axis=0) for rows, left in zip(several, slow, strict=True)]
    of_slow_nodes = tuple(rank for ranks in slow for rank in ranks)
    lonely = tuple(int(rank) for rank in sizes.index[sizes < MIN_PEERS])
    if by_operator and case.run.has("kernels") and (lonely or _on_one_node(several, case)):
        equal, far = _across_roles(case)
        pieces = [rows + equal.loc[rows.index].median(axis=0) if set(rows.index) <= set(far) else rows for rows in pieces]
        pieces.append(equal.loc[equal.index.isin(lonely)])
        of_slow_nodes += tuple(rank for rank in far if rank not in of_slow_nodes)
    if not pieces:
        raise NotMeasuredError(
            say("peers: no pipeline stage has {wanted} ranks of equal work, and no kernels to compare stages by", wanted=MIN_PEERS),
            how_to_collect=COMMUNICATION_BY,
        )
    return pd.concat(pieces).sort_index(), of_slow_nodes


def _on_one_node(several: list[pd.DataFrame], case: Case) -> bool:
    """Whether a role has all of its ranks on one node of several: then a slow node can only be seen beside other roles."""
    nodes = [{node_of(int(rank), case) for rank in rows.index} for rows in several]
    return len(set().union(*nodes)) > 1 and any(len(mine) == 1 for mine in nodes)


def _across_roles(case: Case) -> tuple[pd.DataFrame, tuple[int, ...]]:
    """The log ratios of equal operators to those of all ranks on nodes that are not slow, and the ranks of slow nodes."""
    by_operator = operator_ratios(case)
    far = _slow_nodes(by_operator.median(axis=1), case, least_share=0.0)
    return by_operator - by_operator.loc[~by_operator.index.isin(far)].median(axis=0), far


def _slow_nodes(middle: pd.Series, case: Case, *, least_share: float) -> tuple[int, ...]:
    """Ranks of nodes that are all slower than every rank of the other nodes, if those are at least that share of the ranks."""
    nodes = pd.Series({rank: node_of(int(rank), case) for rank in middle.index})
    if nodes.nunique() < 2:
        return ()
    ordered = middle.groupby(nodes).median().sort_values()
    jumps = ordered.diff().fillna(0.0)
    if jumps.max() < case.limit(SLOW_RANK_EXCESS):
        return ()
    above = ordered.index[ordered.to_numpy() >= ordered.iloc[int(jumps.to_numpy().argmax())]]
    slow, fast = middle[nodes.isin(above)], middle[~nodes.isin(above)]
    if len(slow) < least_share * len(middle) or slow.min() <= fast.max():
        return ()
    return tuple(int(rank) for rank in slow.index)


def node_of(rank: int, case: Case) -> int:
    """The node of a rank; where the run does not say, nodes of eight devices in the order of the ranks are assumed."""
    return case.nodes.get(rank, rank // NODE_SIZE)


def equal_operators(case: Case) -> pd.DataFrame:
    """The kernels of operators that all ranks run, as `rank`, `step`, `op`, `duration_ns`.

    Where shapes were recorded and those that all ranks have hold most of the time, an operator is one of a shape: the head of a
    model has the same operators as its layers, and larger ones.
    """
    columns = ["rank", "step", "op", "duration_ns"]
    rows = case.computing
    if rows["input_shapes"].notna().any():
        of_shape = rows.groupby(["op", "input_shapes"], observed=True, dropna=False).ngroup()
        shaped = _of_all_ranks(rows[columns].assign(op=of_shape))
        if shaped["duration_ns"].sum() >= MOST_EQUAL * rows["duration_ns"].sum():
            return shaped
    return _of_all_ranks(rows[columns])


def _of_all_ranks(rows: pd.DataFrame) -> pd.DataFrame:
    known: pd.DataFrame = rows[rows.groupby("op", observed=True)["rank"].transform("nunique") == rows["rank"].nunique()]
    return known


def operator_ratios(case: Case) -> pd.DataFrame:
    """By rank and step the weighted median, over operators that all ranks run, of the log ratio of their mean times.

    Weights are square roots of times: an operator of which the head of the model runs more, or larger ones, decides nothing alone.
    """
    rows = equal_operators(case)
    means = rows.groupby(["rank", "step", "op"], observed=True)["duration_ns"].agg(["mean", "sum"]).reset_index()
    logs = np.log(means["mean"].clip(lower=1.0))
    typical = logs.groupby([means["step"], means["op"]], observed=True).transform("median")
    weights = np.sqrt(means.groupby("op", observed=True)["sum"].transform("mean"))
    means = means.assign(ratio=logs - typical, weight=weights).sort_values("ratio", kind="stable")
    cumulated = means.groupby(["rank", "step"])["weight"].cumsum()
    whole = means.groupby(["rank", "step"])["weight"].transform("sum")
    middle = means[cumulated >= whole / 2].drop_duplicates(["rank", "step"])
    return middle.pivot(index="rank", columns="step", values="ratio").sort_index()


def _together(persistent: pd.DataFrame, rows: pd.DataFrame, case: Case) -> list[Culprits]:
    """Slow ranks one by one, or as a node where most ranks of it are slow and the node has others than it in the run."""
    nodes = pd.Series({rank: node_of(int(rank), case) for rank in rows.index})
    num_nodes = nodes.nunique()
    culprits, left = [], list(persistent.index)
    for node in sorted(set(nodes)):
        members = nodes.index[nodes == node]
        mine = [rank for rank in members if rank in persistent.index]
        if num_nodes > 1 and len(members) > 1 and len(mine) == len(members):
            slow_steps = int(persistent.loc[mine, "slow_steps"].median())
            culprits.append(
                _culprits(mine, say("the other nodes (node {node} as a whole)", node=str(node)), slow_steps, case, node=True)
            )
            left = [rank for rank in left if rank not in mine]
    peers = "ranks of equal work"
    return culprits + [_culprits([rank], peers, round(float(persistent["slow_steps"].loc[rank])), case) for rank in left]


def _culprits(ranks: Iterable[int], peers: str, slow_steps: int, case: Case, *, node: bool = False) -> Culprits:
    named = tuple(sorted(int(rank) for rank in ranks))
    return Culprits(ranks=named, peers=peers, num_slow_steps=slow_steps, steps=case.step_numbers, node=node)


def _transient(rows: pd.DataFrame, ratios: pd.DataFrame, table: pd.DataFrame, bar: float) -> list[Culprits]:
    """Ranks that are slow in at least three steps in a row, far beyond the noise; `rows` then holds their excess in those."""
    found = []
    for rank in ratios.index:
        high = (ratios.loc[rank] >= bar).to_numpy()
        length, end = _longest_run(high)
        if length >= RUN_OF_STEPS:
            steps = tuple(int(step) for step in ratios.columns[end - length : end])
            excess = float(ratios.loc[rank, list(steps)].median())
            rows.loc[rank, ["excess", "excess_ns"]] = [excess, -math.expm1(-excess) * float(table.loc[rank, list(steps)].mean())]
            found.append(
                Culprits(ranks=(int(rank),), peers="ranks of equal work", num_slow_steps=length, steps=steps, transient=True)
            )
    return found


def _longest_run(flags: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """Length and end of the longest run of true values."""
    best = length = end = 0
    for at, flag in enumerate(flags, start=1):
        length = length + 1 if flag else 0
        if length > best:
            best, end = length, at
    return best, end
