"""Adapters of low rank beside frozen weights (LoRA, arXiv 2106.09685): which matrices of a layer have them, and of which rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from perfkit.core.errors import InputError
from perfkit.core.spec.checks import counts

if TYPE_CHECKING:  # commands that calculate nothing start without NumPy
    from perfkit.core.numbers import Number

Target = Literal["query", "key", "value", "qkv", "output", "gate", "up", "gate_up", "down"]
TARGETS: tuple[Target, ...] = get_args(Target)
OF_FEED_FORWARD = ("gate", "up", "gate_up", "down")
OF_GATE = ("gate", "gate_up")
PACKED = {"qkv": ("query", "key", "value"), "gate_up": ("gate", "up")}
"""Matrices that hold others, as programs fuse them: their adapter has one first factor for all."""
SPLIT_INPUTS = ("output", "down")
"""Matrices of which tensor parallelism splits the inputs, those of the others being whole."""


class Shape(Protocol):
    """What has the sizes of a model by the names of `ModelSpec`: one model, or many in columns."""

    @property
    def hidden_size(self) -> Number: ...  # noqa: D102
    @property
    def num_attention_heads(self) -> Number: ...  # noqa: D102
    @property
    def num_key_value_heads(self) -> Number: ...  # noqa: D102
    @property
    def head_size(self) -> Number: ...  # noqa: D102
    @property
    def ffn_hidden_size(self) -> Number: ...  # noqa: D102


@dataclass(frozen=True, kw_only=True, slots=True)
class Adapters:
    """In every layer each matrix of `targets` (W, inputs x outputs) is frozen, and AB of `rank` beside it is trained alone.

    A has inputs x rank, B rank x outputs elements (arXiv 2106.09685, section 4.1). `qkv` and `gate_up` are matrices of a program
    that fuses those of queries, keys and values, or of gate and up projection. All other weights of the model are frozen too.
    Raises InputError with every problem.
    """

    rank: int
    targets: tuple[Target, ...]

    def __post_init__(self) -> None:
        problems = counts(self, ("rank",))
        unknown = [target for target in self.targets if target not in TARGETS]
        problems += [f"targets = {target!r} must be one of {', '.join(TARGETS)}" for target in unknown]
        if not self.targets:
            problems.append(f"targets = {self.targets!r} must name at least one of {', '.join(TARGETS)}")
        for whole, parts in PACKED.items():
            beside = [part for part in parts if part in self.targets and whole in self.targets]
            problems += [f"targets = {whole!r} stands beside {part!r}, which it holds; keep one" for part in beside]
        if problems:
            raise InputError("Adapters", problems)
        object.__setattr__(self, "targets", tuple(target for target in TARGETS if target in self.targets))

    def weights(self, model: Shape) -> Number:
        """Elements of the adapters of one layer: rank x (inputs + outputs) of every target."""
        return self.rank * sum(self.widths(model, 1))

    def widths(self, model: Shape, tensor: Number) -> tuple[Number, Number]:
        """Inputs and outputs of all targets of a layer, as far as one of `tensor` devices has them.

        Both factors are split as their matrix is: the side that it has whole is whole in its adapter (PEFT, `lora/tp_layer.py`;
        Megatron-Bridge splits that too, and this is above it). Fewer key-value heads than devices are copied, one to each.
        """
        h, f, d, k = model.hidden_size, model.ffn_hidden_size, model.head_size, model.num_key_value_heads
        keys, queries = d * (k + (k < tensor) * (tensor - k)), d * model.num_attention_heads
        known = {"query": (h, queries), "key": (h, keys), "value": (h, keys), "qkv": (h, queries + 2 * keys)}
        known |= {"output": (queries, h), "gate": (h, f), "up": (h, f), "gate_up": (h, 2 * f), "down": (f, h)}
        shapes = [(known[target], target in SPLIT_INPUTS) for target in self.targets]
        inputs = sum(inner / tensor if split else inner for (inner, _), split in shapes)
        return inputs, sum(outer if split else outer / tensor for (_, outer), split in shapes)
