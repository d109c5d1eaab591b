"""Models: the three models of the exercises from the catalogue, and small plans made of them."""

from __future__ import annotations

from dataclasses import replace

from perfkit.core import catalog
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.optimizer import OptimizerSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.workload import Workload
from perfkit.predict.cost.flops import forward_flops

FP16_ADAM = OptimizerSpec(gradient_dtype="bfloat16")
"""Gradients in 16 bit; fp32 master copy and two moments."""


def named(name: str) -> ModelSpec:
    """The model that an exercise calls llama2_7b, llama2_13b or llama2_70b."""
    return catalog.model(name.replace("_", "-"))


def layer_flops(model: ModelSpec, seq_length: int) -> float:
    """Forward FLOP per token of one layer, full attention."""
    return float(forward_flops(model, seq_length, head=False).total) / model.num_layers


def plan_of(model: ModelSpec, *, s: int, b: int, parallel: ParallelPlan | None = None, dropout: bool = False) -> Plan:
    """A plan of two micro-batches of b sequences of s tokens a replica; `dropout` also stores scores, as GPT layers did."""
    split = parallel or ParallelPlan()
    work = Workload(
        seq_length=s,
        micro_batch_size=b,
        global_batch_size=2 * b * split.data_parallel_size,
        dropout=dropout,
        attention_kernel="unfused" if dropout else "flash",
    )
    return Plan(model=model, workload=work, parallel=split, optimizer=FP16_ADAM)


def gpt_layer(*, h: int, heads: int) -> ModelSpec:
    """A GPT of one layer with that hidden size and number of heads."""
    shape = replace(
        named("llama2_7b"), num_layers=1, hidden_size=h, head_size=max(1, h // heads), ffn_hidden_size=4 * h, name="gpt"
    )
    return replace(shape, num_attention_heads=heads, num_key_value_heads=heads, gated_ffn=False)
