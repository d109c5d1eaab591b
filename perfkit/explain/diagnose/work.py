"""Work: how long every rank is busy in a step, and what a step would win if some time of some ranks were gone.

Where launches were recorded, hosts and devices are timed anew without that time (`_moments`). Else, where the collectives of all
ranks and their clocks are known, those are replayed (`_replay`). Else a step is taken to be as long as its busiest rank: busy is
the step without waiting for others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from perfkit.explain.diagnose._moments_order import once
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.rule import Loss, Severity
from perfkit.explain.diagnose.thresholds import HIGH_SHARE, MEDIUM_SHARE
from perfkit.explain.stragglers import NO_STAGE

COLUMNS = ["rank", "start_ns", "duration_ns"]
EMPTY = pd.DataFrame({name: pd.Series(dtype="int64") for name in COLUMNS}).assign(fraction=1.0)


def won_ns(
    case: Case,
    removed: pd.DataFrame,
    *,
    fraction: float | pd.Series = 1.0,
    faster_ns: Mapping[int, float] | None = None,
    alone: bool = False,
) -> int:
    """What a step wins, as a mean over steps, without a `fraction` of some time of ranks, or with faster collectives.

    `removed` has `rank`, `start_ns` on the clock of the rank and `duration_ns`; `faster_ns` is by instance of `case.members`.
    """
    return price(case, [loss(removed, fraction=fraction, faster_ns=faster_ns, alone=alone)])


def loss(
    removed: pd.DataFrame,
    *,
    fraction: float | pd.Series = 1.0,
    faster_ns: Mapping[int, float] | None = None,
    stops: bool = False,
    waits: pd.DataFrame | None = None,
    alone: bool = False,
) -> Loss:
    """A `fraction` of some time of ranks, and what collectives would be faster by, as what a cause costs; see `Loss`."""
    return Loss(removed[COLUMNS].assign(fraction=fraction), faster_ns or {}, stops, waits, alone)


def _apart(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows without what an earlier one of their rank covers; those that are covered whole are left out.

    A moment that several rows of a rank share is that of the first that began: two streams at work pass no time twice.
    """
    ordered = rows.sort_values(["rank", "start_ns"], kind="stable")
    starts = ordered["start_ns"].to_numpy(dtype=np.int64)
    ends = starts + ordered["duration_ns"].to_numpy(dtype=np.int64)
    covered = pd.Series(ends).groupby(ordered["rank"].to_numpy()).cummax()
    before = covered.groupby(ordered["rank"].to_numpy()).shift(fill_value=np.iinfo(np.int64).min).to_numpy(dtype=np.int64)
    if not (before > starts).any():
        return rows
    begins = np.maximum(starts, before)
    cut: pd.DataFrame = ordered.assign(start_ns=begins, duration_ns=ends - begins)[begins < ends]
    return cut


def price(case: Case, losses: Sequence[Loss]) -> int:
    """What a step wins, as a mean over steps, without all of these losses; what two of them name is gone once."""
    num_steps = case.num_kernel_steps
    faster_ns: dict[int, float] = {}
    for each in losses:
        for instance, amount in each.faster_ns.items():
            faster_ns[instance] = max(faster_ns.get(instance, 0.0), amount)
    # Where ranks meet, a host recorded launching just in time would seem to hold up all others once a stop is gone: stops are told
    # by collectives there. Shorter kernels of a step that waits for its host are not: hosts tell that it wins nothing by them.
    waits_or_works = any(each.waits is not None for each in losses) or not any(each.stops for each in losses)
    told = case.replay is None or waits_or_works
    if told and case.moments is not None and not all(each.alone for each in losses):
        removed, stops = (_joined([each.removed for each in losses if each.stops == stops]) for stops in (False, True))
        waits = [each.waits for each in losses if each.waits is not None]
        return max(0, round(case.moments.won_ns(removed, stops, faster_ns, waits) / num_steps))
    rows = _apart(losses[0].removed) if len(losses) == 1 else once(pd.concat([_apart(each.removed) for each in losses]))
    replay = case.replay
    if replay is None or (not len(replay.rank)):
        amounts = rows["duration_ns"].astype("float64") * rows["fraction"] / num_steps
        lost = amounts.groupby(rows["rank"]).sum()
        head_ns, leads = _leads_ns(case, rows, amounts)
        rest = lost - leads.reindex(lost.index).fillna(0.0).clip(upper=head_ns)
        once_ns = min(_at_once_ns(case, rows) / num_steps, rest.min()) if head_ns == 0 else 0.0
        return round(head_ns + once_ns) + less_busy_ns(case, {int(str(rank)): amount - once_ns for rank, amount in rest.items()})
    return max(0, round(replay.won_ns(rows.assign(start_ns=case.common_ns(rows)), faster_ns) / num_steps))


