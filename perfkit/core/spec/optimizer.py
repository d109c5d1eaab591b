"""What the optimizer keeps for every parameter, and in which precision each of it is."""

from __future__ import annotations

from dataclasses import dataclass

from perfkit.core.errors import InputError
from perfkit.core.spec.checks import counts, one_of

STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float8": 1}
"""Bytes an element of a state has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerSpec:
    """State of the optimizer: whether weights have a master copy, bytes a parameter beside it, and the precision of each state.

    `parameter_dtype` is that of the weights which layers compute with ("": the workload's), `gradient_dtype` that of the gradients,
    `master_dtype` that of the master copy, `moment_dtype` that of the moments. `state_bytes_per_parameter` are all moments
    together; of it and `moment_dtype` one follows from the other if it is left out (-1, ""): two moments of fp32.
    `matrix_state_bytes_per_parameter` is for optimizers that treat the layers' matrices apart (Muon: 4, and Adam's 8 for embedding,
    head and norms); -1 means alike. `gradient_accumulation_bytes_per_parameter` is a second copy that gradients are summed in.
    """

    name: str = "adamw"
    state_bytes_per_parameter: int = -1
    master_weights: bool = True
    gradient_dtype: str = "float32"
    matrix_state_bytes_per_parameter: int = -1
    gradient_accumulation_bytes_per_parameter: int = 0
    parameter_dtype: str = ""
    master_dtype: str = "float32"
    moment_dtype: str = ""

    def __post_init__(self) -> None:
        problems = counts(self, ("gradient_accumulation_bytes_per_parameter",), low=0)
        problems += counts(self, ("state_bytes_per_parameter", "matrix_state_bytes_per_parameter"), low=-1)
        problems += one_of(self, "gradient_dtype", ("float32", "bfloat16", "float16"))
        problems += one_of(self, "parameter_dtype", ("", *STATE_BYTES))
        problems += one_of(self, "master_dtype", ("float32", "bfloat16", "float16"))
        problems += one_of(self, "moment_dtype", ("", *STATE_BYTES))
        problems = problems or self._contradictions()
        if problems:
            raise InputError("OptimizerSpec", problems)
        if self.state_bytes_per_parameter < 0:
            object.__setattr__(self, "state_bytes_per_parameter", 2 * STATE_BYTES[self.moment_dtype or "float32"])
        if not self.moment_dtype:
            object.__setattr__(self, "moment_dtype", self._usual_moments())

    def _usual_moments(self) -> str:
        halves = "adam" in self.name.lower() and self.state_bytes_per_parameter == 4
        return "bfloat16" if halves else "float8" if self.state_bytes_per_parameter in (1, 2, 3) else "float32"

    def _contradictions(self) -> list[str]:
        """Adam has two moments; one of them may be more precise than `moment_dtype`."""
        stated, size = self.state_bytes_per_parameter, STATE_BYTES.get(self.moment_dtype, 0)
        if stated < 0 or not size or "adam" not in self.name.lower() or self.moment_dtype == self._usual_moments():
            return []
        if stated - size in STATE_BYTES.values():
            return []
        return [
            f"state_bytes_per_parameter = {stated} and moment_dtype = {self.moment_dtype!r} contradict one another; two such "
            f"moments have {2 * size}"
        ]
