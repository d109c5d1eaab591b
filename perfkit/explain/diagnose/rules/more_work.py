"""A step computes more than in an earlier run of the same job: it runs more kernels, or kernels of larger inputs.

What is measured: by rank and operator (and the shapes of its inputs, where both runs have mostly the same) how many kernels a
mean step runs in both runs. What it runs more of counts with what such a kernel takes, what it runs less of is taken off; it is a
finding where the step became longer and that is at least 2 % of it. What equal kernels take longer is `slow-operators`, and what
is computed again or converted by name is told by `recompute-cost` and `excess-casts`. Recordings that have less than four fifths
of their computing in common are of two jobs, and are not compared.

What to do: see whether it is meant (a larger batch, longer sequences, recomputation that is on), and which operators are new.
"""

from __future__ import annotations

import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.core.units import format_count
from perfkit.explain.diagnose import other_job, work
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import BASELINE_BY, KERNELS_BY
from perfkit.explain.diagnose.rule import Finding, Loss, Rule, Threshold, Verdict

MORE_SHARE = Threshold("more-work-share", 0.02, "share of the step", "chosen: repeats of one job run the same kernels within 1 %")
FEW_TOLD = 4


def check(case: Case) -> Verdict:
    """What the ranks compute more of than in the baseline."""
    if case.baseline is None:
        raise NotMeasuredError("an earlier run to compare with", how_to_collect=BASELINE_BY)
    before = Case(case.baseline, None, case.limits)
    shared = other_job.shared_share(case, before)
    if shared is None:
        raise NotMeasuredError("kernels of the earlier run", how_to_collect=KERNELS_BY)
    evidence = {"step_ns": float(case.step_ns or 0), "baseline_step_ns": float(before.step_ns or 0), "shared_share": shared}
    longer_ns = (case.step_ns or 0) - (before.step_ns or 0)
    if shared < other_job.LEAST_SHARED:
        return Verdict((), evidence)
    table = _compared(case, before)
    if table.empty:
        raise NotMeasuredError("kernels of the same ranks in the earlier run", how_to_collect=KERNELS_BY)
    more = table.groupby("rank")["more_ns"].sum().clip(lower=0.0)
    evidence["more_ns"] = float(more.max())
    least_ns = case.limit(MORE_SHARE) * (case.step_ns or 0)
    if longer_ns <= 0 or evidence["more_ns"] < least_ns:
        return Verdict((), evidence)
    ranks = tuple(sorted(int(str(rank)) for rank in more.index[(more >= least_ns).to_numpy(dtype=bool)]))
    names = table[table["rank"].isin(ranks)].groupby("op")["more_ns"].sum().sort_values(ascending=False, kind="stable")
    operators = tuple(str(name) for name in names.index[:FEW_TOLD])
    counts = {name: table.groupby("rank")[name].sum().loc[list(ranks)].mean() for name in ("count_now", "count_then")}
    loss = _loss(case, table, ranks)
    everywhere = len(ranks) == len(case.run.ranks)
    who = say("Every rank") if everywhere and len(ranks) > 1 else say("Rank {rank}", rank=str(ranks[0]))
    who = who if everywhere or len(ranks) == 1 else say("{count} ranks: each", count=len(ranks))
    finding = Finding(
        rule=RULE.name,
        title=say(
            "{who} computes up to {more_ns} of the mean step more than in the baseline: {now} kernels a step, {then} there, "
            "first of all {operator}",
            who=who,
            more_ns=evidence["more_ns"],
            now=format_count(round(counts["count_now"])),
            then=format_count(round(counts["count_then"])),
            operator=operators[0],
        ),
        subject={"ranks": ranks, "operators": operators},
        evidence={**evidence, "kernels_a_step": counts["count_now"], "baseline_kernels_a_step": counts["count_then"]},
        actions=(
            "compare batch, sequence length, recomputation and fused operators with the settings of the earlier run",
            "look on page 21 at which operators run more often than there",
        ),
        cost_ns=min(longer_ns, work.price(case, [loss])),
        next=("12_operators", "21_compare"),
        part="computing",
        loss=loss,
    )
    return Verdict((finding,), evidence)


