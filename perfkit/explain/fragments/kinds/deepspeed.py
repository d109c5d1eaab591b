"""DeepSpeed's JSON: batches, what ZeRO shares, precision and what waits on the host; it names no model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from perfkit.config.dialects.deepspeed import MARKS
from perfkit.config.lint.check import Problem
from perfkit.core.errors import InputError
from perfkit.core.figure import Figure, figure
from perfkit.core.spec.plan import Plan
from perfkit.core.texts import say
from perfkit.explain.fragments.kind import FragmentKind, Part, Piece

STAGES = {
    0: "nothing is shared: every replica keeps all states",
    1: "replicas share the optimizer's states",
    2: "replicas share the optimizer's states and gradients",
    3: "replicas share states, gradients and parameters, which are gathered for every layer",
}
MATTERS = {
    "offload_optimizer": "the optimizer's states wait on the host: less memory, a slower update",
    "offload_param": "parameters wait on the host: less memory, slower layers",
    "activation_checkpointing": "which activations are computed again",
    "zero_quantized_weights": "weights are sent in 8 bit",
    "zero_hpz_partition_size": "parameters are shared inside a group of this size",
    "overlap_comm": "gradients are reduced beside the backward pass",
}


def _read(piece: Piece) -> Part:
    try:
        values = json.loads(piece.text)
    except (ValueError, RecursionError) as error:
        raise InputError("DeepSpeed", [f"not JSON: {error}"]) from error
    zero = values.get("zero_optimization") or {}
    zero = zero if isinstance(zero, Mapping) else {}
    stage = zero.get("stage", 0)
    says = [say("ZeRO stage {stage}: {what}", stage=str(stage), what=STAGES.get(stage, "no stage that DeepSpeed has"))]
    says += [say("{key}: {meaning}", key=name, meaning=text) for name, text in MATTERS.items() if _given(values, zero, name)]
    says += [
        say("{key} is on", key=name)
        for name in ("bf16", "fp16")
        if isinstance(values.get(name), Mapping) and values[name].get("enabled")
    ]
    return Part(
        kind=FRAGMENT.name,
        title="a configuration of DeepSpeed",
        belongs="the argument --deepspeed of the training script; it names no model",
        says=tuple(says),
        figures=tuple(_figures(values)),
        problems=tuple(_problems(values, stage, piece)),
    )


def _given(values: Mapping[str, Any], zero: Mapping[str, Any], name: str) -> bool:
    value = zero.get(name, values.get(name))
    return bool(value) and not (isinstance(value, Mapping) and value.get("device") == "none")


def _number(values: Mapping[str, Any], name: str) -> int | None:
    value = values.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _figures(values: Mapping[str, Any]) -> Iterator[Figure]:
    batch, micro, steps = (
        _number(values, name) for name in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    )
    if micro and steps:
        yield figure("sequences of a replica", micro * steps, "sequences", "computed", "micro batch x accumulation steps")
    if batch and micro and steps and batch % (micro * steps) == 0:
        yield figure("replicas", batch // (micro * steps), "", "computed", "train_batch_size / (micro batch x accumulation steps)")


def _problems(values: Mapping[str, Any], stage: Any, piece: Piece) -> Iterator[Problem]:
    batch, micro, steps = (
        _number(values, name) for name in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    )
    if batch and micro and steps and batch % (micro * steps):
        message = say(
            "train_batch_size {batch} is no multiple of {micro} x {steps}", batch=str(batch), micro=str(micro), steps=str(steps)
        )
        yield piece.problem("batch-not-divisible", "error", message, fix="let it be micro batch x accumulation steps x replicas")
    if stage not in STAGES:
        yield piece.problem("zero-stage", "error", say("stage {stage} is none of 0, 1, 2, 3", stage=repr(stage)))
    if piece.plan is not None:
        yield from _against(piece.plan, batch, micro, piece)


def _against(plan: Plan, batch: int | None, micro: int | None, piece: Piece) -> Iterator[Problem]:
    pairs = (
        ("train_batch_size", batch, plan.workload.global_batch_size),
        ("train_micro_batch_size_per_gpu", micro, plan.workload.micro_batch_size),
    )
    for name, stated, planned in pairs:
        if stated is not None and stated != planned:
            yield piece.problem(
                "not-this-plan",
                "warning",
                say("{key} is {value}, the plan has {now}", key=name, value=str(stated), now=str(planned)),
                key=name,
            )


FRAGMENT = FragmentKind(
    name="deepspeed",
    title="a configuration of DeepSpeed",
    looks_for="a JSON object with zero_optimization or train_micro_batch_size_per_gpu",
    order=0,
    claims=lambda text: text.lstrip().startswith("{") and MARKS.search(text) is not None,
    read=_read,
)
