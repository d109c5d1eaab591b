"""Megatron-Bridge's groups of settings by the names of Megatron's options, and back.

A `ConfigContainer` that is saved (`to_yaml`) names classes and types as mappings with `_target_`; here they are words. What stands
in `mixed_precision` and `comm_overlap` wins over what the model and the gradients say, as it does when the program starts
(`NVIDIA-NeMo/Megatron-Bridge docs/megatron-lm-to-megatron-bridge.md`, `src/megatron/bridge/training/comm_overlap.py`,
`training/mixed_precision.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from perfkit.config.dialects.megatron_options import FLAGS
from perfkit.config.dialects.splice import value_at

Path = tuple[str, ...]
SAME_NAMES = """tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size expert_model_parallel_size
    expert_tensor_parallel_size sequence_parallel cp_comm_type hierarchical_context_parallel_sizes
    account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split pipeline_model_parallel_layout
    num_layers hidden_size ffn_hidden_size num_attention_heads num_query_groups kv_channels normalization position_embedding_type
    qk_layernorm add_qkv_bias multi_latent_attention q_lora_rank kv_lora_rank qk_head_dim qk_pos_emb_head_dim v_head_dim
    make_vocab_size_divisible_by window_size window_attn_skip_freq mtp_num_layers hidden_dropout attention_dropout attention_backend
    transformer_impl moe_router_topk moe_ffn_hidden_size moe_shared_expert_intermediate_size moe_shared_expert_gate
    moe_router_enable_expert_bias moe_expert_capacity_factor moe_layer_freq recompute_granularity recompute_method
    recompute_num_layers recompute_modules activation_func_clamp_value"""
PLACES: dict[str, tuple[Path, ...]] = {
    **{name: (("model", name),) for name in SAME_NAMES.split()},
    "num_experts": (("model", "num_moe_experts"),),
    "swiglu": (("model", "gated_linear_unit"),),
    "num_virtual_stages_per_pipeline_rank": (("model", "virtual_pipeline_model_parallel_size"),),
    "microbatch_group_size_per_virtual_pipeline_stage": (("model", "microbatch_group_size_per_vp_stage"),),
    "decoder_first_pipeline_num_layers": (("model", "num_layers_in_first_pipeline_stage"), ("model", "first_pipeline_num_layers")),
    "decoder_last_pipeline_num_layers": (("model", "num_layers_in_last_pipeline_stage"), ("model", "last_pipeline_num_layers")),
    "seq_length": (("dataset", "sequence_length"), ("dataset", "seq_length"), ("model", "seq_length")),
    "micro_batch_size": (("train", "micro_batch_size"),),
    "global_batch_size": (("train", "global_batch_size"),),
    "bf16": (("mixed_precision", "bf16"), ("model", "bf16")),
    "fp16": (("mixed_precision", "fp16"), ("model", "fp16")),
    "fp8": (("mixed_precision", "fp8"), ("model", "fp8")),
    "accumulate_allreduce_grads_in_fp32": (("mixed_precision", "grad_reduce_in_fp32"), ("ddp", "grad_reduce_in_fp32")),
    "optimizer": (("optimizer", "optimizer"),),
    "lora_r": (("peft", "dim"),),
    "lora_target_modules": (("peft", "target_modules"),),
    "tokenizer_model": (("tokenizer", "tokenizer_model"),),
    "tokenizer_type": (("tokenizer", "tokenizer_type"),),
    "use_distributed_optimizer": (("ddp", "use_distributed_optimizer"), ("optimizer", "use_distributed_optimizer")),
    "num_distributed_optimizer_instances": (("ddp", "num_distributed_optimizer_instances"),),
    "use_megatron_fsdp": (("ddp", "use_megatron_fsdp"), ("dist", "use_megatron_fsdp")),
    "data_parallel_sharding_strategy": (("ddp", "data_parallel_sharding_strategy"),),
    "overlap_grad_reduce": (("comm_overlap", "overlap_grad_reduce"), ("ddp", "overlap_grad_reduce")),
    "tp_comm_overlap": (("comm_overlap", "tp_comm_overlap"), ("model", "tp_comm_overlap")),
    "overlap_moe_expert_parallel_comm": (
        ("comm_overlap", "overlap_moe_expert_parallel_comm"),
        ("model", "overlap_moe_expert_parallel_comm"),
    ),
}
"""Where an option of Megatron stands, the place that wins first; a null there says nothing."""
ADAPTERS = ("lora_r", "lora_target_modules")
"""Options of adapters, which are read only where they are counted."""
OPPOSITE: dict[str, tuple[Path, ...]] = {
    "untie_embeddings_and_output_weights": (("model", "share_embeddings_and_output_weights"),),
    "disable_bias_linear": (("model", "add_bias_linear"),),
    "no_overlap_p2p_communication": (("comm_overlap", "overlap_p2p_comm"), ("model", "overlap_p2p_comm")),
}
"""Options that say the opposite of what stands here."""
VOCABULARY, PADDED = ("model", "vocab_size"), ("model", "should_pad_vocab")
PRESET, OVERLAP = ("mixed_precision",), ("comm_overlap",)
REPLICAS = ("comm_overlap", "data_parallel_size")
OVERLAPPED = {"overlap_grad_reduce", "no_overlap_p2p_communication"}
BACKENDS = {"1": "flash", "2": "fused", "3": "unfused", "4": "local", "5": "auto"}
"""Numbers of `megatron.core.transformer.enums.AttnBackend`."""
HALVES = ("bf16", "fp16")
NEVER = (
    "tokenizer_model",
    "tokenizer_type",
    "group_query_attention",
    "max_position_embeddings",
    "world_size",
    "padded_vocab_size",
    "vocab_size",
    "grad_reduce_in_bf16",
)
"""Options that follow from others here."""
GROUPED = ("language_model", "model_parallel")
"""Groups of the YAML that Megatron-LM (`--yaml-cfg`) and the tests of MindSpeed-Core-MS have; options stand beside them."""
FIELDS = {place[-1]: option for option, places in (PLACES | OPPOSITE).items() for place in places}
OPPOSITE_FIELDS = {place[-1] for places in OPPOSITE.values() for place in places}
COMPUTED_IN = {"bfloat16": "bf16", "float16": "fp16"}


def plain(values: Any) -> Any:
    """Parsed YAML with its classes, types and members of enumerations as words; keys of the program's own are left out."""
    if isinstance(values, list):
        return [plain(value) for value in values]
    if not isinstance(values, Mapping):
        return values
    kept = {key: plain(value) for key, value in values.items() if not str(key).startswith("_") or not str(key).endswith("_")}
    target = str(values.get("_target_", "")).rpartition(".")[2]
    if kept or not target or not {"_call_", "_partial_"} & set(values):
        return kept
    arguments = values.get("_args_")
    if target == "AttnBackend" and isinstance(arguments, list) and arguments:
        return BACKENDS.get(str(arguments[0]), str(arguments[0]))
    return values.get("_name_", target)


