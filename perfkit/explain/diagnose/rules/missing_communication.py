"""Gradients are not reduced although the model is trained on several replicas: the replicas drift apart.

What is measured: in a run that states more than one data parallel replica and that has backward operators and an optimizer, the
bytes a step of all-reduces and reduce-scatters on groups that are not known to be for something else. Less than 1 MiB is no
gradient. Communication must have been recorded: a run without any collective is not measured.

What to do: check that the model is wrapped for data parallelism on every rank, that groups are made before it, and compare the
weights of two replicas; compare losses.
"""

from __future__ import annotations

import re

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose import planned
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import COMMUNICATION_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Verdict
from perfkit.explain.diagnose.thresholds import REPEATED_BYTES
from perfkit.explain.ledger import causes

BACKWARD = re.compile(r"grad\b|grad_?|backward|_bwd", re.IGNORECASE)
REDUCTIONS = ("all_reduce", "reduce_scatter", "reduce")


def check(case: Case) -> Verdict:
    """Whether gradients are reduced over the replicas."""
    count = planned.replicas(case)
    names = case.computing["op"].astype("category").cat.categories.astype(str)
    trains = any(BACKWARD.search(name) for name in names) and any(causes.UPDATES.search(name) for name in names)
    rows = case.run.frame("collectives", ranks=case.detail_ranks, columns=("rank", "step", "operation", "group", "bytes"))
    rows = rows[rows["step"].isin(case.step_numbers).to_numpy(dtype=bool)]
    if count is None or not trains or rows.empty or rows["bytes"].isna().all():
        raise NotMeasuredError(
            "replicas, and whole steps of a training with the sizes of messages", how_to_collect=COMMUNICATION_BY
        )
    others = {group.name for group in case.groups if group.dimension not in (None, "data")}
    reduced = rows[(rows["operation"].isin(REDUCTIONS) & ~rows["group"].astype("object").isin(others)).to_numpy(dtype=bool)]
    per_step = reduced.groupby(["rank", "step"])["bytes"].sum()
    evidence = {"data_parallel_size": float(count), "gradient_bytes_a_step": float(per_step.max()) if len(per_step) else 0.0}
    if count < 2 or evidence["gradient_bytes_a_step"] >= case.limit(REPEATED_BYTES):
        return Verdict((), evidence)
    finding = Finding(
        rule=RULE.name,
        title=say("No step reduces gradients over the {data_parallel_size} replicas", **evidence),
        subject={},
        evidence=evidence,
        actions=(
            "check that every rank wraps the model for data parallelism, after the groups are made",
            "compare the weights of two replicas after some steps, and losses (page 22)",
        ),
        severity="high",
        next=("13_communication", "22_accuracy_alignment"),
    )
    return Verdict((finding,), evidence)


RULE = Rule(
    name="missing-communication",
    title="Gradients that are not reduced",
    needs=frozenset({"steps", "collectives", "kernels"}),
    how_to_collect=COMMUNICATION_BY,
    thresholds=(REPEATED_BYTES,),
    check=check,
)
