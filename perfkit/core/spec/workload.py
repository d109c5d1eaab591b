"""What one step processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from perfkit.core.errors import InputError
from perfkit.core.spec.checks import counts, one_of

AttentionKernel = Literal["flash", "unfused"]


FEW_BITS = ("float8", "int8", "float4")
"""Precisions of products beside which all else stays in 16 bits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """One training step: sequences of `seq_length` tokens, `global_batch_size` of them, `micro_batch_size` at a time a replica.

    `attention_kernel` is "unfused" where scores and softmax are stored as matrices; `dropout` says whether there is any.
    """

    seq_length: int
    micro_batch_size: int
    global_batch_size: int
    dtype: str = "bfloat16"
    attention_kernel: AttentionKernel = "flash"
    dropout: bool = False

    def __post_init__(self) -> None:
        problems = counts(self, ("seq_length", "micro_batch_size", "global_batch_size"))
        problems += one_of(self, "dtype", ("bfloat16", "float16", "float32", *FEW_BITS))
        problems += one_of(self, "attention_kernel", get_args(AttentionKernel))
        if problems:
            raise InputError("Workload", problems)
