"""Cost columns: what the formulas of time read of every plan, derived from its fields.

A share is 0 to 1. The rates of every plan's device are gathered into its row, so that a formula reads like the one for one plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from perfkit.core.errors import InputError
from perfkit.core.numbers import Number, alike, any_of, maximum, where
from perfkit.core.plan_columns import Coded, PlanColumns, Rows
from perfkit.core.spec.compressed import CompressedAttention
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.core.spec.optimizer import OptimizerSpec
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.workload import FEW_BITS
from perfkit.predict.cost.flops import attended_beyond, attended_share
from perfkit.predict.cost.releases import releases_before
from perfkit.predict.cost.stage_layers import StageLayers, stage_layers
from perfkit.predict.cost.trained_columns import adapter_columns, trained_columns

ELEMENT_BYTES = {"bfloat16": 2.0, "float16": 2.0, "float32": 4.0, "float8": 2.0, "int8": 2.0, "float4": 2.0}
"""Bytes of an activation; they stay in 16 bits beside products of fewer."""
TYPICAL_UNITS = 100.0
"""Matrix units of a device that does not state them."""
WIDE = ("bfloat16", "float16")
GRADIENT_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}
FLASH_BLOCK = 128.0
"""Rows of a block of fused attention (arXiv 2307.08691, section 3.3)."""
MANY = 2.0**20  # more ranks than a context group has


@dataclass(frozen=True, kw_only=True, slots=True)
class CostColumns:
    """Plans by what costs time, as arrays or the numbers of one; names are those of the fields, shortened where the unit is clear.

    `optimizer_ratio` is what the optimizer moves through memory over what Adam does, `expert_load` the tokens that the experts of
    a rank compute over the mean, `further` the layers that predict further tokens, `attended` the share of all pairs of tokens
    that a mean layer attends to, `streams` the streams of residuals (0: one), `stages` the layers of every stage and what they
    compute again. `releases_before` counts the minor releases of the software before the one that calibrations refer to. `pieces`
    of the sequence of a micro batch go through the pipeline one after the other. `head_exchange` is the most ranks of a context
    group that exchange heads (1: keys and values go around a ring). `devices_per_node` are those that fast links join, `nodes`
    the machines of the job; `wide_peak_flops_per_s` is the peak in 16 bits, in which attention computes beside products of fewer
    bits (`few_bits`). Of the `adapter_count` adapters of a layer, all of `adapter_rank` (0: none), `adapter_inputs` and
    `adapter_outputs` are the widths that a device has, `adapter_weights` the elements of the whole layer; beside them all weights
    are frozen. Whether attention, feed-forward block, embedding and head are trained is 1 or 0, as is whether a layer has a
    `backward` pass; `shares_trained` says that devices share trained parameters alone.
    """

    hidden: Number
    heads: Number
    kv_heads: Number
    head_size: Number
    value_size: Number
    qkv_weights: Number
    output_weights: Number
    ffn: Number
    ffn_matrices: Number
    clamped: Number
    expert_biases: Number
    piecewise_positions: Number
    vocab: Number
    further: Number
    attended: Number
    streams: Number
    tied: Number
    adapter_rank: Number
    adapter_count: Number
    adapter_inputs: Number
    adapter_outputs: Number
    adapter_weights: Number
    attention_trained: Number
    ffn_trained: Number
    embedding_trained: Number
    head_trained: Number
    backward: Number
    shares_trained: Number
    experts: Number
    experts_per_token: Number
    expert_ffn: Number
    shared_ffn: Number
    stages: Coded[StageLayers]
    data: Number
    tensor: Number
    pipeline: Number
    virtual: Number
    context: Number
    head_exchange: Number
    pieces: Number
    expert_parallel: Number
    expert_tensor: Number
    sequence_parallel: Number
    zero: Number
    optimizer_shards: Number
    optimizer_ratio: Number
    expert_load: Number
    interleave: Number
    micro_batch: Number
    global_batch: Number
    seq_length: Number
    element_bytes: Number
    gradient_bytes: Number
    flash: Number
    few_bits: Number
    mesh: Number
    peak_flops_per_s: Number
    wide_peak_flops_per_s: Number
    memory_bytes_per_s: Number
    intra_bytes_per_s: Number
    node_bytes_per_s: Number
    host_bytes_per_s: Number
    devices_per_node: Number
    nodes: Number
    compute_units: Number
    releases_before: Number

    def __len__(self) -> int:
        return int(np.size(self.hidden))

    @property
    def devices(self) -> Number:
        """Devices of the job."""
        return self.data * self.tensor * self.pipeline * self.context

    @property
    def micro_batches(self) -> Number:
        """Micro batches of a step and replica."""
        return self.global_batch / (self.micro_batch * self.data * self.interleave)

    @property
    def kinds(self) -> tuple[CostColumns, ...]:
        """The plans, whose layers have experts where the model has any; with dense layers ahead of these the plans of such ones.

        With frozen layers both once more as frozen ones, and as those that have no backward pass.
        """
        if not any_of(self.stages.flags(lambda value: value.leading)):
            return (self,)
        none = alike(0.0, self.experts)
        both = self, replace(self, experts=none, expert_parallel=alike(1.0, self.experts))
        if not any_of(self.stages.flags(lambda value: value.partly)):
            return both
        frozen = tuple(replace(one, attention_trained=none, ffn_trained=none) for one in both)
        return *both, *frozen, *(replace(one, backward=none) for one in frozen)

    def take(self, rows: Rows) -> CostColumns:
        """The plans at `rows`."""
        columns: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(self)}
        taken: dict[str, Any] = {name: one.take(rows) if isinstance(one, Coded) else one[rows] for name, one in columns.items()}
        return CostColumns(**taken)


def costs_of(plans: Sequence[Plan]) -> CostColumns:
    """The columns of some plans. Raises InputError with what their devices do not state."""
    columns = PlanColumns.of(plans)
    refuse_unpriced(columns)
    return cost_columns(columns)


def refuse_unpriced(plans: PlanColumns) -> None:
    """Raise InputError with what the devices of some plans do not state though a prediction needs it."""
    if lacking := unpriced(plans):
        raise InputError("Plan", dict.fromkeys(problem for problems in lacking.values() for problem in problems))


def cost_columns(plans: PlanColumns) -> CostColumns:
    """The columns of plans whose devices state what is needed (see `unpriced`)."""
    return CostColumns(**_model(plans), **_split(plans), **_work(plans), **_hardware(plans))


def _model(plans: PlanColumns) -> dict[str, Any]:
    latent = plans.kv_lora_rank > 0
    shared = where(plans.shared_expert_ffn_hidden_size > 0, plans.shared_expert_ffn_hidden_size, plans.expert_ffn_hidden_size)
    qkv, output = attention_weights(plans)
    return {
        "hidden": plans.hidden_size,
        "heads": plans.num_attention_heads,
        "kv_heads": plans.num_key_value_heads,
        "head_size": where(latent, plans.nope_head_size + plans.rope_head_size, plans.head_size),
        "value_size": where(latent, plans.value_head_size, plans.head_size),
        "qkv_weights": qkv,
        "output_weights": output,
        "ffn": plans.ffn_hidden_size,
        "ffn_matrices": where(plans.gated_ffn, 3.0, 2.0),
        "clamped": plans.clamped_gate & plans.gated_ffn,
        "piecewise_positions": plans.scaled_positions & plans.program.is_("megatron"),
        "expert_biases": plans.bias.is_("all") & (plans.num_experts > 0),
        "vocab": plans.vocab_size,
        "further": plans.num_mtp_layers,
        "attended": _attended(plans),
        "streams": plans.residual_streams,
        "tied": plans.tied_embeddings,
        **adapter_columns(plans),
        **trained_columns(plans),
        "experts": plans.num_experts,
        "experts_per_token": plans.num_experts_per_token,
        "expert_ffn": plans.expert_ffn_hidden_size,
        "shared_ffn": plans.num_shared_experts * shared,
        "expert_load": where(plans.expert_capacity_factor > 0, plans.expert_capacity_factor, 1.0),
    }


def _attended(plans: PlanColumns) -> Number:
    """The share of pairs that fused attention computes: whole blocks of keys, also at the far end of a window."""
    own, layers, beyond = plans.num_windowed_layers, plans.num_layers, 0.0
    latent = plans.kv_lora_rank > 0
    for rows, packed in _packed(plans):
        key = where(latent, plans.nope_head_size + plans.rope_head_size, plans.head_size)
        pair = plans.num_attention_heads * (key + where(latent, plans.value_head_size, plans.head_size))
        beyond = where(rows, attended_beyond(packed, plans.seq_length, layers, pair), beyond)
        own = where(rows, maximum(own, packed.num_selected_layers + packed.num_pooled_layers), own)
    block = where(plans.attention_window > 0, FLASH_BLOCK, 0.0)
    return attended_share(plans.seq_length, plans.attention_window + block, own / layers) + beyond


def _packed(plans: PlanColumns) -> Iterator[tuple[Number, CompressedAttention]]:
    """Every compressed attention that plans have, and which have it."""
    for code, packed in enumerate(plans.compressed.values):
        if packed is not None:
            yield plans.compressed.codes == code, packed


def attention_weights(plans: PlanColumns) -> tuple[Number, Number]:
    """Elements of the matrices that make queries, keys and values, and of the output's, as `core.params.attention_weights`."""
    qkv, output = _plain_weights(plans)
    h, a, d, q = plans.hidden_size, plans.num_attention_heads, plans.head_size, plans.query_lora_rank
    for rows, packed in _packed(plans):
        more = packed.compressing(plans.num_layers, h, where(q > 0, q, h), d)
        if o := packed.output_lora_rank:
            qkv = where(rows, h * q + q * a * d + h * d + more, qkv)
            output = where(rows, a * d * o + packed.output_groups * o * h, output)
        else:
            qkv = where(rows, qkv + more, qkv)
    return qkv, output


