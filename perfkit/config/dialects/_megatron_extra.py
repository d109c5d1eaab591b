"""Switches of Megatron and MindSpeed that no part of a plan expresses: what they do, and with what they may not be combined.

Sources: `Ascend/MindSpeed mindspeed/arguments.py` and `docs/zh/features`, `NVIDIA/Megatron-LM megatron/training/arguments.py`.
"""

from __future__ import annotations

import re
from dataclasses import replace

from perfkit.config.dialects._section import Section, shown
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.recompute import Counts, RecomputePlan

MEANING = {
    "no_overlap_p2p_communication": "transfers between interleaved stages wait instead of overlapping; the estimate overlaps them",
    "swap_attention": "attention activations go to the host until their backward pass; neither memory nor transfers are counted",
    "adaptive_memory_optimization": "recomputation and swapping are chosen while training; the estimate counts what is stated",
    "reuse_fp32_param": "the fp32 master weights share memory with the 16-bit ones; the estimate counts both",
    "automated_pipeline": "layers and recomputation of the stages are chosen at the start; perfkit balance does it beforehand",
    "automated_pipeline_perf": "micro batch sizes of the stages are chosen for speed at the start; the estimate has one size",
    "recompute_in_bubble": "activations are recomputed while a stage waits; the estimate counts no recomputation for it",
    "recompute_in_advance": "layers are recomputed before their backward pass is due; the estimate counts them as usual",
    "recompute_norm": "norms are recomputed; they cost little and are not counted",
}
"""Switches without a value, by option name."""
UNCOUNTED = {
    "state-space layers": ("hybrid_layer_pattern", "hybrid_override_pattern", "hybrid_attention_ratio", "is_hybrid_model"),
    "an encoder beside its decoder": ("decoder_num_layers",),
    "layers of several sizes": ("heterogeneous_layers_config_path", "heterogeneous_layers_config_encoded_json"),
    "retrieved text beside its own": ("retro_add_retriever",),
}
"""What a model has that no part of a plan counts, by the options that say so."""


def refuse_uncounted(options: Section) -> None:
    """Note as a problem what the model has that nothing counts, and stop there: what else is missing belongs to that."""
    for what, names in UNCOUNTED.items():
        name = next((one for one in names if options.raw(one) not in (None, False, 0)), None)
        if name is not None:
            options.reading.problem(name, f"the model has {what}, which nothing here counts yet")
    options.reading.stop_if_problems()


def note_extras(options: Section, chunks: int, recompute: RecomputePlan | None) -> None:
    """Note what the switches given do, and as problems what contradicts another option."""
    given = [name for name in MEANING if options.flag(name, default=False)]
    for name in given:
        options.reading.note(f"{_spelled(name)}: {MEANING[name]}")
    for pair in (("recompute_in_bubble", "recompute_in_advance"), ("automated_pipeline", "automated_pipeline_perf")):
        if all(name in given for name in pair):
            options.reading.problem(pair[1], f"{_spelled(pair[1])} and {_spelled(pair[0])} exclude one another; keep one of them")
    for name in ("recompute_in_bubble", "recompute_in_advance"):
        if name in given and chunks < 2:
            options.reading.problem(name, f"{_spelled(name)} needs virtual pipeline stages; there is one chunk a stage")
    if "recompute_in_bubble" in given and recompute != RecomputePlan():
        options.reading.problem("recompute_in_bubble", "--recompute-in-bubble goes with no other recomputation")
    block = options.raw("recompute_method") == "block"
    if "recompute_in_advance" in given and not block:
        options.reading.problem("recompute_in_advance", "--recompute-in-advance needs --recompute-method block")
    if "recompute_norm" in given and options.raw("recompute_granularity") == "full" and not block:
        options.reading.problem("recompute_norm", "--recompute-norm beside full recomputation needs --recompute-method block")
    _stages_listed(options)


def group_problems(options: Section, stages: int, chunks: int, num_micro_batches: int) -> None:
    """Note what Megatron refuses about the micro batches in a group of the interleaved schedule."""
    name = "microbatch_group_size_per_virtual_pipeline_stage"
    size = options.positive_int(name, default=stages)
    if chunks < 2:
        return
    rest = num_micro_batches % size
    if options.has(name) and not stages <= size <= num_micro_batches:
        options.reading.problem(name, f"{size} must be {stages} (stages) to {num_micro_batches} (micro batches)")
    elif 0 < rest < stages:
        text = f"{num_micro_batches} micro batches in groups of {size} leave {rest}; Megatron interleaves none or at least {stages}"
        if options.has(name):
            options.reading.problem(name, text)
        else:  # a plan of another framework may say so, and is to be read all the same
            options.reading.note(text)


def without_empty(options: Section, model: ModelSpec, layers: Counts | None) -> tuple[ModelSpec, Counts | None]:
    """The model and its split without the layers that do nothing (MindSpeed's --noop-layers, counted over the whole pipeline)."""
    value = options.raw("noop_layers")
    if value is None or layers is None:
        return model, layers
    texts = [text for text in re.split(r"[,\s]+", str(value).strip("[]")) if text]
    if not all(re.fullmatch(r"\d{1,6}", text) and int(text) < model.num_layers for text in texts):
        options.reading.problem("noop_layers", f"{shown(value)} must be numbers of layers, 0 to {model.num_layers - 1}")
        return model, layers
    empty, kept, place = {int(text) for text in texts}, [], 0
    for row in layers:
        counts = []
        for count in row:
            counts.append(count - sum(place <= number < place + count for number in empty))
            place += count
        kept.append(tuple(counts))
    if len(empty) >= model.num_layers:
        options.reading.problem("noop_layers", "leaves no layer that does anything")
        return model, layers
    options.reading.note(f"--noop-layers: layers {', '.join(texts)} do nothing and are not counted")
    left = model.num_layers - len(empty)
    dense, windowed = min(left, model.num_dense_layers), min(left, model.num_windowed_layers)
    return replace(model, num_layers=left, num_dense_layers=dense, num_windowed_layers=windowed), tuple(kept)


def _stages_listed(options: Section) -> None:
    if options.raw("pipeline_num_transformer_layers") is not None:
        options.reading.note(
            "--pipeline-num-transformer-layers: layers of the stages; the estimate takes them from --num-layer-list or the layout"
        )


def _spelled(name: str) -> str:
    return "--" + name.replace("_", "-")
