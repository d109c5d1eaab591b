"""What the optimizer keeps for every parameter."""

from __future__ import annotations

from dataclasses import dataclass

from perfkit.errors import InputError
from perfkit.spec._checks import counts, one_of


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerSpec:
    """State of the optimizer: bytes a parameter without the master copy, whether there is one, and the gradients' type."""

    name: str = "adamw"
    state_bytes_per_parameter: int = 8
    master_weights: bool = True
    gradient_dtype: str = "float32"

    def __post_init__(self) -> None:
        problems = counts(self, ("state_bytes_per_parameter",), low=0)
        problems += one_of(self, "gradient_dtype", ("float32", "bfloat16", "float16"))
        if problems:
            raise InputError("OptimizerSpec", problems)
