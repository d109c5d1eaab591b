"""The plan that Megatron's options state, whatever file they stand in: `_bridge_keys.py` gives them their other names.

Defaults are those of `megatron/training/arguments.py`. The data-parallel size follows from the devices that the launcher asks for;
where the file does not say, one replica is assumed and noted, or the fewest that groups of experts need. Vocabularies are padded
as the program pads them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import lcm
from typing import Any

from perfkit.config.dialects._adapters import Named, with_adapters
from perfkit.config.dialects._compressed import compressed_fields
from perfkit.config.dialects._megatron_extra import group_problems, note_extras, refuse_uncounted, without_empty
from perfkit.config.dialects._megatron_parallel import read_context, read_sharing
from perfkit.config.dialects._megatron_vocabulary import vocabulary
from perfkit.config.dialects._section import Section
from perfkit.config.dialects.args import resolve_variable
from perfkit.config.dialects.dialect import Document
from perfkit.config.dialects.megatron_stages import num_chunks, recompute_plan, stage_layers, with_further
from perfkit.config.dialects.memory_text import environment_limit
from perfkit.core import catalog
from perfkit.core.spec.checks import MAX_LAYERS, nearest_multiples
from perfkit.core.spec.model import Bias, ModelSpec
from perfkit.core.spec.optimizer import OptimizerSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan, uneven
from perfkit.core.spec.software import SoftwareSpec
from perfkit.core.spec.workload import AttentionKernel, Workload

OF_EXPERTS = """moe_ffn_hidden_size moe_intermediate_size moe_router_topk moe_shared_expert_intermediate_size n_shared_experts
    num_shared_experts moe_shared_expert_gate moe_expert_capacity_factor moe_router_enable_expert_bias moe_layer_freq
    first_k_dense_replace expert_interval topk moe_train_capacity_factor disable_moe_token_dropping"""
"""Options that say something of experts alone, and nothing where there are none."""
OF_LATENTS = ("q_lora_rank", "kv_lora_rank")


_MUON = {"name": "muon", "matrix_state_bytes_per_parameter": 4}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adam": {"name": "adam", "state_bytes_per_parameter": 8},
    "sgd": {"name": "sgd", "state_bytes_per_parameter": 4},
    "lion": {"name": "lion", "state_bytes_per_parameter": 4},
    **dict.fromkeys(("muon", "dist_muon"), _MUON),
}
"""What an optimizer keeps beside the weights, by its word for `--optimizer`."""


ADAPTERS = Named(
    ranks=("lora_r",),
    targets=("lora_target_modules",),
    rank=16,
    beside=("lora_alpha", "lora_load", "lora_fusion", "lora_register_forward_hook"),
    others=("lora_modules_to_save",),
)
"""Adapters of MindSpeed-LLM, which trains them where it is given targets."""


def plan_of(options: Section, variables: Mapping[str, str], annotated: Callable[[], Document]) -> Plan:
    """The plan of options; `variables` are those of the launcher, `annotated` gives the document once all is read.

    Raises InputError with every problem, each with line, option and value.
    """
    reading = options.reading
    refuse_uncounted(options)
    sizes = _sizes(options)
    model = _model(options, sizes)
    stages, chunks = sizes["pipeline_parallel_size"], 1
    layers = None
    if model:
        chunks = num_chunks(options, model.num_layers, stages)
        layers = stage_layers(options, model.num_layers, stages, chunks)
        model, layers = without_empty(options, model, layers)
        model, layers = with_further(options, model, layers)
        model = with_adapters(options, model, ADAPTERS) if options.has(*ADAPTERS.targets) else model
    recompute = recompute_plan(options, layers) if layers else None
    note_extras(options, chunks, recompute)
    sizes["data_parallel_size"] = _data_parallel(options, variables, sizes)
    workload = _workload(options, sizes["data_parallel_size"])
    if workload:
        batch = sizes["data_parallel_size"] * workload.micro_batch_size
        group_problems(options, stages, chunks, workload.global_batch_size // batch)
    optimizer, software = _optimizer(options), _software(options, chunks)
    memory_limit = environment_limit(reading, variables)
    sequence_parallel = options.flag("sequence_parallel", default=False)
    sharing, context = read_sharing(options, sizes), read_context(options)
    reading.stop_if_problems()
    return reading.plan(
        model=model,
        workload=workload,
        parallel=ParallelPlan(
            **sizes,
            virtual_pipeline_parallel_size=chunks,
            sequence_parallel=sequence_parallel,
            layers_per_stage=uneven(layers),
            **sharing,
            **context,
        ),
        recompute=recompute,
        optimizer=optimizer,
        memory_limit=memory_limit,
        software=software,
        document=annotated(),
    )


def _sizes(options: Section) -> dict[str, Any]:
    return {
        "tensor_parallel_size": options.positive_int("tensor_model_parallel_size", "model_parallel_size", default=1),
        "pipeline_parallel_size": options.positive_int("pipeline_model_parallel_size", default=1),
        "context_parallel_size": options.positive_int("context_parallel_size", default=1),
        "expert_parallel_size": options.positive_int("expert_model_parallel_size", "moe_expert_parallel_size", default=1),
        "expert_tensor_parallel_size": options.integer("expert_tensor_parallel_size", default=0),
    }


def _data_parallel(options: Section, variables: Mapping[str, str], sizes: Mapping[str, int]) -> int:
    """Replicas: the devices that the launcher asks for over those of one replica."""
    devices = _devices(options, variables)
    one = sizes["tensor_parallel_size"] * sizes["pipeline_parallel_size"] * sizes["context_parallel_size"]
    if devices is None:
        experts = sizes["expert_parallel_size"] * (sizes["expert_tensor_parallel_size"] or sizes["tensor_parallel_size"])
        copies = options.positive_int("num_distributed_optimizer_instances", default=1)
        replicas = lcm(-(-experts // (one // sizes["pipeline_parallel_size"])), copies)
        fewest = "" if replicas == 1 else "; the fewest with room for its groups are taken"
        options.reading.default("data_parallel_size", f"{replicas}: the file does not say how many devices are used{fewest}")
        return replicas
    if devices % one:
        near = nearest_multiples(devices, one)
        options.reading.problem(
            "tensor_model_parallel_size", f"{devices} devices are not divisible by {one} of one replica; nearest is {near}"
        )
        return 1
    return devices // one


def _devices(options: Section, variables: Mapping[str, str]) -> int | None:
    known: Any = resolve_variable("WORLD_SIZE", variables)
    nodes = options.raw("nnodes", "num_nodes")
    nodes = resolve_variable("PET_NNODES", variables) if nodes is None else nodes  # by which torchrun is told, too
    each = options.raw("nproc_per_node", "num_gpus")
    each = resolve_variable("PET_NPROC_PER_NODE", variables) if each is None else each
    stated = options.positive_int("world_size", default=1) if options.has("world_size") else None
    if isinstance(each, int) and isinstance(nodes if nodes is not None else 1, int):
        launched = max(1, each * (nodes or 1))
        if stated not in (None, launched):
            text = f"{stated} is not {nodes or 1} nodes x {each} = {launched} that the launcher starts; nearest is {launched}"
            options.reading.problem("world_size", text)
        return launched
    return known if isinstance(known, int) and known > 0 else stated


def _model(options: Section, sizes: Mapping[str, int]) -> ModelSpec | None:
    h, heads = _required(options, "hidden_size"), _required(options, "num_attention_heads")
    latent = options.flag("multi_latent_attention", "multi_head_latent_attention", default=options.has("qk_nope_head_dim") != "")
    grouped = options.flag("group_query_attention", default=False)
    groups = options.positive_int("num_query_groups", default=1)
    gated = options.flag("swiglu", default=False)
    ffn = options.positive_int("ffn_hidden_size", default=_usual_ffn(options, h) if gated else 4 * h)
    norm = options.word("normalization", default="LayerNorm", allowed=("LayerNorm", "RMSNorm"))
    nope = options.positive_int("qk_head_dim", "qk_nope_head_dim", default=128)
    rope = options.positive_int("qk_pos_emb_head_dim", "qk_rope_head_dim", default=64)
    mindspeed = options.flag("use_g2_attention", default=False) or options.flag("kv_compress", default=False)
    value = options.positive_int("v_head_dim", default=128)
    value = nope if mindspeed else value
    head = options.positive_int("kv_channels", default=max(1, h // heads))
    options.asked(*OF_LATENTS, "multiple_of", "hidden_dim_multiplier")
    layers = _required(options, "num_layers", "encoder_num_layers")
    vocab = vocabulary(options, sizes["tensor_parallel_size"], catalog.model_of_sizes(layers, h, heads, ffn), gated=gated)
    packed = compressed_fields(options, layers)
    return options.reading.build(
        lambda: ModelSpec(
            num_layers=layers,
            hidden_size=h,
            num_attention_heads=heads,
            head_size=value if packed.get("query_lora_rank") else nope + rope if latent else head,
            ffn_hidden_size=ffn,
            vocab_size=vocab,
            gated_ffn=gated,
            clamped_gate=options.raw("activation_func_clamp_value") is not None,
            scaled_positions=options.word("position_embedding_type", default="") == "yarn" and not latent,
            tied_embeddings=not options.flag("untie_embeddings_and_output_weights", default=False),
            norm="rmsnorm" if norm == "RMSNorm" else "layernorm",
            bias=_bias(options),
            max_position_embeddings=_positions(options),
            embedding_norm=options.flag("embed_layernorm", default=False),
            **_experts(options, ffn, layers),
            **{
                "num_key_value_heads": groups if grouped else heads,
                "query_key_norm": options.flag("qk_layernorm", default=False) and not latent,
                "query_lora_rank": options.integer("q_lora_rank", default=0) if latent else 0,
                "kv_lora_rank": options.positive_int("kv_lora_rank", default=512) if latent else 0,
                "nope_head_size": nope if latent else 0,
                "rope_head_size": rope if latent else 0,
                "value_head_size": value if latent else 0,
                **_windows(options, layers),
                **packed,
            },
        )
    )


def _usual_ffn(options: Section, hidden_size: int) -> int:
    """The width of a gated feed-forward that the file does not state: Megatron's own, or FlagScale's next multiple."""
    unit, width = options.integer("multiple_of", default=0), int(8 * hidden_size / 3)
    wider = int(width * options.number("hidden_dim_multiplier", default=1.0))
    return -(-wider // unit) * unit if unit else width // 64 * 64 or 64


def _windows(options: Section, num_layers: int) -> dict[str, Any]:
    """Sliding window: `--window-size LEFT,RIGHT` and `--window-attn-skip-freq`, one layer in so many without, or a list of 0 and 1.

    The token itself is seen beside those to its left (megatron/core/transformer/transformer_config.py).
    """
    value, skip = options.raw("window_size"), options.raw("window_attn_skip_freq")
    if value is None:
        return {}
    texts = re.findall(r"-?\d+", " ".join(map(str, value)) if isinstance(value, list) else str(value))
    if len(texts) != 2 or int(texts[0]) < -1:
        options.reading.problem("window_size", f"{value!r} must be two numbers of tokens, to the left and to the right")
        return {}
    listed = re.sub(r"\s", "", str(skip if skip is not None else 0))
    if listed.isdigit():
        every = int(listed)
        windowed = num_layers - num_layers // every if every > 0 else num_layers
    else:
        pattern = [
            int(one)
            for kind, count in re.findall(r"\[([01,]+)\](?:\*(\d{1,6}))?", listed)
            for one in kind.split(",") * int(count or 1)
        ]
        if len(pattern) != num_layers:
            options.reading.problem(
                "window_attn_skip_freq", f"{skip!r} must be a number or a list of 0 and 1 for {num_layers} layers"
            )
            return {}
        windowed = sum(pattern)
    window = int(texts[0]) + 1
    return {"attention_window": window, "num_windowed_layers": windowed} if window > 0 and windowed else {}


def _experts(options: Section, ffn: int, num_layers: int) -> dict[str, Any]:
    num_experts = options.integer("num_experts", default=0)
    if not num_experts:
        options.asked(*OF_EXPERTS.split())
        return {}
    shared = options.integer("moe_shared_expert_intermediate_size", default=0)
    width = options.positive_int("moe_ffn_hidden_size", "moe_intermediate_size", default=ffn)
    shared = shared or width * options.integer("n_shared_experts", "num_shared_experts", default=0)
    alike = shared % width == 0
    return {
        "num_experts": num_experts,
        "num_experts_per_token": options.positive_int("moe_router_topk", "topk", default=2),
        "expert_ffn_hidden_size": width,
        "num_shared_experts": shared // width if alike else 1,
        "shared_expert_ffn_hidden_size": 0 if alike else shared,
        "shared_expert_gate": options.flag("moe_shared_expert_gate", default=False),
        "expert_capacity_factor": _capacity(options),
        "router_bias": options.flag("moe_router_enable_expert_bias", default=False),
        "num_dense_layers": _dense_layers(options, num_layers),
    }


def _capacity(options: Section) -> float:
    """How many tokens an expert takes at most, against an even share; 0 is all that come."""
    all_taken = options.flag("disable_moe_token_dropping", default=False)  # of Megatron-DeepSpeed
    stated = options.number("moe_expert_capacity_factor", "moe_train_capacity_factor", default=0.0)
    return 0.0 if all_taken else stated


def _dense_layers(options: Section, num_layers: int) -> int:
    """Leading layers without experts out of `--moe-layer-freq`, which is 1 or a pattern such as ([0]*3+[1]*58).

    MindSpeed-LLM's own scripts write -1 for 1: a layer has experts where its number is a multiple.
    """
    value = options.raw("moe_layer_freq")
    every = options.positive_int("expert_interval", default=2 if options.flag("deepspeed", default=False) else 1)
    if value is None and every > 1:
        options.reading.note(f"one layer in {every} has experts; those without are counted before the others")
        return num_layers - num_layers // every
    if value in (None, 1, -1):
        return min(num_layers, max(0, options.integer("first_k_dense_replace", default=0, low=-1)))
    pattern = _layer_pattern(re.sub(r"[\s\"']", "", str(value)))
    num_dense = next((at for at, kind in enumerate(pattern) if kind), len(pattern))
    if len(pattern) == num_layers and all(pattern[num_dense:]):
        return num_dense
    options.reading.problem(
        "moe_layer_freq", f"{value!r} must be 1 or ([0]*a+[1]*b) with a + b = {num_layers}: leading dense layers are covered"
    )
    return 0


def _layer_pattern(text: str) -> list[int]:
    """0 and 1 of every layer out of a sum of repeated lists such as [0]*3+[1]*58, as Megatron computes it; [] for what is none."""
    pattern: list[int] = []
    for piece in text.strip("()").split("+"):
        found = re.fullmatch(r"\[([01](?:,[01])*),?\](?:\*(\d{1,6}))?", piece)
        if found is None:
            return []
        pattern += [int(kind) for kind in found[1].split(",")] * min(int(found[2] or 1), MAX_LAYERS)
    return pattern


def _bias(options: Section) -> Bias:
    linear, qkv = not options.flag("disable_bias_linear", default=False), options.flag("add_qkv_bias", default=False)
    dense = options.flag("add_dense_bias", default=False)
    return "all" if linear else "attention" if qkv and dense else "qkv" if qkv else "none"


def _positions(options: Section) -> int:
    """Learned positions: Megatron's default, unless another kind is asked for."""
    kind = options.word("position_embedding_type", default="learned_absolute")
    limit = options.positive_int("max_position_embeddings", "seq_length", default=1)
    rotary = options.flag("use_rotary_position_embeddings", default=False)
    return limit if kind == "learned_absolute" and not rotary else 0


