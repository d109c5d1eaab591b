"""Which rows of a table contradict themselves: the checks of the specs and of `Plan` for many plans at once, without words."""

from __future__ import annotations

import numpy as np

from perfkit.config.dialects._table_adapters import without_target, wrongly_trained
from perfkit.config.dialects._table_cells import coded
from perfkit.core.plan_columns import Flags, Floats, PlanColumns, combined
from perfkit.core.spec.checks import MAX_LAYERS
from perfkit.core.spec.plan import even_layers
from perfkit.core.spec.recompute import Counts, RecomputePlan


def contradictory(plans: PlanColumns) -> Flags:
    """The plans that cannot be built: `PlanColumns.plan` of them raises, with the reasons."""
    found = _batch(plans) | _split(plans) | _sequence(plans) | _experts(plans) | _model(plans) | _limit(plans)
    return np.asarray(found | _recompute(plans))


def _over(whole: Floats, part: Floats) -> Flags:
    """Whether `part` does not divide `whole`."""
    share = whole / part
    return np.asarray(share != np.floor(share))


def _batch(plans: PlanColumns) -> Flags:
    return _over(plans.global_batch_size, plans.micro_batch_size * plans.data_parallel_size * plans.micro_batch_interleave_size)


def _split(plans: PlanColumns) -> Flags:
    places = plans.pipeline_parallel_size * plans.virtual_pipeline_parallel_size
    replicas = plans.data_parallel_size * plans.context_parallel_size
    level = plans.optimizer_shard_level
    wrong = _over(plans.num_attention_heads, plans.tensor_parallel_size) | _over(replicas, plans.optimizer_shard_size)
    return wrong | ~np.isin(level, (1.0, 2.0, 3.0)) | _layout(plans, places)


def _layout(plans: PlanColumns, places: Floats) -> Flags:
    layouts = plans.layers_per_stage
    shapes = np.array([_shape(layout) for layout in layouts.values]).reshape(-1, 3)[layouts.codes].T
    sizes = (plans.num_layers, plans.pipeline_parallel_size, plans.virtual_pipeline_parallel_size)
    differ = np.any([stated != size for stated, size in zip(shapes, sizes, strict=True)], axis=0)
    too_many = (places > MAX_LAYERS) | (plans.num_layers > MAX_LAYERS)
    return too_many | np.where(np.isnan(shapes[0]), places > plans.num_layers, differ)


def _shape(layout: Counts | None) -> tuple[float, float, float]:
    """Layers, stages (nan where rows differ: equal to no size) and chunks of a layout."""
    if layout is None:
        return (np.nan,) * 3
    lengths = {len(row) for row in layout}
    return float(sum(map(sum, layout))), float(lengths.pop()) if len(lengths) == 1 else np.inf, float(len(layout))


def _sequence(plans: PlanColumns) -> Flags:
    length, context, tensor = plans.seq_length, plans.context_parallel_size, plans.tensor_parallel_size
    wrong = _over(length, context) | _over(length, plans.sequence_chunks) | (plans.sequence_parallel & _over(length, tensor))
    kind, size = plans.context_parallel_algorithm, np.maximum(plans.ulysses_size, 1.0)
    heads = np.where(kind.is_("ulysses"), context, np.where(kind.is_("hybrid"), size, 1.0))
    return wrong | _over(context, size) | ((heads > 1) & _over(plans.num_key_value_heads, tensor * heads))


def _experts(plans: PlanColumns) -> Flags:
    size, inner = plans.expert_parallel_size, plans.expert_tensor_parallel_size
    devices = plans.data_parallel_size * plans.context_parallel_size * np.where(inner > 0, plans.tensor_parallel_size, 1.0)
    wrong = _over(plans.num_experts, size) | _over(devices, size * np.maximum(inner, 1.0))
    chosen = (plans.num_experts_per_token < 1) | (plans.num_experts_per_token > plans.num_experts)
    wrong |= chosen | (plans.expert_ffn_hidden_size < 1) | (plans.num_dense_layers > plans.num_layers)
    return np.where(plans.num_experts > 0, wrong | (plans.expert_capacity_factor < 0), size > 1)


def _model(plans: PlanColumns) -> Flags:
    sizes = (plans.nope_head_size, plans.rope_head_size, plans.value_head_size)
    latent = (plans.kv_lora_rank > 0) & np.any([size < 1 for size in sizes], axis=0)
    windowed = plans.num_windowed_layers
    layers = (plans.num_mtp_layers >= plans.num_layers) | (windowed > plans.num_layers)
    layers |= (windowed > 0) != (plans.attention_window > 0)
    wrong = latent | layers | without_target(plans) | wrongly_trained(plans)
    return np.asarray(wrong | _over(plans.num_attention_heads, plans.num_key_value_heads))


def _recompute(plans: PlanColumns) -> Flags:
    counted = plans.recompute.flags(lambda recompute: any(recompute.all_counts))
    places = plans.pipeline_parallel_size * plans.virtual_pipeline_parallel_size
    rows = np.flatnonzero(counted & (places <= np.minimum(plans.num_layers, MAX_LAYERS)))
    found = np.zeros(len(plans), dtype=np.bool_)
    own = plans.take(rows)
    sizes = (coded(own.num_layers), coded(own.pipeline_parallel_size), coded(own.virtual_pipeline_parallel_size))
    found[rows] = combined(own.recompute, own.layers_per_stage, *sizes).flags(lambda values: _beyond(*values))
    return found


def _beyond(recompute: RecomputePlan, layout: Counts | None, *sizes: float) -> bool:
    return bool(recompute.problems(layout or even_layers(*map(int, sizes))))


def _limit(plans: PlanColumns) -> Flags:
    known = combined(plans.memory_limit, plans.hardware)
    return known.flags(lambda pair: bool(pair[0] and pair[1] and pair[0].problem(pair[1].name, pair[1].memory_bytes)))
