"""Hugging Face `config.json`: the shape of a model; what the job is, it does not say, and the defaults taken for it are listed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from perfkit.config.dialects._huggingface_model import family_of, inner, read_model
from perfkit.config.dialects._json_object import parse
from perfkit.config.dialects._section import Reading, Section
from perfkit.config.dialects.dialect import Changes, Dialect, Document
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.workload import Workload

MARKS = re.compile(r"\"(?:model_type|architectures|transformers_version)\"\s*:")
SIZES = re.compile(r"\"(?:hidden_size|n_embd|d_model|text_config|llm_config)\"\s*:")
USUAL_LENGTH = 4096
USUAL_LIMIT, USUAL_STRETCH = 7.0, 32.0  # of gpt-oss (arXiv 2508.10925, sections 2.1 and 2.2)
DTYPES = {"bfloat16": "bfloat16", "float16": "float16", "float32": "float32", "half": "float16"}


def detect(document: Document) -> bool:
    """Whether the text is a JSON object that names a kind of model and its width."""
    text = document.text
    return text.lstrip().startswith("{") and MARKS.search(text) is not None and SIZES.search(text) is not None


def read(document: Document) -> Plan:
    """The plan of one sequence on one device. Raises InputError with every problem, each with line, key and value."""
    parsed = parse(document.text, document.name)
    reading = Reading(document, lines=parsed.lines)
    values, section = inner(parsed.values)
    config = Section(reading, section, values)
    if section:
        reading.note(f"only the language model in {section} is counted")
        tied = Section(reading, "", parsed.values).raw("tie_word_embeddings")  # the head is the outer model's
        config = config if tied is None else Section(reading, section, {**values, "tie_word_embeddings": tied})
    family = family_of(config)
    model = read_model(config, str(parsed.values.get("_name_or_path") or "").rstrip("/").rpartition("/")[2] or family)
    longest = config.positive_int("max_position_embeddings", "n_positions", "seq_length", default=USUAL_LENGTH)
    length = min(longest, USUAL_LENGTH)
    reading.default("seq_length", f"{length}: the file states the longest sequence, {longest}, not that of training")
    for name in ("micro_batch_size", "global_batch_size", "data_parallel_size"):
        reading.default(name, "1: the file is of a model, not of a job")
    word = str(config.raw("torch_dtype", "dtype") or "bfloat16")
    dropout = any(
        config.raw(key) not in (None, 0, 0.0) for key in ("attention_dropout", "hidden_dropout", "resid_pdrop", "attn_pdrop")
    )
    reading.stop_if_problems()
    return reading.plan(
        model=model,
        workload=Workload(
            seq_length=length, micro_batch_size=1, global_batch_size=1, dtype=DTYPES.get(word, "bfloat16"), dropout=dropout
        ),
        parallel=ParallelPlan(),
        document=reading.annotated("huggingface", parsed.values),
    )


def settings(plan: Plan) -> dict[tuple[str, ...], Any]:
    """The model by the names of the file, for the gated families with a norm of root mean squares."""
    model = plan.model
    values: dict[str, Any] = {
        "model_type": _family(model),
        "num_hidden_layers": model.num_layers - model.num_mtp_layers,
        "hidden_size": model.hidden_size,
        "num_attention_heads": model.num_attention_heads,
        "num_key_value_heads": model.num_key_value_heads,
        "intermediate_size": model.ffn_hidden_size,
        "vocab_size": model.vocab_size,
        "tie_word_embeddings": model.tied_embeddings,
        "max_position_embeddings": model.max_position_embeddings or plan.workload.seq_length,
        "torch_dtype": plan.workload.dtype if plan.workload.dtype in DTYPES else "bfloat16",
    }
    values |= {"rms_norm_eps": 1e-6} if model.norm == "rmsnorm" else {"layer_norm_epsilon": 1e-5}
    if model.attention_window:
        whole = model.num_layers - model.num_windowed_layers
        values |= {
            "sliding_window": model.attention_window,
            "use_sliding_window": True,
            "layer_types": ["sliding_attention"] * model.num_windowed_layers + ["full_attention"] * whole,
        }
    if model.num_mtp_layers:
        values["num_nextn_predict_layers"] = model.num_mtp_layers
    if model.bias == "attention":
        values["attention_bias"] = True
    if model.scaled_positions:
        values["rope_scaling"] = {"rope_type": "yarn", "factor": USUAL_STRETCH}
    if model.clamped_gate:
        values["swiglu_limit"] = USUAL_LIMIT
    if model.bias == "all" and model.gated_ffn:
        values["mlp_bias"] = True
    return {(name,): value for name, value in (values | _attention(model) | _of_experts(model)).items()}


def _family(model: ModelSpec) -> str:
    if model.kv_lora_rank:
        return "deepseek_v3"
    if not model.gated_ffn:
        return "bloom" if model.embedding_norm else "gpt2"
    if model.query_key_norm:
        return "qwen3_moe" if model.num_experts else "qwen3"
    if model.bias == "qkv":
        return "qwen2_moe" if model.num_experts else "qwen2"
    return "mixtral" if model.num_experts else "llama"


def _attention(model: ModelSpec) -> dict[str, Any]:
    if not model.kv_lora_rank:
        return {"head_dim": model.head_size}
    found = {"q_lora_rank": model.query_lora_rank} if model.query_lora_rank else {}
    return found | {
        "kv_lora_rank": model.kv_lora_rank,
        "qk_nope_head_dim": model.nope_head_size,
        "qk_rope_head_dim": model.rope_head_size,
        "v_head_dim": model.value_head_size,
    }


def _of_experts(model: ModelSpec) -> dict[str, Any]:
    if not model.num_experts:
        return {}
    gated = model.shared_expert_gate
    found: dict[str, Any] = {
        "n_routed_experts": model.num_experts,
        "num_experts_per_tok": model.num_experts_per_token,
        "moe_intermediate_size": model.expert_ffn_hidden_size,
        "first_k_dense_replace": model.num_dense_layers,
    }
    if model.num_shared_experts:
        width = model.shared_expert_ffn_hidden_size or model.expert_ffn_hidden_size
        found |= {"shared_expert_intermediate_size": width} if gated else {"n_shared_experts": model.num_shared_experts}
    return found | ({"topk_method": "noaux_tc"} if model.router_bias else {})


def edit(document: Document, changes: Changes) -> tuple[str, tuple[str, ...]]:
    """The file with values changed, written with two spaces as the library writes it."""
    values = dict(parse(document.text, document.name).values)
    section = inner(values)[1]
    target: dict[str, Any] = dict(values[section]) if section else values
    for path, value in changes.items():
        target[path[-1]] = value
    return _text(values | {section: target} if section else target), ()


def new(changes: Changes) -> str:
    """A new file of settings."""
    return _text({path[-1]: value for path, value in changes.items() if value is not None})


def _text(values: Mapping[str, Any]) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


DIALECT = Dialect(
    name="huggingface",
    title="Hugging Face config.json",
    looks_for="a JSON object with model_type or architectures and hidden_size",
    detect=detect,
    read=read,
    settings=settings,
    edit=edit,
    new=new,
    suffix=".json",
    parse=parse,
)
