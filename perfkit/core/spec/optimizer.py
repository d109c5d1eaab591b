"""What the optimizer keeps for every parameter."""

from __future__ import annotations

from dataclasses import dataclass

from perfkit.core.errors import InputError
from perfkit.core.spec.checks import counts, one_of


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerSpec:
    """State of the optimizer: bytes a parameter without the master copy, whether there is one, and the gradients' type.

    `matrix_state_bytes_per_parameter` is for optimizers that treat the layers' matrices apart (Muon: 4, and Adam's 8 for embedding,
    head and norms); -1 means alike. `gradient_accumulation_bytes_per_parameter` is a second copy that gradients are summed in.
    """

    name: str = "adamw"
    state_bytes_per_parameter: int = 8
    master_weights: bool = True
    gradient_dtype: str = "float32"
    matrix_state_bytes_per_parameter: int = -1
    gradient_accumulation_bytes_per_parameter: int = 0

    def __post_init__(self) -> None:
        problems = counts(self, ("state_bytes_per_parameter", "gradient_accumulation_bytes_per_parameter"), low=0)
        problems += counts(self, ("matrix_state_bytes_per_parameter",), low=-1)
        problems += one_of(self, "gradient_dtype", ("float32", "bfloat16", "float16"))
        if problems:
            raise InputError("OptimizerSpec", problems)
