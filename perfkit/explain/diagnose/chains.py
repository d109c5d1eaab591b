"""Chains: kernels of a rank that follow one another and together are what one fused kernel does.

Every computing kernel gets a letter by what it does, so that the kernels of a rank are one text and a chain is a regular
expression. What a fused kernel saves is counted in memory traffic: such kernels read and write whole tensors, and take as long as
that takes. Casts inside a chain are no part of what it saves; they are conversions, which have a rule of their own.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.kernels import CONVERSIONS

OTHER = "."


@dataclass(frozen=True, slots=True)
class Pattern:
    """A chain: its `letters` as a regular expression, the kernel that does it at once, and the share of its time that is saved."""

    name: str
    letters: re.Pattern[str]
    fused: str
    saved: float


PATTERNS = (
    # Passes over a tensor, small tables and results left out: read + written, chain against fused.
    Pattern("SiLU and product", re.compile("SB?M"), "SwiGLU", 2 / 5),  # 2 + 3 against 3; the other product may come between
    Pattern("root mean square norm", re.compile("C?PEA?RMC?M?"), "RmsNorm", 5 / 7),  # 2 + 1 + 2 + 2 against 2
    # 1 + 2 + 2 + 1 + 1 + 2 + 2 against 2; PyTorch's kernel of a difference is that of a sum.
    Pattern("layer norm", re.compile("E[UA][PM]?EA?[RQ][MI]?C?M?A?"), "LayerNorm", 9 / 11),
    Pattern("GELU by tanh", re.compile("[MP]{2,5}AMTAM"), "GELU", 8 / 9),  # 2 + 2 + 2 + 3 + 2 + 2 + 2 + 3 against 2
    Pattern("GELU by erf", re.compile("M[MI]TAM"), "GELU", 9 / 11),  # 2 + 2 + 2 + 2 + 3 against 2
    Pattern("rotary embedding", re.compile("M[VC]*N[VC]*KC*M[VC]*A"), "RotaryPositionEmbedding", 8 / 10),  # 2 + 1 + 2 + 2 + 3 to 2
    Pattern("attention in parts", re.compile("B[MICAW]*X[CDMIAW]*B"), "FlashAttention", 1.0),  # scores never reach the memory
)
"""Chains in the order in which they are looked for; a kernel belongs to one only."""

_LETTERS = (
    (OTHER, r"flash|fmha|swi_?glu|silu_mul|rms_?norm|layer_?norm|rotary|rope|cross_?entropy|log_?softmax|optim|adam|multi_tensor"),
    ("X", r"softmax"),
    ("B", r"mat_?mul|gemm|\bbmm|\bmm\b|nvjet|cijk_"),
    ("C", CONVERSIONS.pattern),
    ("S", r"^(?!.*(?:grad|backward)).*(?:silu|swish)"),
    ("R", r"rsqrt"),
    ("Q", r"sqrt"),
    ("T", r"^tanh$|tanh_kernel|^erf$|erf_kernel"),
    ("P", r"\bpow|^pow|square"),
    ("E", r"reduce_?mean|MeanOps|^mean"),
    ("N", r"^neg|neg_kernel"),
    ("K", r"^concat|CatArray|^cat\b"),
    ("V", r"slice|^split|as_?strided"),
    ("W", r"masked_?fill|^select|^where|where_kernel|^masked_?scale|tril|triu"),
    ("D", r"drop_?out"),
    ("U", r"^sub|functor_sub|sub_?functor"),
    ("A", r"^adds?(?:v2|d|nv?2?)?$|functor(?:onself)?_add|add_?functor"),
    ("M", r"^muls?$|mul_?functor|functor<mul|functor<[^<>]*mul\b"),
    ("I", r"^(?:real_?)?div|div_?(?:true)?_?functor|divfunctor"),
)
_RULES = tuple((letter, re.compile(pattern, re.IGNORECASE)) for letter, pattern in _LETTERS)


def letter_of(operator: str) -> str:
    """What a kernel does, as one letter; "." for all that is part of no chain, fused kernels among them."""
    return next((letter for letter, pattern in _RULES if pattern.search(operator)), OTHER)


def chains(case: Case) -> pd.DataFrame:
    """Computing kernels that are part of a chain, with `pattern`, `chain` (a number for each) and `saved`, the share saved."""
    rows = case.computing
    ops = rows["op"].astype("category")
    letters = np.array([letter_of(str(name)) for name in ops.cat.categories.tolist()] or [OTHER], dtype="U1")[
        ops.cat.codes.to_numpy()
    ]
    ranks = rows["rank"].to_numpy()
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(ranks)) + 1, [len(ranks)]])
    pieces = []
    number = 0
    for first, last in itertools.pairwise(bounds):
        text = "".join(letters[first:last])
        for pattern in PATTERNS:
            for match in pattern.letters.finditer(text):
                pieces.append((pattern.name, number, pattern.saved, first + match.start(), first + match.end()))
                number += 1
            # What belongs to a chain is blotted out, so that no other pattern takes it.
            text = pattern.letters.sub(lambda match: OTHER * len(match.group()), text)
    return _rows(rows, letters, pieces)


def _rows(rows: pd.DataFrame, letters: np.ndarray, pieces: list[tuple[str, int, float, int, int]]) -> pd.DataFrame:
    sizes = np.array([last - first for *_, first, last in pieces], dtype=np.int64)
    at = np.concatenate([np.arange(first, last) for *_, first, last in pieces]) if pieces else np.zeros(0, dtype=np.int64)
    found = rows.iloc[at].assign(
        pattern=np.repeat(np.array([piece[0] for piece in pieces], dtype=object), sizes),
        chain=np.repeat(np.array([piece[1] for piece in pieces], dtype=np.int64), sizes),
        saved=np.repeat(np.array([piece[2] for piece in pieces], dtype=np.float64), sizes),
    )
    counted = ~np.isin(letters[at], ["B", "C"])
    return found.assign(saved=np.where(counted, found["saved"], 0.0))
