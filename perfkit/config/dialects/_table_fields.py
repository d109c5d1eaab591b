"""Fields of the plans of a table: what the rows state, and the defaults of what they do not.

An activation stands for an architecture: `gelu` for GPT (LayerNorm, biases, learned positions, dropout in Megatron and DeepSpeed;
arXiv 2005.14165), `swiglu` for Llama (RMSNorm, no biases, rotary positions; arXiv 2302.13971), `squared-relu` for Nemotron-4
(LayerNorm, no biases, rotary positions; arXiv 2402.16819, section 2). An empty activation is `swiglu`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from perfkit.config.dialects._table_cells import LARGEST, Cells, coded, filled, first_of, listed, said
from perfkit.config.dialects._table_names import (
    ACTIVATIONS,
    ALGORITHMS,
    BIASES,
    FRAMEWORKS,
    IMPLEMENTATIONS,
    KERNELS,
    MIXTURES,
    NORMS,
    OPTIMIZERS,
    POSITIONS,
    SHARDINGS,
    STATE_TYPES,
    WEIGHT_TYPES,
    plain,
)
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.plan_columns import FIELDS, Coded, Codes, Flags, Floats, combined
from perfkit.core.spec import model, parallel
from perfkit.core.spec.checks import MAX_LAYERS, nearest_multiples
from perfkit.core.spec.compressed import CompressedAttention
from perfkit.core.spec.optimizer import OptimizerSpec
from perfkit.core.spec.software import OVERLAPS, SoftwareSpec

Columns = dict[str, Any]

REQUIRED = ("num_layers", "hidden_size", "num_attention_heads", "ffn_hidden_size", "vocab_size", "seq_length")
GROUPS = ("tensor_parallel_size", "pipeline_parallel_size", "virtual_pipeline_parallel_size", "context_parallel_size")
LATENT = ("query_lora_rank", "kv_lora_rank", "nope_head_size", "rope_head_size", "value_head_size")
SIGNATURE = (
    *("hidden_size", "num_attention_heads", "num_key_value_heads", "ffn_hidden_size", "vocab_size"),
    *("num_experts", "num_experts_per_token", "expert_ffn_hidden_size"),
)
"""Sizes by which a mixture model of the catalogue is known; no word of a table is read for it."""
WINDOWS = ("attention_window", "num_windowed_layers")
AT_ONCE = ("maxtext",)
"""Programs that take a replica's share of the batch at once unless told otherwise (MaxText, gradient_accumulation_steps: 1)."""
SWITCHES = (
    *("tied_embeddings", "clamped_gate", "scaled_positions", "embedding_norm", "query_key_norm"),
    *("shared_expert_gate", "router_bias", "sequence_parallel"),
)


def read_sizes(cells: Cells) -> Columns:
    """Sizes of the model, its groups and its batch, without empty cells."""
    ones = (*model.SIZES, *parallel.SIZES, "seq_length", "micro_batch_size", "global_batch_size", "n_devices")
    sizes = {name: cells.sizes(name, 0 if name in ("num_key_value_heads", "head_size") else 1) for name in ones}
    sizes |= {name: cells.sizes(name, 0) for name in (*model.OPTIONAL_SIZES, *parallel.OPTIONAL_SIZES, "zero_stage")}
    sizes["expert_capacity_factor"] = filled(cells.numbers("expert_capacity_factor"), 0.0)
    for name in REQUIRED:
        told = {row for row, notes in cells.problems.items() if any(note.startswith(f"{cells.label(name)} ") for note in notes)}
        missing = np.isnan(sizes[name])
        missing[list(told)] = False
        cells.problem(missing, said(f"{cells.label(name)} is not stated"))
    _fill_groups(cells, sizes)
    _fill_attention(cells, sizes)
    _fill_model(cells, sizes)
    _fill_batch(cells, sizes)
    experts, groups = filled(sizes["num_experts"], 0.0), sizes["expert_parallel_size"]
    names = [cells.label(name) for name in ("expert_parallel_size", "num_experts")]
    cells.problem(
        (groups > 1) & (experts == 0), lambda i: f"{names[0]} = {groups[i]:g} needs {names[1]}; nearest is {names[0]} = 1"
    )
    for name in (*model.OPTIONAL_SIZES, *parallel.OPTIONAL_SIZES):
        sizes[name] = filled(sizes[name], _borrowed(sizes) if name == "expert_tensor_parallel_size" else 0.0)
    return sizes


