"""Kernels that follow one another could be one fused kernel, which reads and writes memory once.

What is measured: chains in the order of the kernels that are an unfused SwiGLU, RMS or layer norm, rotary embedding, or an
attention made of products and softmax. The cost is the memory traffic that one kernel would save, as a share of the time of the
chain: 2/5 for SiLU and product, 5/7 and 9/11 for the norms, 8/10 for rotary embedding, all between both products of an attention.
Casts in a chain are left to `excess-casts`, and times between kernels to `host-bound`. Where a fused kernel runs is no chain.

What to do: the fused operator, or a compiler that makes one (graph kernel fusion with jit_level O1, torch.compile); compare losses
afterwards.
"""

from __future__ import annotations

from perfkit.core.texts import joined, say
from perfkit.explain.diagnose import chains, kernels
from perfkit.explain.diagnose.advice import Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import KERNELS_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict

FUSION_SHARE = Threshold(
    name="fusion-share",
    value=0.01,
    unit="share of the step",
    origin="chosen: what one kernel for each chain would win must be more than repeats differ by",
)

COMPILER: Action = {
    "mindspore": "or let the compiler fuse: jit_level: O1",
    "torch": "or let a compiler fuse: torch.compile",
}


def check(case: Case) -> Verdict:
    """The chains that could be one kernel, and what that would win."""
    rows = chains.chains(case)
    steps = case.num_kernel_steps
    saved = rows["duration_ns"] * rows["saved"]
    by_rank = saved.groupby(rows["rank"]).sum() / steps
    share = float(by_rank.max()) / (case.step_ns or 1) if len(by_rank) else 0.0
    per_rank = max(1, rows["rank"].nunique()) * steps
    counts = {str(name): count / per_rank for name, count in rows.groupby("pattern")["chain"].nunique().items()}
    evidence = {"saved_share": share, "chains_a_rank_and_step": float(sum(counts.values()))}
    if share < case.limit(FUSION_SHARE):
        return Verdict((), evidence)
    totals = saved.groupby(rows["pattern"]).sum().sort_values(ascending=False)
    found = [pattern for name in totals.index for pattern in chains.PATTERNS if pattern.name == name]
    each = {f"{pattern.fused}_chains_a_rank_and_step": counts[pattern.name] for pattern in found}
    told = joined((say("{chain} x {count}", chain=pattern.name, count=counts[pattern.name]) for pattern in found[:3]), ", ")
    finding = Finding(
        rule=RULE.name,
        title=say("Chains of kernels that could be one: {chains} (a rank and step)", chains=told),
        subject={"operators": tuple(pattern.name for pattern in found), "kernels": kernels.largest(rows)},
        evidence={**evidence, **each, "kernels_in_chains_a_rank_and_step": len(rows) / per_rank},
        actions=fitting(
            case,
            (
                say(
                    "use the fused operators {names}" if len(found) > 1 else "use the fused operator {names}",
                    names=", ".join(pattern.fused for pattern in found),
                ),
                COMPILER,
                "compare losses afterwards (page 22)",
            ),
        ),
        cost_ns=kernels.won_ns(case, rows, rows["saved"]),
        next=("12_operators", "22_accuracy_alignment"),
        part="computing",
    )
    return Verdict((finding,), evidence)


RULE = Rule(
    "fusion-candidate", "Chains of kernels that could be one", frozenset({"steps", "kernels"}), KERNELS_BY, (FUSION_SHARE,), check
)
