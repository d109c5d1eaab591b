"""Recomputed: which kernels of a rank run again in the backward pass.

Forward attention that runs more often than backward attention is recomputation. Around one that runs again the kernels follow one
another as in the forward pass; so far as they do they are computed again, at most what lies between two forward attentions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

ATTENTION = re.compile(r"flash|fmha|attention|attn|sdpa", re.IGNORECASE)
BACKWARD = re.compile(r"grad|bwd|backward|bprop|cutlassB_", re.IGNORECASE)
"""Backward attention; cuDNN names it bprop, the memory-efficient one of PyTorch fmha_cutlassB (forward: fmha_cutlassF)."""
MAY_LACK = 3
"""Kernels in a row of the forward pass that may not run again, such as the casts of weights that are kept."""
LEAST_AGAIN = 0.02
"""Attention that runs again less often than this share of the backward one is counted at the edge of a recording."""

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Again:
    """Stretches of kernels that run again, by the places of their first and last one and of their attention, ascending.

    `forward` and `backward` are how often attention runs a step.
    """

    firsts: Ints
    lasts: Ints
    attentions: Ints
    forward: float
    backward: float

    def mask(self, count: int) -> Flags:
        """Which of `count` kernels run again."""
        inside = np.zeros(count + 1, dtype=np.int64)
        np.add.at(inside, self.firsts, 1)
        np.add.at(inside, self.lasts + 1, -1)
        found: Flags = np.cumsum(inside[:-1]) > 0
        return found


def again(operators: pd.Series, steps: pd.Series) -> Again | None:
    """What runs again among the kernels of one rank that compute, in the order of their start; None without attention by name."""
    names = operators.astype("category")
    codes = names.cat.codes.to_numpy()
    forward, backward = _attention(names)
    at = np.flatnonzero(forward | backward)
    if not len(at):
        return None
    back = backward[at]
    step = steps.iloc[at]
    inside = step.notna().to_numpy(dtype=bool)
    numbers = step.fillna(0).to_numpy(dtype=np.int64)
    often = (_a_step(numbers, codes[at], inside & ~back), _a_step(numbers, codes[at], inside & back))
    none = np.empty(0, dtype=np.int64)
    if not often[1] or often[0] - often[1] < LEAST_AGAIN * often[1]:
        return Again(none, none, none, *often)
    chosen = at[_repeated(back, codes[at])]
    layer = _layer(at, back)
    if not len(layer):
        return Again(chosen, chosen, chosen, *often)
    forwards = codes[layer]
    after = [_alike(forwards, codes[place + 1 : place + 1 + len(layer)]) for place in chosen.tolist()]
    # No more than a layer: what comes before the first one that runs again may be the forward pass itself.
    room = [len(layer) - count for count in after]
    before = [
        _alike(forwards[::-1], codes[max(0, place - most) : place][::-1]) for place, most in zip(chosen.tolist(), room, strict=True)
    ]
    return Again(chosen - np.array(before, dtype=np.int64), chosen + np.array(after, dtype=np.int64), chosen, *often)


def _attention(names: pd.Series) -> tuple[Flags, Flags]:
    """Which kernels are forward attention, and which backward."""
    texts = [str(name) for name in names.cat.categories.tolist()]
    every = np.array([*(bool(ATTENTION.search(text)) for text in texts), False], dtype=bool)
    backs = np.array([*(bool(BACKWARD.search(text)) for text in texts), False], dtype=bool)
    codes = names.cat.codes.to_numpy()
    return (every & ~backs)[codes], (every & backs)[codes]


def _a_step(steps: Ints, operators: npt.NDArray[np.integer], which: Flags) -> float:
    """How often the attention that runs most often in each step runs in it, in the median step; 0 without any."""
    pairs, counts = np.unique(np.stack([steps, operators])[:, which], axis=1, return_counts=True)
    _, firsts = np.unique(pairs[0], return_index=True)
    return float(np.median(np.maximum.reduceat(counts, firsts))) if len(firsts) else 0.0


def _repeated(back: Flags, operators: npt.NDArray[np.integer]) -> Flags:
    """Which of the attentions in order run again: forward ones right before a backward one, no more than there are too many.

    The backward pass of a layer that is kept follows its forward pass where it is the last one: there another forward attention
    comes before it.
    """
    found: Flags = ~back & np.append(back[1:], False)
    most = [max(np.unique(operators[which], return_counts=True)[1].tolist(), default=0) for which in (~back, back)]
    too_many = int(found.sum()) - (most[0] - most[1])
    kept = np.flatnonzero(found & np.insert(~back[:-1], 0, False))
    if too_many > 0:
        found[kept[:too_many]] = False
    return found


def _layer(at: Ints, back: Flags) -> Ints:
    """The places between two forward attentions with nothing backward in between, of the middle such pair.

    The first layers of a step may stand beside the optimizer, the last ones beside the loss.
    """
    pairs = np.flatnonzero(~back[1:] & ~back[:-1])
    if not len(pairs):
        return np.empty(0, dtype=np.int64)
    middle = int(pairs[len(pairs) // 2])
    return np.arange(at[middle] + 1, at[middle + 1])


def _alike(wanted: npt.NDArray[np.integer], found: npt.NDArray[np.integer]) -> int:
    """How many of the first of `found` are those of `wanted` in this order, of which a few may be left out."""
    at = 0
    order = wanted.tolist()
    for count, operator in enumerate(found.tolist()):
        near = order[at : at + MAY_LACK + 1]
        if operator not in near:
            return count
        at += near.index(operator) + 1
    return len(found)
