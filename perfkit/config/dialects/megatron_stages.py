"""Megatron's pipeline and recompute options as counts, one tuple a virtual chunk and one entry a pipeline stage.

A layout string has one entry a stage, chunk by chunk, joined by `|`: E embedding, t decoder layer, m further-token layer, L loss;
`t*3` and `(tt|)*2` repeat, commas mean nothing. Without one the layers are split evenly, but for the first and last stage options.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from perfkit.config.dialects._section import HIGHEST, Section, shown
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.recompute import Counts, RecomputePlan

GROUP, ITEM = re.compile(r"\(([^()]*)\)(?:\*(\d{1,6}))?"), re.compile(r"([Etm|L])\*(\d{1,6})")
MAX_LAYOUT = 100_000
CHUNK_OPTIONS = ("num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank", "pipeline_model_parallel_layout")
ATTENTION_MODULES = ("core_attn",)
ACTIVATION_PATTERNS = (r"feed_forward\.mul", r"feed_forward\.w1\.activation\.silu", r"feed_forward\.w1\.activation")
LISTED_ELSEWHERE = ("layernorm", "mla_up_proj", "moe_act", "shared_experts")


def num_chunks(options: Section, num_layers: int, num_stages: int) -> int:
    """Virtual pipeline chunks a device; the options that set it exclude one another."""
    given = [name for name in CHUNK_OPTIONS if options.has(name)]
    if len(given) > 1:
        options.reading.problem(given[1], f"at most one of {', '.join(given)} may be given")
        return 1
    if options.has("pipeline_model_parallel_layout"):
        stages = _layout(options)
        if len(stages) % num_stages:
            options.reading.problem("pipeline_model_parallel_layout", f"{len(stages)} stages are no multiple of {num_stages}")
            return 1
        return len(stages) // num_stages
    each = options.integer("num_layers_per_virtual_pipeline_stage", default=0)
    if not each:
        return options.positive_int("num_virtual_stages_per_pipeline_rank", default=1)
    if num_layers % (num_stages * each):
        options.reading.problem(
            "num_layers_per_virtual_pipeline_stage", f"{num_layers} layers are not divisible by {num_stages} stages x {each} layers"
        )
        return 1
    return num_layers // (num_stages * each)


def stage_layers(options: Section, num_layers: int, num_stages: int, chunks: int) -> Counts | None:
    """Layers of every chunk and stage; None after a problem."""
    if num_stages * chunks > num_layers + 2:
        options.reading.problem(
            "pipeline_model_parallel_size", f"{num_stages} stages x {chunks} chunks for {num_layers} layers leave some empty"
        )
        return None
    if options.has("pipeline_model_parallel_layout"):
        flat = [stage.count("t") for stage in _layout(options)]
    elif options.has("num_layer_list"):
        flat = _listed(options)
    else:
        flat = _even(options, num_layers, num_stages, chunks)
    if len(flat) != num_stages * chunks or sum(flat) != num_layers:
        options.reading.problem(
            "num_layers", f"{num_layers} layers on {num_stages} stages x {chunks} chunks do not match the split {shown(flat)}"
        )
        return None
    return tuple(tuple(flat[start : start + num_stages]) for start in range(0, len(flat), num_stages))


def with_further(options: Section, model: ModelSpec, layers: Counts | None) -> tuple[ModelSpec, Counts | None]:
    """The model and its split with the layers that predict further tokens (`--mtp-num-layers`), which come behind all others.

    Megatron-Core adds them to the last stage (megatron/core/transformer/multi_token_prediction.py), or where the layout says `m`.
    """
    further = options.integer("mtp_num_layers", "num_nextn_predict_layers", default=0)
    if not further or layers is None:
        return model, layers
    windowed = model.num_windowed_layers + (further if model.num_windowed_layers == model.num_layers else 0)
    every = replace(model, num_layers=model.num_layers + further, num_mtp_layers=further, num_windowed_layers=windowed)
    added = [0] * sum(map(len, layers))
    if options.has("pipeline_model_parallel_layout"):
        added = [stage.count("m") for stage in _layout(options)]
        if sum(added) != further:
            options.reading.problem("mtp_num_layers", f"{further} layers; the pipeline layout places {sum(added)} (m)")
            return model, layers
    else:
        added[-1] = further
    number = iter(added)
    return every, tuple(tuple(count + next(number) for count in row) for row in layers)


def layout_text(layers: Sequence[Sequence[int]], further: int = 0) -> str:
    """The value of `--pipeline-model-parallel-layout` for layers by chunk and stage, for example "Et*5|t*6|t*5L".

    The last `further` layers predict further tokens (`m`).
    """
    parts, ahead = [], sum(map(sum, layers)) - further
    for count in (count for row in layers for count in row):
        main = min(count, ahead)
        ahead -= main
        parts.append("".join(_times(kind, number) for kind, number in (("t", main), ("m", count - main))))
    parts[0] = f"E{parts[0]}"
    parts[-1] = f"{parts[-1]}L"
    return "|".join(parts)


def _times(kind: str, number: int) -> str:
    return "" if number == 0 else kind if number == 1 else f"{kind}*{number}"


def recompute_plan(options: Section, layers: Counts) -> RecomputePlan:
    """The recompute options as a plan."""
    plan = _by_granularity(options, layers)
    if not options.flag("recompute_activation_function", default=False) or plan.all_layers:
        return plan
    asked = options.positive_int("recompute_activation_function_num_layers", default=HIGHEST)
    full = plan.full_layers or tuple((0,) * len(row) for row in layers)
    # MindSpeed counts them behind the layers recomputed in full, in every stage.
    counts = tuple(
        tuple(min(first + asked, room) for first, room in zip(row, rooms, strict=True))
        for row, rooms in zip(full, layers, strict=True)
    )
    return replace(plan, operators={**plan.operators, **dict.fromkeys(ACTIVATION_PATTERNS[:2], counts)})


def _by_granularity(options: Section, layers: Counts) -> RecomputePlan:
    selective = "selective" if options.flag("recompute_activations", default=False) else ""
    kind = options.word("recompute_granularity", default=selective, allowed=("full", "selective"))
    options.asked("recompute_modules", "recompute_method", "recompute_num_layers", "activations_checkpoint_num_layers")
    if kind == "full":
        return _full(options, layers)
    before = options.word("activations_checkpoint_method", default="", allowed=("", "uniform", "block"))  # Megatron-LM 2
    if options.flag("checkpoint_activations", default=False) or before == "uniform":  # of Megatron-DeepSpeed
        return RecomputePlan(all_layers=True)
    if before == "block":
        return _first(layers, options.integer("activations_checkpoint_num_layers", default=1))
    if kind != "selective":
        return RecomputePlan()
    value = options.raw("recompute_modules")
    modules = [str(item) for item in value] if isinstance(value, list) else [str(value)] if value else ["core_attn"]
    for name in modules:
        if name in LISTED_ELSEWHERE:
            options.reading.note(f"--recompute-modules {name}: neither the work done again nor the memory that it frees is counted")
        elif name not in ("core_attn", "mlp", "moe"):
            options.reading.problem(
                "recompute_modules", f"{name!r} must be one of core_attn, mlp, moe, {', '.join(LISTED_ELSEWHERE)}"
            )
    blocks = {"feed_forward": layers} if {"mlp", "moe"} & set(modules) else {}
    return RecomputePlan(attention_core="core_attn" in modules, operators=blocks)


def _full(options: Section, layers: Counts) -> RecomputePlan:
    method = options.word("recompute_method", default="", allowed=("uniform", "block"))
    count = options.positive_int("recompute_num_layers", default=1)
    if not method:
        options.missing("recompute_method", "uniform or block, with --recompute-granularity full,")
    if method == "uniform":
        return RecomputePlan(all_layers=True)
    return _first(layers, count)


def _first(layers: Counts, count: int) -> RecomputePlan:
    return RecomputePlan(full_layers=tuple(tuple(min(count, room) for room in row) for row in layers))


def _even(options: Section, num_layers: int, num_stages: int, chunks: int) -> list[int]:
    """An even split; a first and a last stage may have their own count, and embedding and loss may count as a layer."""
    first, last = (options.integer(f"decoder_{end}_pipeline_num_layers", default=0) for end in ("first", "last"))
    head = options.flag("account_for_embedding_in_pipeline_split", default=False)
    tail = options.flag("account_for_loss_in_pipeline_split", default=False)
    total, stages = num_layers - first - last + head + tail, num_stages * chunks - bool(first) - bool(last)
    if stages <= 0 or total % stages:
        return [num_layers // (num_stages * chunks)] * (num_stages * chunks)
    middle = [total // stages] * stages
    middle[0] -= head
    middle[-1] -= tail
    return [*([first] if first else []), *middle, *([last] if last else [])]


def _listed(options: Section) -> list[int]:
    value = options.raw("num_layer_list")
    items = value if isinstance(value, list) else [value]
    texts = [text for item in items for text in re.split(r"[,\s]+", str(item).strip("[]")) if text]
    if not all(re.fullmatch(r"\d{1,9}", text) for text in texts):
        options.reading.problem("num_layer_list", f"{shown(value)} must be whole numbers, one a stage")
        return []
    return [int(text) for text in texts]


def _layout(options: Section) -> list[str]:
    text = re.sub(r"[,\s]", "", str(options.raw("pipeline_model_parallel_layout")))
    while (found := GROUP.search(text)) and len(text) <= MAX_LAYOUT:
        text = text[: found.start()] + found[1] * min(int(found[2] or 1), MAX_LAYOUT) + text[found.end() :]
    while (repeated := ITEM.search(text)) and len(text) <= MAX_LAYOUT:
        text = text[: repeated.start()] + repeated[1] * min(int(repeated[2]), MAX_LAYOUT) + text[repeated.end() :]
    if len(text) > MAX_LAYOUT or not re.fullmatch(r"[EtmL|]*", text):
        options.reading.problem("pipeline_model_parallel_layout", f"{shown(text)} must be made of E, t, m, L, |, *n and brackets")
        return ["t"]
    return text.split("|")