def _leads_ns(case: Case, rows: pd.DataFrame, amounts: pd.Series) -> tuple[float, pd.Series]:
    """What the first stage of a pipeline loses before its first kernel, and what each rank does; 0 and nothing without stages.

    All micro batches wait for it, but once: it is no part of the pace of the stage. What others wait meanwhile passes with it.
    """
    if _paced_by(case) is None or not case.run.has("kernels") or rows.empty:
        return 0.0, amounts.iloc[:0]
    ends = pd.MultiIndex.from_arrays([rows["rank"], rows["start_ns"] + rows["duration_ns"]])
    firsts = case.kernels.groupby(["rank", "step"])["start_ns"].min().reset_index()
    leads = amounts[ends.isin(pd.MultiIndex.from_frame(firsts[["rank", "start_ns"]]))]
    by_rank = leads.groupby(rows["rank"].loc[leads.index]).sum()
    stage = case.steps.drop_duplicates("rank").set_index("rank")["stage"].reindex(by_rank.index)
    of_first = by_rank[(stage == case.steps["stage"].min()).to_numpy(dtype=bool)]
    return float(of_first.max()) if len(of_first) else 0.0, by_rank


def _at_once_ns(case: Case, rows: pd.DataFrame) -> float:
    """What all ranks of a pipeline lose at the same moments: a step loses it once, however many stages stand still then.

    0 without stages, where a step is as long as its busiest rank, and of times that are lost in part.
    """
    ranks = rows["rank"].unique()
    if _paced_by(case) is None or len(ranks) < len(case.run.ranks) or not (rows["fraction"] == 1.0).all():
        return 0.0
    begin = case.common_ns(rows)
    moments = np.concatenate([begin, begin + rows["duration_ns"].to_numpy(dtype=np.int64)])
    order = np.argsort(moments, kind="stable")
    still = np.cumsum(np.repeat([1, -1], len(begin))[order])  # rows of a rank do not overlap
    return float(np.diff(moments[order])[still[:-1] == len(ranks)].sum())


def _joined(rows: Sequence[pd.DataFrame]) -> pd.DataFrame:
    return rows[0] if len(rows) == 1 else pd.concat([EMPTY, *rows], ignore_index=True)


def severity_of(case: Case, cost_ns: int | None) -> Severity:
    """The severity of a finding that is told whatever it costs."""
    share = (cost_ns or 0) / (case.step_ns or 1)
    return "high" if share >= case.limit(HIGH_SHARE) else "medium" if share >= case.limit(MEDIUM_SHARE) else "low"


def less_busy_ns(case: Case, less_ns: Mapping[int, float]) -> int:
    """What a step wins if ranks are busy for less: the difference of the busiest rank before and after.

    In a pipeline one micro batch passes every stage, the others follow at the pace of the slowest: there a stage that is not the
    slowest one counts with its part of one micro batch (the ideal step of 1F1B, (m - 1) max + sum over stages, each over m).
    Ranks that were not looked at are taken to be busy for as much less as all that were, of those with equal work: the least of it.
    """
    busy = _busy_ns(case)
    after = busy - pd.Series(_for_all(case, less_ns), dtype="float64").reindex(busy.index).fillna(0.0)
    return max(0, round(_paced_ns(case, busy) - _paced_ns(case, after.clip(lower=0.0)))) if len(busy) else 0


def _paced_ns(case: Case, busy: pd.Series[float]) -> float:
    """How long a step of ranks that are busy for so long is at the least."""
    micro_batches = _paced_by(case)
    if micro_batches is None:
        return float(busy.max())
    stages = case.steps.drop_duplicates("rank").set_index("rank")["stage"].reindex(busy.index)
    longest = busy.groupby(stages).max()
    return float(((micro_batches - 1) * longest.max() + longest.sum()) / micro_batches)


def _paced_by(case: Case) -> int | None:
    """How many micro batches pass the stages of a step; None where that, or the stages, are not known."""
    stages = case.steps["stage"]
    known = stages.nunique() > 1 and not (stages == NO_STAGE).any() and case.run.has("collectives")
    return case.num_micro_batches if known else None


def _for_all(case: Case, less_ns: Mapping[int, float]) -> dict[int, float]:
    known = case.known_ranks | less_ns.keys() if case.run.has("kernels") else frozenset(case.run.ranks)
    unknown = [rank for rank in case.run.ranks if rank not in known]
    if not unknown:
        return dict(less_ns)
    least: dict[int, float] = {}
    for rank in known:
        role = case.roles.get(rank, 0)
        least[role] = min(least.get(role, np.inf), less_ns.get(rank, 0.0))
    return {**less_ns, **{rank: least.get(case.roles.get(rank, 0), 0.0) for rank in unknown}}


def scaled_kernels(case: Case, ranks: tuple[int, ...]) -> pd.DataFrame:
    """The computing kernels of some ranks, as `won_ns` takes them; empty where they were not looked at."""
    if not case.run.has("kernels") or case.kernels.empty:
        return pd.DataFrame({name: pd.Series(dtype="int64") for name in COLUMNS})
    rows = case.computing
    return rows.loc[rows["rank"].isin(ranks), COLUMNS]


def _busy_ns(case: Case) -> pd.Series:
    """The mean time a step that each rank surely does not wait: computing and idling; without those its length."""
    steps = case.steps
    alone = (steps["computing_ns"].astype("Float64") + steps["free_ns"].astype("Float64").fillna(0)).fillna(
        steps["duration_ns"].astype("Float64")
    )
    means: pd.Series = pd.Series(alone.to_numpy(dtype=np.float64)).groupby(steps["rank"].to_numpy()).mean()
    return means
