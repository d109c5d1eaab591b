"""Words of a table of plans for the ways to split the context and for optimizers; case and dashes do not matter."""

from __future__ import annotations

from collections.abc import Mapping

from perfkit.core.spec.optimizer import OptimizerSpec
from perfkit.core.spec.parallel import ContextAlgorithm

ALGORITHMS: Mapping[str, ContextAlgorithm] = {
    "": "ring",
    "ring": "ring",
    "ring_attention": "ring",
    "colossalai_cp": "ring",
    "megatron_cp_algo": "ring",
    "ulysses": "ulysses",
    "ulysses_cp": "ulysses",
    "ulysses_cp_algo": "ulysses",
    "all_to_all": "ulysses",
    "hybrid": "hybrid",
    "hybrid_cp": "hybrid",
    "hybird_cp": "hybrid",
    "hybrid_cp_algo": "hybrid",
}
"""Words for the ways to split the context, the guides' own among them (one is spelled so)."""

OPTIMIZERS: Mapping[str, OptimizerSpec] = {
    "": OptimizerSpec(),
    "adam": OptimizerSpec(),
    "adamw": OptimizerSpec(),
    "sgd": OptimizerSpec(name="sgd", state_bytes_per_parameter=0),
    "sgd_momentum": OptimizerSpec(name="sgd_momentum", state_bytes_per_parameter=4),
    "muon": OptimizerSpec(name="muon", matrix_state_bytes_per_parameter=4),
}
"""Optimizers by name, with an fp32 master copy each."""


def plain(word: str) -> str:
    """A word as these tables spell it."""
    return word.strip().lower().replace("-", "_")