def _workload(options: Section, data_parallel_size: int) -> Workload | None:
    seq_length = _required(options, "seq_length", "encoder_seq_length")
    micro = _required(options, "micro_batch_size", "batch_size")
    halves = [name for flag, name in (("fp16", "float16"), ("bf16", "bfloat16")) if options.flag(flag, default=False)]
    batch = options.positive_int("global_batch_size", default=micro * data_parallel_size)
    return options.reading.build(
        lambda: Workload(
            seq_length=seq_length,
            micro_batch_size=micro,
            global_batch_size=batch,
            dtype="float8" if options.raw("fp8", "fp8_format") else next(iter(halves), "float32"),
            attention_kernel=_attention(options),
            dropout=options.raw("hidden_dropout") != 0,
        )
    )


def _attention(options: Section) -> AttentionKernel:
    """Transformer Engine picks a fused kernel unless told otherwise; the local layers have one only with --use-flash-attn."""
    local, asked = (
        options.word("transformer_impl", default="transformer_engine") == "local",
        options.flag("use_flash_attn", default=False),
    )
    if options.word("attention_backend", default="auto") in ("unfused", "local"):
        return "unfused"
    return "unfused" if local and not asked else "flash"


def _optimizer(options: Section) -> OptimizerSpec | None:
    full = options.flag("accumulate_allreduce_grads_in_fp32", default=False) or not options.flag("fp16", default=False)
    halved = options.flag("grad_reduce_in_bf16", default=False)
    name = options.word("optimizer", default="adam", allowed=OPTIMIZERS)
    return options.reading.build(
        lambda: OptimizerSpec(
            **OPTIMIZERS.get(name, OPTIMIZERS["adam"]),
            gradient_dtype="bfloat16" if halved else "float32" if full else "float16",
        )
    )


EXPERT_OVERLAPS = ("overlap_moe_expert_parallel_comm", "moe_fb_overlap")
"""Options of Megatron-Core and of MindSpeed by which tokens are exchanged beside the work on another micro batch."""


def _software(options: Section, chunks: int) -> SoftwareSpec:
    """Megatron overlaps what it is told to, but for the transfers between interleaved stages, where it is told not to."""
    return SoftwareSpec(
        framework="deepspeed" if options.flag("deepspeed", default=False) else "megatron",
        overlap_dp=options.flag("overlap_grad_reduce", default=False),
        overlap_tp=options.flag("tp_comm_overlap", default=False),
        overlap_pp=chunks > 1 and not options.flag("no_overlap_p2p_communication", default=False),
        overlap_ep=True in [options.flag(name, default=False) for name in EXPERT_OVERLAPS],
    )


def _required(options: Section, *keys: str) -> int:
    if not options.has(*keys):
        options.missing(keys[0], "a whole number")
        return 1
    return options.positive_int(*keys, default=1)