def _compared(case: Case, before: Case) -> pd.DataFrame:
    """By rank and operator the kernels of a mean step: `count_now`, `count_then`, `more_ns`.

    Where both runs have mostly the same shapes of an operator, by these: kernels of other shapes are other work. Else by its name
    alone: where shapes are not recorded alike, or differ from step to step, they say nothing of how much work there is.
    """
    rows = [each.computing for each in (case, before)]
    shapes = [own["input_shapes"].astype("object").fillna("").astype(str) for own in rows]
    lengths = [own["duration_ns"].groupby([own["op"].astype(str), shape]).sum() for own, shape in zip(rows, shapes, strict=True)]
    shared = [_share_in(one, other) for one, other in (lengths, lengths[::-1])]
    alike = set(shared[0].index[shared[0] >= other_job.LEAST_SHARED]) & set(shared[1].index[shared[1] >= other_job.LEAST_SHARED])
    now, then = (
        _by_work(own.assign(op=own["op"].astype(str), shapes=shape.where(own["op"].astype(str).isin(alike), "")))
        for own, shape in zip(rows, shapes, strict=True)
    )
    both = now.add_suffix("_now").join(then.add_suffix("_then"), how="outer").fillna(0.0)
    both = both[both.index.get_level_values("rank").isin(set(case.detail_ranks) & set(before.detail_ranks))]
    each_ns = (both["ns_then"] / both["count_then"]).where(both["count_then"] > 0, both["ns_now"] / both["count_now"])
    return both.assign(more_ns=each_ns * (both["count_now"] - both["count_then"])).reset_index()


def _share_in(one: pd.Series, other: pd.Series) -> pd.Series:
    """By operator the share of the time of a run in shapes that the other run has, too."""
    common = one.where(one.index.isin(other.index), 0)
    return common.groupby(level=0).sum() / one.groupby(level=0).sum().clip(lower=1)


def _by_work(rows: pd.DataFrame) -> pd.DataFrame:
    """How many kernels of each operator and its shapes a mean step of a rank computes (`count`), and how long (`ns`)."""
    sums = rows.groupby(["rank", "op", "shapes"])["duration_ns"].agg(["size", "sum"]).astype("float64")
    steps = rows.groupby("rank")["step"].nunique().reindex(sums.index.get_level_values("rank")).to_numpy(dtype="float64")
    return sums.div(steps, axis=0).rename(columns={"size": "count", "sum": "ns"})


def _loss(case: Case, table: pd.DataFrame, ranks: tuple[int, ...]) -> Loss:
    """The kernels of which a step of these ranks runs more, each with its share of that, less what the step runs less of."""
    own = table[table["rank"].isin(ranks)]
    by_operator = own.groupby(["rank", "op"])[["more_ns", "ns_now"]].sum()
    gross = by_operator["more_ns"].clip(lower=0.0).groupby(level="rank").sum()
    net = own.groupby("rank")["more_ns"].sum().clip(lower=0.0)
    part = (by_operator["more_ns"].clip(lower=0.0) / by_operator["ns_now"].clip(lower=1.0)).clip(upper=1.0)
    share = (part * (net / gross.clip(lower=1.0)).reindex(part.index.get_level_values("rank")).to_numpy()).rename("share")
    rows = case.computing.assign(op=case.computing["op"].astype(str)).merge(share.reset_index(), on=["rank", "op"], how="inner")
    rows = rows[(rows["share"] > 0).to_numpy(dtype=bool)]
    return work.loss(rows, fraction=rows["share"])


RULE = Rule(
    name="more-work",
    title="More is computed than in the baseline",
    needs=frozenset({"steps", "kernels"}),
    how_to_collect=BASELINE_BY,
    thresholds=(MORE_SHARE,),
    check=check,
)