def at_once(cells: Cells) -> Flags:
    """Rows of programs that accumulate no gradients."""
    return cells.texts("framework").flags(lambda word: plain(word) in AT_ONCE)


def _borrowed(sizes: Columns) -> Floats:
    """How far a single expert is split where experts take the devices of the tensor group too, as the replicas do not suffice."""
    replicas, experts = sizes["data_parallel_size"] * sizes["context_parallel_size"], sizes["expert_parallel_size"]
    devices = replicas * sizes["tensor_parallel_size"]
    borrowed = (filled(sizes["num_experts"], 0.0) > 0) & (replicas % experts != 0) & (devices % experts == 0)
    return np.where(borrowed, devices / experts, 0.0)


def _fill_groups(cells: Cells, sizes: Columns) -> None:
    """Groups that are not stated have one rank; data parallel has the devices that are left."""
    for name in (*GROUPS, "expert_parallel_size", "sequence_chunks", "micro_batch_interleave_size"):
        if name in GROUPS[:2]:
            cells.assume(np.isnan(sizes[name]), said(f"{cells.label(name)} = 1"))
        sizes[name] = filled(sizes[name], 1.0)
    t, p, _, c = (sizes[name] for name in GROUPS)
    stated = sizes.pop("n_devices")
    left = np.maximum(np.floor(stated / (t * p * c)), 1.0)
    unknown = np.isnan(stated) & np.isnan(sizes["data_parallel_size"])
    cells.assume(unknown, said(f"{cells.label('data_parallel_size')} = 1"))
    d = sizes["data_parallel_size"] = filled(filled(sizes["data_parallel_size"], left), 1.0)
    names = [cells.label(name) for name in ("n_devices", "data_parallel_size", *GROUPS[:2], GROUPS[3])]
    cells.problem(
        filled(stated, d * t * p * c) != d * t * p * c,
        lambda i: (
            f"{names[0]} = {stated[i]:g} is not {names[1]} {d[i]:g} x {names[2]} {t[i]:g} x {names[3]} {p[i]:g} x {names[4]} "
            f"{c[i]:g} = {d[i] * t[i] * p[i] * c[i]:g}; " + _fitting(names, stated[i], t[i] * p[i] * c[i])
        ),
    )


def _fitting(names: list[str], devices: float, rest: float) -> str:
    if devices % rest == 0:
        return f"nearest is {names[1]} = {devices / rest:g}"
    near = f"; nearest is {names[0]} = {nearest_multiples(int(devices), int(rest))}" if max(devices, rest) < 1e9 else ""
    return f"{' x '.join(names[2:])} = {rest:g} must divide {devices:g}{near}"


def _fill_attention(cells: Cells, sizes: Columns) -> None:
    """Latent attention and sliding windows of the catalogue's model that has all of these sizes but the number of layers.

    Tables of measurements seldom have columns for them. Where a row states one of the fields, its attention is as the row says.
    """
    left = np.all([np.isnan(sizes[field]) for field in (*LATENT, *WINDOWS)], axis=0) & (filled(sizes["num_experts"], 0.0) > 0)
    for name, known in catalog.models().items() if left.any() else ():
        if not known.num_experts or not (known.kv_lora_rank or known.attention_window or known.compressed):
            continue
        rows = left & np.all([sizes[field] == getattr(known, field) for field in SIGNATURE], axis=0)
        if not rows.any():
            continue
        left &= ~rows
        cells.assume(rows, said(f"attention of {name}"))
        for field in (*LATENT, "attention_window", "residual_streams"):
            sizes[field] = np.where(rows, getattr(known, field), sizes[field])
        if known.kv_lora_rank or known.compressed:
            sizes["head_size"] = np.where(rows, known.head_size, sizes["head_size"])
        share = known.num_windowed_layers / known.num_layers
        sizes["num_windowed_layers"] = np.where(rows, np.floor(share * sizes["num_layers"]), sizes["num_windowed_layers"])


def read_compressed(sizes: Columns) -> Coded[CompressedAttention | None]:
    """The compressed attention of the catalogue's model that has all of a row's sizes."""
    codes = np.zeros(len(sizes["num_layers"]), dtype=np.intp)
    values: list[CompressedAttention | None] = [None]
    for known in catalog.models().values():
        if known.compressed:
            same = [sizes[field] == getattr(known, field) for field in (*SIGNATURE, "num_layers", "residual_streams")]
            codes[np.all(same, axis=0)] = len(values)
            values.append(known.compressed)
    return Coded(codes, tuple(values))


