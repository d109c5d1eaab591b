"""Memory guide: the tuning guides' memory formulas beside the exact ones, and what single recomputations free.

Letters of the guides: N parameters, t size of the optimizer group (static) or of the tensor group (activations), s tokens,
b sequences, h hidden, a heads, f ffn hidden. The activation tables are per layer and micro batch and hold for GPT with dropout and
without flash attention (erratum X10); the static 10N leaves out the fp32 master copy and the gradient (erratum X09).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan
from perfkit.predict.memory.activations import Saved, kept_bytes, layer_tensors
from perfkit.predict.memory.memory import parameters_of, static_of
from perfkit.predict.memory.settings import MemorySettings

Case = Literal["tensor", "tensor and sequence", "tensor, selective", "tensor and sequence, selective", "full"]
PLAIN = MemorySettings()
"""The tensors alone: no framework's buffers."""
FORMULAS: Mapping[str, Mapping[str, str]] = {
    "": {
        "row statistics": "4abs",
        "softmax": "2abs²",
        "softmax dropout mask": "abs²",
        "softmax after dropout": "2abs²",
        "dropout mask": "sbh",
        "router probabilities": "8sbE",
        "tokens at their experts": "2sbh x routed",
        "outputs before they are weighted": "2sbh x routed",
        **dict.fromkeys(("inner values of attention adapters", "inner values of ffn adapters"), "2sbr x adapters"),
    },
    "latent": {
        "compressed keys and values": "4sbr",
        "compressed queries": "4sbq",
        "queries": "2sba(n+r)",
        "keys": "2sba(n+r)",
        "values": "2sbaw",
    },
    "ffn": dict.fromkeys(("input of the activation", "input of the second product", "gate", "hidden", "activated gate"), "2sbf"),
}
"""Sizes of tensors in the guides' letters: of any layer (else 2sbh), of latent attention, and of feed-forward blocks."""
BYTES_A_PARAMETER = {"10N (guide)": 10, "16N (16-bit gradient)": 16, "18N (fp32 gradient)": 18}


def guide_static(parameters: float, *, shards: int = 1, accumulation: bool = False) -> float:
    """The guide's static bytes: 2N + 4N + 4N = 10N over `shards`, and 2N for a gradient copy with accumulation or a pipeline."""
    if parameters <= 0 or shards < 1:
        raise InputError("guide_static", [f"parameters = {parameters} and shards = {shards} must be positive"])
    return 10 * parameters / shards + (2 * parameters if accumulation else 0)


def static_table(plan: Plan, settings: MemorySettings = PLAIN, stage: int = 0) -> pd.DataFrame:
    """The guide's static memory of a device beside the exact one, which sums to `static` of the peak.

    Columns: `item`, `guide_bytes`, `exact_bytes`, `why`.

    The guide divides all of the model by pipeline and tensor size alike; the exact one counts the device's own parameters.
    """
    parallel, held = plan.parallel, static_of(plan, settings, stage)
    local = parameters_of(plan, settings, stage).total
    shards = parallel.optimizer_shard_size
    copy = plan.num_micro_batches > 1 or parallel.pipeline_parallel_size > 1
    rows = [
        ("parameters", 2 * local / shards, held.parameters, "weights gathered for use do not stay"),
        ("gradients", 2 * local if copy else 0.0, held.gradients, "X09: a gradient exists in every run, often in fp32"),
        ("optimizer state", 8 * local / shards, held.optimizer, "X09: the fp32 master copy is left out"),
    ]
    return pd.DataFrame(rows, columns=["item", "guide_bytes", "exact_bytes", "why"])


def guide_activations(plan: Plan, case: Case) -> float:
    """The guide's activation bytes of one layer and micro batch (arXiv 2205.05198, table 2)."""
    work, model, t = plan.workload, plan.model, plan.parallel.tensor_parallel_size
    sbh = work.seq_length * work.micro_batch_size * model.hidden_size
    scores = 5 * model.num_attention_heads * work.seq_length / model.hidden_size
    factors = {
        "tensor": 10 + (24 + scores) / t,
        "tensor and sequence": (34 + scores) / t,
        "tensor, selective": 10 + 24 / t,
        "tensor and sequence, selective": 34 / t,
        "full": 2.0,
    }
    if case not in factors:
        raise InputError("guide_activations", [f"case = {case!r} must be one of {', '.join(factors)}"])
    return sbh * factors[case]


def activation_table(plan: Plan, settings: MemorySettings = PLAIN, *, experts: bool = False) -> pd.DataFrame:
    """One layer's tensors: columns `part`, `tensor`, `formula`, `exact_bytes`, and the guide's for the same GPT tensor.

    The guide's column is empty where its table has no such tensor.
    """
    gpt = replace(
        plan,
        model=replace(
            plan.model,
            gated_ffn=False,
            ffn_hidden_size=4 * plan.model.hidden_size,
            num_key_value_heads=plan.model.num_attention_heads,
            kv_lora_rank=0,
            query_lora_rank=0,
            adapters=None,
            trained_layers=None,
        ),
        workload=replace(plan.workload, dropout=True, attention_kernel="unfused"),
    )
    theirs = {(tensor.part, tensor.name): tensor for tensor in layer_tensors(gpt, PLAIN, experts=False)}
    ours = {(tensor.part, tensor.name): tensor for tensor in layer_tensors(plan, settings, experts=experts)}
    rows = [_row(plan, ours.get(key), theirs.get(key)) for key in dict.fromkeys([*ours, *theirs])]
    return pd.DataFrame(rows)


def _row(plan: Plan, ours: Saved | None, theirs: Saved | None) -> dict[str, object]:
    named = ours or theirs
    if named is None:
        raise ValueError("a row needs a tensor of at least one of the two tables")
    return {
        "part": named.part,
        "tensor": named.name,
        "formula": _formula(plan, named),
        "exact_bytes": float(ours.bytes) if ours else 0.0,
        "guide_bytes": float(theirs.bytes) if theirs else None,
    }


def _formula(plan: Plan, tensor: Saved) -> str:
    """The size of a tensor of a 16-bit layer in the guides' letters."""
    model, name = plan.model, tensor.name.removesuffix(", shared")
    if tensor.part in ("ffn", "experts") and name in FORMULAS["ffn"]:
        return "8sbh" if not model.gated_ffn and model.ffn_hidden_size == 4 * model.hidden_size else "2sbf"
    if tensor.widened:
        return "4sbh (fp32)"
    if name in ("keys", "values") and not model.kv_lora_rank:
        return "2sbh" if model.num_attention_heads == model.num_key_value_heads else "2sbkd"
    if name == "input of the projection" and model.num_attention_heads * model.head_size != model.hidden_size:
        return "2sbad"
    return FORMULAS["latent" if model.kv_lora_rank else ""].get(name) or FORMULAS[""].get(name, "2sbh")


def freed_bytes(plan: Plan, patterns: tuple[str, ...], settings: MemorySettings = PLAIN, *, gather_again: bool = False) -> float:
    """Bytes that a layer no longer keeps of a micro batch when the operators that match are repeated; negative if it keeps more."""
    tensors = layer_tensors(plan, settings, experts=False)
    kept = kept_bytes(tensors, patterns, gather_again=gather_again)
    return float(sum(kept_bytes(tensors).values()) - sum(kept.values()))
