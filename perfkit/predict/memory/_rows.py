"""Memory rows: a row of `data/reference/memory.csv` as a plan, the framework's settings and what its figure counts.

What a row does not state is filled in as the program that made it does by default: Megatron's GPT has learned positions, biases,
LayerNorm and dropout, sums 16-bit gradients in fp32 unless it trains in fp16, and splits layers evenly. Models with squared ReLU
have rotary positions, no biases and no dropout (Nemotron-4, arXiv 2402.16819, section 2).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from perfkit.core.errors import InputError
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.optimizer import OptimizerSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import Counts, RecomputePlan
from perfkit.core.spec.workload import Workload
from perfkit.predict.cost.table_recompute import EVERY, SILU_MUL, layer_counts, stage_counts
from perfkit.predict.cost.table_words import ALGORITHMS, OPTIMIZERS, plain
from perfkit.predict.memory.counters import Counter, Scope, counter_of, scope_of
from perfkit.predict.memory.settings import MemorySettings, preset

REQUIRED = ("layers", "hidden", "heads", "ffn_hidden", "vocab", "micro_batch", "seq_len")
DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp8": "float8"}


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """A plan with its settings, which counter its figure is from, and of which stage: first, last or the fullest."""

    plan: Plan
    settings: MemorySettings
    counter: Counter
    scope: Scope


def read_row(row: Mapping[str, Any]) -> MemoryRow:
    """The plan of a row. Raises InputError with every missing or impossible value."""
    missing = [name for name in REQUIRED if _number(row, name) < 1]
    if missing:
        raise InputError("row", [f"{name} = {row.get(name)!r} must be a positive number" for name in missing])
    framework, counter = _framework(row), counter_of(_text(row, "memory_kind", "max allocated"))
    model = _model(row, framework)
    parallel, micro_batches = _parallel(row, framework)
    dtype = DTYPES.get(_text(row, "precision", "bf16"), "bfloat16")
    micro_batch = _number(row, "micro_batch")
    work = Workload(
        seq_length=_number(row, "seq_len"),
        micro_batch_size=micro_batch,
        global_batch_size=micro_batches * micro_batch * parallel.data_parallel_size * parallel.micro_batch_interleave_size,
        dtype=dtype,
        attention_kernel="flash" if _text(row, "attention_kernel", "flash") == "flash" else "unfused",
        dropout=framework in ("megatron", "deepspeed") and _is_gpt(row) and not _is_nemotron(row),
    )
    plan = Plan(
        model=model,
        workload=work,
        parallel=parallel,
        optimizer=OptimizerSpec() if counter == "tensors" else _optimizer(row, framework, dtype),
    )
    plan = replace(plan, recompute=_recompute(row, plan, framework))
    settings = preset(framework, _text(row, "accelerator", ""))
    if "transformer-impl local" in _text(row, "note", ""):
        settings = replace(settings, keeps_score_buffer=True)
    return MemoryRow(plan, settings, counter, scope_of(_text(row, "memory_scope", "")))


def _recompute(row: Mapping[str, Any], plan: Plan, framework: str) -> RecomputePlan:
    kind, counts, layers = _text(row, "recompute", "none"), stage_counts(_text(row, "recompute_detail", "")), plan.stage_layers
    selected = counts.select or (EVERY if kind == "selective" else ())
    operators = dict.fromkeys(SILU_MUL.values(), layer_counts(selected, layers)) if selected and framework == "mindspore" else {}
    return RecomputePlan(
        all_layers=kind == "full" and not counts.full,
        attention_core=kind == "selective" and framework != "mindspore",
        full_layers=layer_counts(counts.full, layers) if kind == "full" and counts.full else (),
        operators=operators,
        communication=layer_counts(counts.gathers, layers) if counts.gathers else (),
        swapped_layers=layer_counts((_number(row, "swapped_layers"),), layers) if _number(row, "swapped_layers") else (),
    )


def _framework(row: Mapping[str, Any]) -> str:
    text = " ".join(_text(row, name, "") for name in ("source", "source_path", "note")).lower()
    for word, framework in (
        ("mindformers", "mindspore"),
        ("mindspore", "mindspore"),
        ("deepspeed", "deepspeed"),
        ("bigscience", "deepspeed"),
        ("llm-foundry", "fsdp"),
        ("fsdp", "fsdp"),
    ):
        if word in text:
            return framework
    return "mindspore" if _text(row, "accelerator", "").startswith("Ascend") else "megatron"


def _is_gpt(row: Mapping[str, Any]) -> bool:
    usual = "llama" if _text(row, "activation", "gelu") == "swiglu" else "gpt"
    return _text(row, "family", usual) == "gpt" or "gpt" in _text(row, "model", "").lower()


def _is_nemotron(row: Mapping[str, Any]) -> bool:
    return "squared" in _text(row, "activation", "gelu")


def _model(row: Mapping[str, Any], framework: str) -> ModelSpec:
    gpt, gated = _is_gpt(row), _text(row, "activation", "gelu") == "swiglu"
    heads, experts = _number(row, "heads"), _number(row, "experts")
    nemotron = _is_nemotron(row)
    rotary = nemotron or "rope" in f"{_text(row, 'model', '')} {_text(row, 'source_path', '')}"
    learned = gpt and framework != "mindspore" and not rotary
    head_size = _number(row, "head_dim") or _number(row, "hidden") // heads
    return ModelSpec(
        name=_text(row, "model", ""),
        num_layers=_number(row, "layers"),
        hidden_size=_number(row, "hidden"),
        num_attention_heads=heads,
        num_key_value_heads=_number(row, "kv_heads") or heads,
        head_size=head_size,
        ffn_hidden_size=_number(row, "ffn_hidden"),
        vocab_size=_number(row, "vocab"),
        gated_ffn=gated,
        tied_embeddings=bool(_number(row, "tied_embeddings")),
        norm="layernorm" if gpt or nemotron else "rmsnorm",
        bias="all" if gpt and not nemotron and "no biases" not in _text(row, "note", "") else "none",
        max_position_embeddings=_number(row, "seq_len") if learned else 0,
        query_key_norm="qk_layernorm" in _text(row, "source_path", ""),
        num_experts=experts,
        num_experts_per_token=(_number(row, "experts_per_token") or 1) if experts else 0,
        expert_ffn_hidden_size=(_number(row, "expert_ffn_hidden") or _number(row, "ffn_hidden")) if experts else 0,
        expert_capacity_factor=_fraction(row, "capacity_factor") if experts else 0.0,
        num_shared_experts=_number(row, "shared_experts"),
        num_dense_layers=_number(row, "dense_layers") if experts else 0,
    )


def _parallel(row: Mapping[str, Any], framework: str) -> tuple[ParallelPlan, int]:
    """The sizes of the groups, and the micro batches of a step."""
    data, tensor, stages, context = (_number(row, name) or 1 for name in ("dp", "tp", "pp", "cp"))
    experts, chunks = _number(row, "ep") or 1, _number(row, "vpp") or 1
    copies = _number(row, "copies") or 1
    batch = _number(row, "global_batch") or _number(row, "micro_batch") * data * copies
    micro_batches = max(1, math.ceil(batch / (_number(row, "micro_batch") * data * copies)))
    level = _number(row, "zero_stage")
    split = re.search(r"expert tensor parallel (\d+)", _text(row, "note", ""))
    inner = int(split[1]) if split else 0
    if not inner and data * context % experts and data * context * tensor % experts == 0:
        inner = max(1, data * context * tensor // experts)
    plan = ParallelPlan(
        data_parallel_size=data,
        tensor_parallel_size=tensor,
        pipeline_parallel_size=stages,
        virtual_pipeline_parallel_size=chunks,
        context_parallel_size=context,
        expert_parallel_size=experts,
        expert_tensor_parallel_size=inner,
        sequence_parallel=bool(_number(row, "sequence_parallel")) and tensor > 1,
        optimizer_shard_size=(_number(row, "optimizer_shard_size") or data * context) if level else 1,
        optimizer_shard_level=min(3, max(1, level if framework != "megatron" else 1)),
        layers_per_stage=_stages(_number(row, "layers"), stages) if chunks == 1 else None,
        context_parallel_algorithm=ALGORITHMS.get(_plain(row, "cp_algorithm"), "ring"),
        ulysses_size=_number(row, "ulysses_size"),
        sequence_chunks=_number(row, "sequence_chunks") or 1,
        micro_batch_interleave_size=copies,
    )
    return plan, micro_batches


def _stages(layers: int, stages: int) -> Counts | None:
    """Layers a stage where embedding and head count as layers too: the first and the last stage have one less."""
    if layers % stages == 0 or (layers + 2) % stages or stages == 1:
        return None
    each = (layers + 2) // stages
    return ((each - 1, *(each for _ in range(stages - 2)), each - 1),)


def _optimizer(row: Mapping[str, Any], framework: str, dtype: str) -> OptimizerSpec:
    named = OPTIMIZERS.get(_plain(row, "optimizer"), OptimizerSpec())
    if dtype == "float16":
        return replace(named, gradient_dtype="float16")
    if framework == "deepspeed":  # Gradients in 16 bit, summed in fp32: 4 extra bytes a parameter on every device.
        return replace(named, gradient_dtype="bfloat16", gradient_accumulation_bytes_per_parameter=4)
    return named


def _text(row: Mapping[str, Any], name: str, default: str) -> str:
    value = row.get(name)
    return default if value is None or value != value or value == "" else str(value)  # noqa: PLR0124


def _plain(row: Mapping[str, Any], name: str) -> str:
    return plain(_text(row, name, ""))


def _fraction(row: Mapping[str, Any], name: str) -> float:
    try:
        value = float(_text(row, name, "0"))
    except ValueError as error:
        raise InputError("row", [f"{name} = {_text(row, name, '')!r} is not a number"]) from error
    return value if math.isfinite(value) and value > 0 else 0.0


def _number(row: Mapping[str, Any], name: str) -> int:
    """A whole number; 0 where the cell is empty."""
    text = _text(row, name, "0")
    try:
        value = float(text)
    except ValueError as error:
        raise InputError("row", [f"{name} = {text!r} is not a number"]) from error
    if not math.isfinite(value) or value < 0 or value != int(value):
        raise InputError("row", [f"{name} = {text} must be a whole number of at least 0"])
    return int(value)