def _fill_model(cells: Cells, sizes: Columns) -> None:
    # What is missing is a problem of the row already; its place is taken by something that contradicts nothing.
    t, p, v, c = (sizes[name] for name in GROUPS)
    fitting = {"num_attention_heads": t, "num_layers": np.minimum(p * v, MAX_LAYERS), "seq_length": c}
    for name in REQUIRED:
        sizes[name] = filled(sizes[name], fitting.get(name, 1.0))
    heads = sizes["num_attention_heads"]
    for name, usual in (("num_key_value_heads", heads), ("head_size", np.maximum(np.floor(sizes["hidden_size"] / heads), 1.0))):
        sizes[name] = np.where(sizes[name] > 0, sizes[name], usual)
    mixed, narrow = filled(sizes["num_experts"], 0.0) > 0, ~(sizes["expert_ffn_hidden_size"] > 0)
    width = sizes["ffn_hidden_size"]
    cells.assume(mixed & narrow, lambda i: f"{cells.label('expert_ffn_hidden_size')} = {width[i]:g}")
    sizes["expert_ffn_hidden_size"] = np.where(mixed & narrow, width, sizes["expert_ffn_hidden_size"])


def _fill_batch(cells: Cells, sizes: Columns) -> None:
    """A batch that is not stated is one micro batch a replica, four a stage with a pipeline.

    Of a program that accumulates no gradients (`AT_ONCE`) a replica's share of the batch is the micro batch.
    """
    micro, whole = "micro_batch_size", "global_batch_size"
    share = sizes[whole] / sizes["data_parallel_size"]
    known = np.isnan(sizes[micro]) & at_once(cells) & (share >= 1) & (share == np.floor(share))
    cells.assume(known, lambda i: f"{cells.label(micro)} = {share[i]:g}, which this program takes at once")
    sizes[micro] = np.where(known, share, sizes[micro])
    cells.assume(np.isnan(sizes[micro]) & at_once(cells), said(f"{cells.label(micro)} = 1"))
    sizes[micro] = filled(sizes[micro], 1.0)
    p = sizes["pipeline_parallel_size"]
    once = sizes[micro] * sizes["data_parallel_size"] * sizes["micro_batch_interleave_size"]
    usual = once * np.where(p > 1, 4 * p, 1.0)
    cells.assume(np.isnan(sizes[whole]), lambda i: f"{cells.label(whole)} = {usual[i]:g}")
    sizes[whole] = filled(sizes[whole], usual)


def read_shares(cells: Cells, sizes: Columns, per_node: Floats, fsdp: Flags) -> Columns:
    """Who shares the optimizer state, and what: all replicas unless fewer are stated, inside a node with `hsdp`.

    A level, or the framework `fsdp`, says that something is shared; where nothing does, nothing is.
    """
    stage, level = sizes.pop("zero_stage"), cells.sizes("optimizer_shard_level", 1)
    strategies, label = cells.texts("sharding"), cells.label("zero_stage")
    strategy = cells.chosen("sharding", SHARDINGS, 0).numbers(float)
    cells.problem(
        (strategy > 0) & (filled(stage, strategy) != strategy),
        lambda i: (
            f"{cells.label('zero_stage')} = {stage[i]:g} contradicts sharding = {strategies[i]!r}; nearest is {strategy[i]:g}"
        ),
    )
    cells.problem(filled(stage, 0.0) > 3, lambda i: f"{label} = {stage[i]:g} must be 0, 1, 2 or 3")
    stage = np.where(np.isnan(stage) & (strategy > 0), strategy, stage)
    stated, whole = sizes["optimizer_shard_size"], sizes["data_parallel_size"] * sizes["context_parallel_size"]
    inside = np.where(strategies.is_("hsdp"), np.gcd(np.minimum(whole, LARGEST).astype(np.int64), per_node.astype(np.int64)), whole)
    names = [cells.label(name) for name in ("zero_stage", "optimizer_shard_size", "optimizer_shard_level")]
    cells.problem(
        (stage == 0) & (stated > 1),
        lambda i: f"{names[0]} = 0 contradicts {names[1]} = {stated[i]:g}; nearest is {names[0]} = 1 or {names[1]} = 1",
    )
    cells.problem(
        (stage <= 3) & (filled(level, np.maximum(stage, 1)) != np.maximum(stage, 1)),
        lambda i: f"{names[0]} = {stage[i]:g} contradicts {names[2]} = {level[i]:g}; nearest is {names[0]} = {level[i]:g}",
    )
    named = [f"{label} = {{:g}}", "sharding = {!r}"]
    cells.problem(
        (stage > 0) & (stated == 1) & (whole > 1),
        lambda i: (
            f"{named[1].format(strategies[i]) if strategy[i] > 0 else named[0].format(stage[i])} contradicts {names[1]} = 1; "
            f"nearest is {names[1]} = {inside[i]:g}"
        ),
    )
    unsaid = np.isnan(stage) & np.isnan(stated) & (whole > 1)
    shared = unsaid & (fsdp | ~np.isnan(level))
    stage = np.where(shared, filled(level, 3.0), stage)
    cells.assume(shared & np.isnan(level), said(f"{label} = 3, which fsdp shares"))
    cells.assume(shared, lambda i: f"{names[1]} = {inside[i]:g}")
    cells.assume(unsaid & ~shared, said(f"{label} = 0"))
    size = np.where(np.isnan(stage), filled(stated, 1.0), np.where(stage > 0, filled(stated, inside), 1.0))
    return {"optimizer_shard_size": size, "optimizer_shard_level": filled(level, np.where(stage > 0, np.clip(stage, 1, 3), 1.0))}