def _plain_weights(plans: PlanColumns) -> tuple[Number, Number]:
    h, a, d = plans.hidden_size, plans.num_attention_heads, plans.head_size
    plain, out = h * d * (a + 2 * plans.num_key_value_heads), a * d * h
    r, q = plans.kv_lora_rank, plans.query_lora_rank
    if not any_of(r):
        return plain, out
    key = plans.nope_head_size + plans.rope_head_size
    query = where(q > 0, h * q + q * a * key, h * a * key)
    packed: Number = query + h * (r + plans.rope_head_size) + r * a * (plans.nope_head_size + plans.value_head_size)
    return where(r > 0, packed, plain), where(r > 0, a * plans.value_head_size * h, out)


def _split(plans: PlanColumns) -> dict[str, Any]:
    exchange = {"ring": 1.0, "ulysses": MANY}
    # With a pipeline FSDP2 keeps parameters gathered from the first micro batch to the last (torchtitan, reshard_after_forward).
    once = plans.program.is_("fsdp") & (plans.pipeline_parallel_size > 1)
    # MindSpore shares out trained parameters alone: beside frozen weights, which are whole, these need no gathering on their way.
    once = (once | (plans.program.is_("mindspore") & (plans.adapters.flags(bool)))) & (plans.optimizer_shard_level > 2)
    kinds = plans.context_parallel_algorithm.numbers(lambda word: exchange.get(word, 0.0))
    return {
        "stages": stage_layers(plans),
        "data": plans.data_parallel_size,
        "tensor": plans.tensor_parallel_size,
        "pipeline": plans.pipeline_parallel_size,
        "virtual": plans.virtual_pipeline_parallel_size,
        "context": plans.context_parallel_size,
        "head_exchange": where(kinds > 0, kinds, maximum(plans.ulysses_size, 1.0)),
        "pieces": plans.sequence_chunks,
        "expert_parallel": where(plans.num_experts > 0, plans.expert_parallel_size, 1.0),
        "expert_tensor": where(
            plans.expert_tensor_parallel_size > 0, plans.expert_tensor_parallel_size, plans.tensor_parallel_size
        ),
        "sequence_parallel": plans.sequence_parallel,
        "zero": where(plans.optimizer_shard_size > 1, where(once, 2.0, plans.optimizer_shard_level), 0.0),
        "optimizer_shards": plans.optimizer_shard_size,
        "interleave": plans.micro_batch_interleave_size,
    }


