"""Experts of some ranks get more tokens than those of others, and all wait for them.

What is measured: the time of expert operators (grouped products and what names an expert) of every rank over the mean of its
stage, divided by the same ratio of all other operators. That way a slow rank, which is slow in everything, is no imbalance.

What to do: a stronger balancing loss or a bias of the router, a capacity factor, experts placed by their load.
"""

from __future__ import annotations

import re

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose import kernels, work
from perfkit.explain.diagnose.advice import Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import KERNELS_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict

EXPERT_LOAD = Threshold(
    "expert-load", 1.2, "expert time over the mean of the peers", "chosen: balancing losses keep 1.1, so twice that excess"
)

EXPERTS = re.compile(r"grouped_?_?(?:mat_?mul|gemm)|\bgmm|expert|moe", re.IGNORECASE)
ACTIONS: tuple[Action, ...] = (
    {
        "mindspore": "balance the router: a larger aux_loss_factor, or balance_via_topk_bias with topk_bias_update_rate: 0.001",
        "megatron": "balance the router: a larger --moe-aux-loss-coeff, or --moe-router-enable-expert-bias",
        "torch": "balance the router: a stronger auxiliary loss, or a bias by the load of the experts",
    },
    {
        "mindspore": "limit the tokens of an expert: capacity_factor of moe_config, 1.5 for example",
        "megatron": "limit the tokens of an expert: --moe-expert-capacity-factor, 1.5 for example",
        "torch": "limit tokens an expert with a capacity factor, or place busy experts on different ranks",
    },
)


def check(case: Case) -> Verdict:
    """Ranks whose experts work longer than those of their peers."""
    by_type, by_name = kernels.matching(case, EXPERTS), kernels.matching(case, EXPERTS, "name")
    rows = case.computing.loc[by_type.index.union(by_name.index)]
    if rows.empty or rows["rank"].nunique() < 2:
        raise NotMeasuredError("operators of experts of at least two ranks", how_to_collect=KERNELS_BY)
    stages = {int(row["rank"]): int(row["stage"]) for row in case.steps.drop_duplicates("rank").to_dict("records")}
    own = rows.groupby("rank")["duration_ns"].sum().astype("float64")
    rest = case.computing.drop(index=rows.index).groupby("rank")["duration_ns"].sum().astype("float64").reindex(own.index)
    if rest.isna().any():
        raise NotMeasuredError("operators besides those of experts, to tell slow ranks apart", how_to_collect=KERNELS_BY)
    stage = own.index.map(stages)
    load = own / own.groupby(stage).transform("mean") / (rest / rest.groupby(stage).transform("median"))
    evidence = {
        "largest_expert_load_over_mean": float(load.max()),
        "expert_share_of_step": kernels.share_of_step(case, rows),
        "num_ranks": float(len(load)),
    }
    busy = load[load >= case.limit(EXPERT_LOAD)]
    if busy.empty:
        return Verdict((), evidence)
    mine = rows[rows["rank"].isin(busy.index)]
    gone = (1.0 - 1.0 / mine["rank"].map(busy)).astype("float64")
    a_step = (own * (1.0 - 1.0 / load)).loc[busy.index] / case.num_kernel_steps
    # The replay finds far too little on simulated experts; what the busiest rank is busy for less is the least that is won.
    own_ns = work.less_busy_ns(case, {int(str(rank)): float(less) for rank, less in a_step.items()})
    finding = Finding(
        rule=RULE.name,
        title=say(
            "Experts of {count} of {num_ranks} ranks work up to {largest_expert_load_over_mean} x as long as their mean",
            count=len(busy),
            **evidence,
        ),
        subject={"ranks": tuple(int(str(rank)) for rank in busy.index), "operators": kernels.largest(rows)},
        evidence=evidence,
        actions=fitting(case, ACTIONS),
        cost_ns=max(own_ns, work.won_ns(case, mine, fraction=gone)),
        next=("17_cluster",),
    )
    return Verdict((finding,), evidence)


RULE = Rule(
    name="moe-imbalance",
    title="Experts with unequal load",
    needs=frozenset({"steps", "kernels"}),
    how_to_collect=KERNELS_BY,
    thresholds=(EXPERT_LOAD,),
    check=check,
    explains=frozenset({"slow-rank", "jitter"}),
)
