"""What one step processes."""

from __future__ import annotations

from dataclasses import dataclass

from perfkit.errors import InputError
from perfkit.spec._checks import counts, one_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """One training step: sequences of `seq_length` tokens, `global_batch_size` of them, `micro_batch_size` at a time a replica."""

    seq_length: int
    micro_batch_size: int
    global_batch_size: int
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        problems = counts(self, ("seq_length", "micro_batch_size", "global_batch_size"))
        problems += one_of(self, "dtype", ("bfloat16", "float16", "float32", "float8"))
        if problems:
            raise InputError("Workload", problems)