def _work(plans: PlanColumns) -> dict[str, Any]:
    state = where(
        plans.matrix_state_bytes_per_parameter < 0, plans.state_bytes_per_parameter, plans.matrix_state_bytes_per_parameter
    )
    return {
        "micro_batch": plans.micro_batch_size,
        "global_batch": plans.global_batch_size,
        "seq_length": plans.seq_length,
        "element_bytes": plans.dtype.numbers(ELEMENT_BYTES.__getitem__),
        "gradient_bytes": plans.gradient_dtype.numbers(GRADIENT_BYTES.__getitem__),
        "flash": plans.attention_kernel.is_("flash"),
        "few_bits": plans.dtype.is_(*FEW_BITS),
        "optimizer_ratio": optimizer_bytes(state, plans.master_weights) / ADAM_BYTES,
        "releases_before": where(plans.program.is_("mindspore"), plans.release.numbers(releases_before), 0.0),
    }


def optimizer_bytes(state: Number, master: Number) -> Number:
    """Bytes a parameter that an update moves: gradient read, weight written, state and master copy read and written."""
    return 6.0 + 2.0 * state + where(master, 8.0, 2.0)


ADAM_BYTES = float(optimizer_bytes(OptimizerSpec().state_bytes_per_parameter, OptimizerSpec().master_weights))


