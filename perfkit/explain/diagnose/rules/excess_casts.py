"""Kernels that only change the type or layout of data take a noticeable part of the step.

What is measured: casts, conversions of format (TransData, NCHW to NHWC), TensorMove and copies that convert, as a share of the
step; how much of it is types and how much formats; and how many of them follow one another directly (there and back, which is never
needed). Casts around norms and losses are needed; below 1 % of computing nothing is said.

What to do: keep one type and one layout from operator to operator (channels_last for convolutions), use operators that take the
type at hand and in-place forms, and set the private format for weights once.
"""

from __future__ import annotations

from perfkit.core.texts import say
from perfkit.explain.diagnose import kernels
from perfkit.explain.diagnose.advice import Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import KERNELS_BY
from perfkit.explain.diagnose.rule import Rule, Threshold, Verdict

CASTS_SHARE = Threshold(
    name="casts-share",
    value=0.01,
    unit="share of computing",
    origin="chosen: healthy bundled recordings convert for up to 0.8 % of the step, others for 1.1 % and more",
)

ACTIONS: tuple[Action, ...] = (
    {
        "mindspore": "keep one data type: param_init_type, compute_dtype and layernorm_compute_type of the model alike",
        "megatron": "keep one data type from operator to operator: --bf16, and no conversions in layers of one's own",
        "torch_npu": "keep one data type and one layout: weights in bf16, torch.npu.config.allow_internal_format = False",
        "torch": "keep one data type: weights in bf16, in place of casts of autocast in every step",
    },
    "use operators that take the type at hand, and in-place forms",
    "look at the producers of the largest ones in the timeline",
)


def check(case: Case) -> Verdict:
    """The time of conversions."""
    rows = kernels.matching(case, kernels.CONVERSIONS)
    share = kernels.share_of_step(case, rows)
    computing = case.computing
    of_computing = float(rows["duration_ns"].sum() / computing["duration_ns"].sum())
    is_cast = computing.index.isin(rows.index)
    same = (computing["rank"] == computing["rank"].shift()) & (computing["step"] == computing["step"].shift())
    in_row = float((is_cast & computing.index.isin(rows.index + 1) & same).sum()) / max(1, len(rows))
    per_step = len(rows) / max(1, len(case.detail_ranks)) / case.num_kernel_steps
    evidence = {
        "casts_share": share,
        "casts_share_of_computing": of_computing,
        "casts_a_rank_and_step": per_step,
        "casts_in_a_row_share": in_row,
        "formats_share": kernels.share_of_step(case, kernels.matching(case, kernels.FORMATS)),
    }
    if of_computing < case.limit(CASTS_SHARE):
        return Verdict((), evidence)
    finding = kernels.finding(
        case,
        rows,
        rule=RULE.name,
        title=say(
            "Conversions of type and layout, {casts_a_rank_and_step} a rank and step: {names}",
            names=kernels.told(kernels.largest(rows)),
            **evidence,
        ),
        evidence=evidence,
        actions=fitting(case, ACTIONS),
    )
    return Verdict((finding,), evidence)


RULE = Rule(
    name="excess-casts",
    title="Conversions of type and layout",
    needs=frozenset({"steps", "kernels"}),
    how_to_collect=KERNELS_BY,
    thresholds=(CASTS_SHARE,),
    check=check,
    explains=frozenset({"more-work"}),
)