def read_model(cells: Cells, sizes: Columns, framework: Coded[str]) -> Columns:
    """Words and switches of the model and its work."""
    activation = cells.chosen("activation", ACTIVATIONS, "swiglu")
    stated = np.all([~cells.texts(name).is_("") for name in ("gated_ffn", "norm", "bias")], axis=0)
    cells.assume(cells.texts("activation").is_("") & ~stated, said(f"{cells.label('activation')} = swiglu"))
    gpt, llama, like = activation.is_("gelu"), activation.is_("swiglu"), _clamped(cells, sizes)
    switches = {name: filled(cells.switches(name), 0.0) > 0 for name in SWITCHES}
    for name in ("clamped_gate", "scaled_positions"):
        switches[name] |= like & np.isnan(cells.switches(name))
    learned = _positions(cells, gpt) & (sizes["max_position_embeddings"] == 0)
    sizes["max_position_embeddings"] = np.where(learned, sizes["seq_length"], sizes["max_position_embeddings"])
    alone = switches["sequence_parallel"] & (sizes["tensor_parallel_size"] == 1)
    cells.assume(alone, said(f"{cells.label('sequence_parallel')} = 0, as {cells.label('tensor_parallel_size')} = 1"))
    switches["sequence_parallel"] &= ~alone
    dropout = gpt & framework.is_("megatron", "deepspeed")
    return switches | {
        "model_name": cells.texts("model_name"),
        "gated_ffn": filled(cells.switches("gated_ffn"), _ones(llama)) > 0,
        "norm": first_of(cells.chosen("norm", NORMS, ""), _either(llama, "rmsnorm", "layernorm")),
        "bias": first_of(cells.chosen("bias", BIASES, ""), _either(gpt | like, "all", "none")),
        "dropout": filled(cells.switches("dropout"), _ones(dropout)) > 0,
        "attention_kernel": cells.chosen("attention_kernel", KERNELS, "flash"),
        "context_parallel_algorithm": cells.chosen("context_parallel_algorithm", ALGORITHMS, "ring"),
    }


def _clamped(cells: Cells, sizes: Columns) -> Flags:
    """Rows with the sizes of a model whose experts have biases and a clamped gate (gpt-oss), and no column that says of either."""
    found = np.zeros(len(sizes["num_layers"]), dtype=np.bool_)
    for name, known in catalog.models().items():
        if known.num_experts and known.clamped_gate:
            rows = ~found & np.all([sizes[field] == getattr(known, field) for field in SIGNATURE], axis=0)
            rows &= cells.texts("bias").is_("") & np.isnan(cells.switches("clamped_gate"))
            cells.assume(rows, said(f"biases, limits and positions of {name}"))
            found |= rows
    return found


def _positions(cells: Cells, gpt: Flags) -> Flags:
    """Whether positions are learned: as the row says, else those of GPT unless it counts them."""
    words = cells.chosen("positions", POSITIONS, "")
    counted = ~np.isnan(cells.numbers("max_position_embeddings"))
    return np.where(words.is_(""), gpt & ~counted, words.is_("learned"))


def _ones(mask: Flags) -> Floats:
    return mask.astype(np.float64)