def _hardware(plans: PlanColumns) -> dict[str, Any]:
    device = plans.hardware
    rates = np.array([_rates(spec) for spec in device.values])[device.codes]
    peaks = np.array([[_peak(spec, dtype) for dtype in plans.dtype.values] for spec in device.values])
    intra, inter, host, per_node, memory, mesh, units, wide, node = rates.T
    return {
        "peak_flops_per_s": peaks[device.codes, plans.dtype.codes],
        "wide_peak_flops_per_s": wide,
        "nodes": maximum(plans.num_devices / node, 1.0),
        "memory_bytes_per_s": memory,
        "intra_bytes_per_s": intra,
        "node_bytes_per_s": inter * per_node,
        "host_bytes_per_s": host,
        "devices_per_node": per_node,
        "mesh": mesh > 0,
        "compute_units": units,
    }


def _rates(spec: HardwareSpec | None) -> tuple[float, ...]:
    """Bytes/s in a node, to network and host (1: not stated), linked devices, memory, mesh, units, peak in 16 bits, node."""
    if spec is None:
        return (1.0,) * 9
    links = (spec.links[name].bytes_per_s if name in spec.links else 1.0 for name in ("intra_node", "inter_node", "host"))
    wide = max((peak for dtype, peak in spec.peak_flops_per_s.items() if dtype in WIDE), default=1.0)
    units, linked = spec.matrix_units or TYPICAL_UNITS, spec.linked_devices
    return (*links, linked, spec.memory_bytes_per_s, float(spec.is_mesh), units, wide, spec.devices_per_node)


def _peak(spec: HardwareSpec | None, dtype: str) -> float:
    return 1.0 if spec is None else spec.peak_flops_per_s.get(dtype, 1.0)


def unpriced(plans: PlanColumns) -> dict[int, list[str]]:
    """By position, what a prediction needs that the plan's device does not state."""
    found: dict[int, list[str]] = {}
    for mask, text in _lacking(plans):
        for row in np.flatnonzero(mask).tolist():
            found.setdefault(row, []).append(text)
    return found


def _lacking(plans: PlanColumns) -> Iterator[tuple[Number, str]]:
    device, count = plans.hardware, plans.num_devices
    swaps = plans.recompute.flags(lambda recompute: any(map(any, recompute.swapped_layers)))
    for code, spec in enumerate(device.values):
        rows = device.codes == code
        if spec is None:
            yield rows, 'hardware is not named; a prediction needs the device, for example "Ascend-910B2"'
            continue
        if not any(dtype in WIDE for dtype in spec.peak_flops_per_s):
            attention = "in which attention computes beside products of fewer"
            yield rows & plans.dtype.is_(*FEW_BITS), f"{spec.name} has no peak in 16 bits, {attention}; state {WIDE[0]}"
        for kind, dtype in enumerate(plans.dtype.values):
            if dtype not in spec.peak_flops_per_s:
                known = ", ".join(spec.peak_flops_per_s)
                yield rows & (plans.dtype.codes == kind), f"{spec.name} has no peak for dtype {dtype!r}; known are {known}"
        needs = {"intra_node": count > 1, "inter_node": count > spec.linked_devices, "host": swaps}
        for link, needed in needs.items():
            if link not in spec.links:
                users = "layers that are swapped to the host" if link == "host" else "more devices"
                yield rows & needed, f"{spec.name}: links.{link} is not stated, which {users} need"
