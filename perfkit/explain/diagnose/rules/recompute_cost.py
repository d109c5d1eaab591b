"""Forward operators run again in the backward pass, and cost what the forward of those layers costs.

What is measured: attention runs once forward and once backward in each layer. More forward than backward runs are recomputation.
Around an attention that runs again the kernels follow one another as in the forward pass; so far as they do they are computed
again, at most what lies between two forward attentions. (Frameworks stop before the end of a layer when the backward pass needs no
more of it, and selective recomputation runs little but the attention.) The cost is what the step would win if nothing were
recomputed, and says nothing about whether memory allows that.

What to do: with memory to spare recompute fewer layers, or only cheap operators (norms, activations), or the communication only.
"""

from __future__ import annotations

from perfkit.core.texts import say
from perfkit.explain.diagnose import kernels, recomputation
from perfkit.explain.diagnose.advice import CHEAP_OPERATORS_AGAIN, FEWER_LAYERS_AGAIN, Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import KERNELS_BY
from perfkit.explain.diagnose.recomputation import RECOMPUTE_SHARE
from perfkit.explain.diagnose.rule import Finding, Rule, Verdict

ACTIONS: tuple[Action, ...] = (
    FEWER_LAYERS_AGAIN,
    CHEAP_OPERATORS_AGAIN,
)


def check(case: Case) -> Verdict:
    """What is computed again beyond what the plan of the run asks for."""
    repeated = recomputation.beyond_plan(case)
    if repeated.spans.empty:
        return Verdict((), repeated.evidence)
    finding = Finding(
        rule=RULE.name,
        title=say("Operators of {layers_recomputed_ratio} of the layers are computed again", **repeated.evidence),
        subject={"operators": kernels.largest(repeated.spans)},
        evidence=repeated.evidence,
        actions=fitting(case, ACTIONS),
        cost_ns=repeated.won_ns(case),
        next=("05_recompute", "15_memory_profile"),
        part="step",
    )
    return Verdict((finding,), repeated.evidence)


RULE = Rule(
    name="recompute-cost",
    title="Recomputation",
    needs=frozenset({"steps", "kernels"}),
    how_to_collect=KERNELS_BY,
    thresholds=(RECOMPUTE_SHARE,),
    check=check,
    explains=frozenset({"more-work"}),
)