def _either(mask: Flags, yes: str, no: str) -> Coded[str]:
    return Coded((~mask).astype(np.intp), (yes, no))


def read_software(cells: Cells) -> Columns:
    """The training program as far as the rows state it."""
    releases = cells.texts("release")
    for code, text in enumerate(releases.values):
        try:
            SoftwareSpec(release=text)
        except InputError:
            problem = f"{cells.label('release')} = {text!r} must be numbers with dots, for example 1.3 or 2.3.1"
            cells.problem(releases.codes == code, said(problem))
    return {
        "framework": cells.chosen("framework", FRAMEWORKS, ""),
        "release": releases,
        **{name: cells.switches(name) for name in OVERLAPS},
        "transformer_impl": cells.chosen("transformer_impl", IMPLEMENTATIONS, ""),
    }


def read_states(cells: Cells, dtype: Coded[str], framework: Coded[str]) -> Columns:
    """Precisions of what is kept for every parameter.

    Gradients are fp32 unless the row trains in fp16 (Megatron sums those in fp16) or its framework mixes precisions purely;
    DeepSpeed's bf16 optimizer keeps 16-bit gradients beside the fp32 sum.
    """
    pure = cells.chosen("mixed_precision", MIXTURES, "default").is_("pure")
    kinds = np.where(dtype.is_("float16"), 0, np.where(pure & dtype.is_("bfloat16"), 1, 2))
    gradients = first_of(cells.chosen("gradient_dtype", STATE_TYPES, ""), Coded(kinds, ("float16", "bfloat16", "float32")))
    beside = framework.is_("deepspeed") & dtype.is_("bfloat16")
    extra = np.where(beside, np.where(gradients.is_("float32"), 2.0, 4.0), 0.0)
    found = combined(
        cells.texts("optimizer_name"),
        gradients,
        coded(cells.sizes("state_bytes_per_parameter", 0)),
        coded(cells.sizes("matrix_state_bytes_per_parameter", -1)),
        coded(filled(cells.sizes("gradient_accumulation_bytes_per_parameter", 0), extra)),
        coded(filled(cells.switches("master_weights"), 1.0)),
        cells.chosen("master_dtype", STATE_TYPES, "float32"),
        *(cells.chosen(name, WEIGHT_TYPES, "") for name in ("parameter_dtype", "moment_dtype")),
    )
    specs = []
    for code, values in enumerate(found.values):
        try:
            specs.append(_optimizer(cells.label("optimizer_name"), *values))
        except InputError as error:
            specs.append(OptimizerSpec())
            for problem in error.problems:
                cells.problem(found.codes == code, said(problem))
    return _columns(Coded(found.codes, tuple(specs)))


def _optimizer(label: str, text: str, gradients: str, state: float, matrix: float, *rest: Any) -> OptimizerSpec:
    """One optimizer; a name that is not known needs the bytes of its state beside it."""
    extra, master, master_dtype, parameters, moments = rest
    if text and plain(text) not in OPTIMIZERS and np.isnan(state):
        raise InputError("row", [f"{label} = {text!r} must be one of {listed(text, OPTIMIZERS)}"])
    usual = OPTIMIZERS.get(plain(text), OptimizerSpec(name=text or "adamw"))
    usual_state = -1 if moments else usual.state_bytes_per_parameter
    return OptimizerSpec(
        name=usual.name,
        state_bytes_per_parameter=usual_state if np.isnan(state) else int(state),
        master_weights=master > 0,
        gradient_dtype=gradients,
        matrix_state_bytes_per_parameter=usual.matrix_state_bytes_per_parameter if np.isnan(matrix) else int(matrix),
        gradient_accumulation_bytes_per_parameter=int(extra),
        parameter_dtype=parameters,
        master_dtype=master_dtype,
        moment_dtype=moments,
    )


def _columns(specs: Coded[OptimizerSpec]) -> Columns:
    """The fields of the optimizers as columns."""
    found: Columns = {}
    for name, field in FIELDS.items():
        if field.part == "optimizer":
            values = [getattr(spec, field.name) for spec in specs.values]
            found[name] = _repeated(field.kind, values, specs.codes)
    return found


def _repeated(kind: str, values: list[Any], codes: Codes) -> Any:
    """A column of the values at `codes`."""
    if kind.startswith("Coded"):
        return Coded(codes, tuple(values))
    return np.array(values, dtype=np.bool_ if kind == "Flags" else np.float64)[codes]
