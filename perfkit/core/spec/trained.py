"""Layers that are trained where the others are frozen: the first or the last ones, which parts of them, and what beside layers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

from perfkit.core.errors import InputError
from perfkit.core.spec.checks import counts
from perfkit.core.spec.recompute import Counts

LayerPart = Literal["attention", "feed_forward", "norms"]
Outside = Literal["embedding", "final_norm", "head"]
LAYER_PARTS: tuple[LayerPart, ...] = get_args(LayerPart)
OUTSIDE: tuple[Outside, ...] = get_args(Outside)
TO_INPUTS = "input_gradients"
WORDS = (*LAYER_PARTS, *OUTSIDE, TO_INPUTS)
LAYERS = re.compile(r"(first|last) ([0-9]{1,9})")


class Span(NamedTuple):
    """Of the layers of a position (a chunk of a stage), counted from its first one: trained are those from `start` to `end`.

    The first `skipped` ones have no backward pass: nothing below needs a gradient. All other frozen layers pass gradients on.
    """

    skipped: int
    start: int
    end: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedLayers:
    """Trained are `parts` of the `first` or of the `last` layers, and what `outside` of the layers names; all else is frozen.

    `attention` and `feed_forward` are their matrices with biases, norms of queries and keys, experts and router; `norms` are those
    ahead of both. `embedding` has positions and its own norm. With `input_gradients` the embedding's output asks for a gradient,
    so that all layers have a backward pass (transformers, `enable_input_require_grads`). Where no layer is trained, `parts` are
    all. Raises InputError with every problem.
    """

    first: int = 0
    last: int = 0
    parts: tuple[LayerPart, ...] = LAYER_PARTS
    outside: tuple[Outside, ...] = ()
    input_gradients: bool = False

    def __post_init__(self) -> None:
        problems = counts(self, ("first", "last"), low=0)
        for name, known in (("parts", LAYER_PARTS), ("outside", OUTSIDE)):
            words = getattr(self, name)
            if not isinstance(words, list | tuple):
                problems.append(f"{name} = {words!r} must be a list of words, of {', '.join(known)}")
                continue
            problems += [f"{name} = {word!r} must be one of {', '.join(known)}" for word in words if word not in known]
            object.__setattr__(self, name, tuple(word for word in known if word in words))
        if not problems and not self.count:
            object.__setattr__(self, "parts", LAYER_PARTS)
        if not problems and self.first and self.last:
            problems.append(f"first = {self.first} and last = {self.last}: give one of them")
        if not problems and not self.parts:
            problems.append(f"parts = {self.parts!r} must name at least one of {', '.join(LAYER_PARTS)}")
        if not problems and not self.outside and not self.count:
            problems.append("nothing is trained: give first, last or outside")
        if problems:
            raise InputError("TrainedLayers", problems)

    @classmethod
    def of(cls, text: str) -> TrainedLayers:
        """What a text says, as `last 2` or `first 4, attention, head`. Raises InputError with every problem."""
        layers, *words = (word.strip() for word in text.split(","))
        found = LAYERS.fullmatch(layers)
        unknown = [word for word in words if word not in WORDS]
        if found is None or unknown:
            problem = f"{text!r} must be as 'last 2' or 'first 4, attention, head'; words are {', '.join(WORDS)}"
            raise InputError("TrainedLayers", [problem])
        return cls(
            first=int(found[2]) if found[1] == "first" else 0,
            last=int(found[2]) if found[1] == "last" else 0,
            parts=tuple(part for part in LAYER_PARTS if part in words) or LAYER_PARTS,
            outside=tuple(part for part in OUTSIDE if part in words),
            input_gradients=TO_INPUTS in words,
        )

    def __str__(self) -> str:
        """The text that `of` reads."""
        layers = f"first {self.first}" if self.first else f"last {self.last}"
        own = () if self.parts == LAYER_PARTS else self.parts
        return ", ".join((layers, *own, *self.outside, *([TO_INPUTS] if self.input_gradients else [])))

    @property
    def count(self) -> int:
        """Layers of which something is trained."""
        return self.first or self.last

    def trains(self, part: LayerPart | Outside) -> bool:
        """Whether this part of the trained layers, or outside of them, is trained."""
        return part in self.outside or (part in self.parts and self.count > 0)

    def skipped(self, num_layers: int) -> int:
        """Layers at the bottom of a model of so many that need no backward pass: below them nothing is trained."""
        if self.input_gradients or "embedding" in self.outside:
            return 0
        return 0 if self.first else num_layers - self.last

    def spans(self, layers: Counts) -> tuple[tuple[Span, ...], ...]:
        """By chunk and stage, which layers are trained and which are skipped, of the layers that positions have.

        Only the first position skips any: what a stage receives asks for a gradient (Megatron-Core, `p2p_communication.py`).
        """
        return _spans(self, layers)

    def dense(self, num_layers: int, leading: int) -> Mapping[str, tuple[int, int]]:
        """How many layers are `trained` and `skipped`: of the `leading` ones, and of the others."""
        start = 0 if self.first else num_layers - self.last
        ends = {"trained": (start, start + self.count), "skipped": (0, self.skipped(num_layers))}
        before = {name: min(end, leading) - min(begin, leading) for name, (begin, end) in ends.items()}
        return {name: (before[name], end - begin - before[name]) for name, (begin, end) in ends.items()}


@lru_cache(maxsize=4096)
def _spans(trained: TrainedLayers, layers: Counts) -> tuple[tuple[Span, ...], ...]:
    total, done = sum(map(sum, layers)), 0
    rows: list[tuple[Span, ...]] = []
    start = 0 if trained.first else total - trained.last
    skipped = min(trained.skipped(total), layers[0][0])
    for row in layers:
        spans: list[Span] = []
        for count in row:
            begin, end = (min(max(border - done, 0), count) for border in (start, start + trained.count))
            spans.append(Span(0 if spans or rows else skipped, begin, end))
            done += count
        rows.append(tuple(spans))
    return tuple(rows)