def flat(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The options that the groups state, and under which name each stands in the file."""
    options: dict[str, Any] = {}
    names: dict[str, str] = {}

    def put(option: str, value: Any, *place: str) -> None:
        options[option], names[option] = value, ".".join(place)

    beside, grouped = isinstance(value_at(values, OVERLAP), Mapping), GROUPED[0] in values
    if grouped:
        _ungrouped(values, put)
    for option, places in (PLACES | OPPOSITE).items() if not grouped else ():
        # Where the overlaps are chosen in a group of their own, what it leaves open is on.
        where = places[:1] if beside and option in OVERLAPPED else places
        place = next((one for one in where if value_at(values, one) is not None), None)
        if place is not None:
            value = value_at(values, place)
            put(option, not value if option in OPPOSITE and isinstance(value, bool) else value, *place)
        elif beside and option == "overlap_grad_reduce":
            put(option, True, *where[0])
    _precision(value_at(values, PRESET), put)
    if (size := value_at(values, VOCABULARY)) is not None:
        put("vocab_size" if value_at(values, PADDED) else "padded_vocab_size", size, *VOCABULARY)
    if "num_query_groups" in options:
        put("group_query_attention", True, names["num_query_groups"])
    if not grouped and options.get("bf16") and options.get("accumulate_allreduce_grads_in_fp32") is False:
        put("grad_reduce_in_bf16", True, *PLACES["accumulate_allreduce_grads_in_fp32"][1])
    if options.get("num_virtual_stages_per_pipeline_rank", 1) == 1:
        options.pop("no_overlap_p2p_communication", None)  # nothing runs beside the transfers of one chunk
    pattern = options.get("moe_layer_freq")
    if isinstance(pattern, list) and set(map(str, pattern)) <= {"0", "1"} and pattern == sorted(pattern):
        dense = pattern.count(0)
        options["moe_layer_freq"] = f"([0]*{dense}+[1]*{len(pattern) - dense})" if dense else 1
    return options, names


def _ungrouped(values: Mapping[str, Any], put: Any) -> None:
    """Fields of the groups and options beside them (`megatron/training/yaml_arguments.py`); a null says nothing."""
    for place, value in stated_places(values).items():
        name = place[-1]
        if value is None:
            continue
        if name in OPPOSITE_FIELDS and isinstance(value, bool):
            put(FIELDS[name], not value, *place)
        elif name == "normalization":
            put(name, str(value).removeprefix("Fused"), *place)
        elif name == "compute_dtype" and str(value) in COMPUTED_IN:
            put(COMPUTED_IN[str(value)], True, *place)
        elif name == "activation_func":
            if value == "swiglu":
                put("swiglu", True, *place)
        elif name == "optimizer" and "adam" in str(value).lower():
            put(name, "adam", *place)  # mint.AdamW, AdamWeightDecay
        elif not (name == "gated_linear_unit" and not value) and not (name == "moe_expert_capacity_factor" and value == -1):
            put(FIELDS.get(name, name), value, *place)


def stated_places(values: Mapping[str, Any]) -> dict[Path, Any]:
    """What a file in plain groups states, by its place: the groups' fields, then what stands beside them."""
    found: dict[Path, Any] = {}
    for group in GROUPED:
        inside = values.get(group)
        found |= {(group, str(name)): value for name, value in inside.items()} if isinstance(inside, Mapping) else {}
    return found | {(str(name),): value for name, value in values.items() if name not in GROUPED}


def _precision(preset: Any, put: Any) -> None:
    """A recipe by its name, for example bf16_mixed or bf16_with_fp8_current_scaling_mixed (training/mixed_precision.py)."""
    if not is_recipe(preset):
        return
    for half in HALVES:
        put(half, half in preset, *PRESET)
    if "fp8" in preset:
        put("fp8", "hybrid", *PRESET)
    put("accumulate_allreduce_grads_in_fp32", "bf16" in preset, *PRESET)


def is_recipe(preset: Any) -> bool:
    """Whether this is the name of a recipe of mixed precision, which says in which half precision the products are."""
    return isinstance(preset, str) and any(half in preset for half in HALVES)


def read_names(values: Mapping[str, Any], used: Collection[str]) -> set[str]:
    """The dotted names of all places that are read: what a place that wins leaves unsaid is read too."""
    if GROUPED[0] in values:
        known = {*used, *FIELDS.values(), "compute_dtype", "activation_func"}
        return {".".join(place) for place in stated_places(values) if FIELDS.get(place[-1], place[-1]) in known}
    places = [place for option, every in (PLACES | OPPOSITE).items() if option not in ADAPTERS for place in every]
    places += [("peft",)] if set(ADAPTERS) <= set(used) else []
    recipe = [PRESET] if is_recipe(value_at(values, PRESET)) else []
    return {".".join(place) for place in (*places, VOCABULARY, PADDED, REPLICAS, *recipe)}


def changes_of(options: Mapping[Path, Any], values: Mapping[str, Any]) -> dict[Path, Any]:
    """Changed options as changed settings, each where the file states it; options that nothing here says are left out."""
    changed: dict[Path, Any] = {}
    if GROUPED[0] in values:
        return _regrouped(options, stated_places(values))
    beside = isinstance(value_at(values, OVERLAP), Mapping)
    for (option,), value in options.items():
        if option in NEVER:
            continue
        places = (PLACES | OPPOSITE).get(option, ())
        if beside and option in OVERLAPPED:
            places = places[:1]
        place = next((one for one in places if value_at(values, one) is not None), next(iter(places[-1:]), None))
        if place is not None:
            # An option of Megatron's that is off is not given; a field here is false.
            off = value is None and option in FLAGS
            changed[place] = not value if option in OPPOSITE else False if off else value
    given = {option: value for (option,), value in options.items()}
    if "padded_vocab_size" in given or "vocab_size" in given:
        padded = given.get("padded_vocab_size") is not None
        changed[VOCABULARY] = given["padded_vocab_size"] if padded else given["vocab_size"]
        changed[PADDED] = not padded
    return changed


def _regrouped(options: Mapping[Path, Any], stated: Mapping[Path, Any]) -> dict[Path, Any]:
    """Changed options in plain groups: where the file states one of a name, else beside the groups."""
    places: dict[str, Path] = {}
    for place in stated:
        places.setdefault(FIELDS.get(place[-1], place[-1]), place)
    changed: dict[Path, Any] = {}
    for (option,), value in options.items():
        place = places.get(option, (option,))
        if option == "world_size" or (value is None and place not in stated):
            continue
        changed[place] = not value if place[-1] in OPPOSITE_FIELDS else value
    return changed
