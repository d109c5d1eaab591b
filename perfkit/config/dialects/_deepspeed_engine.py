"""What DeepSpeed's settings say beside the batches: what ZeRO shares, groups, precisions; in a file of its own or in a Trainer's.

Keys and defaults are those of https://www.deepspeed.ai/docs/config-json/.
"""

from __future__ import annotations

from dataclasses import dataclass

from perfkit.config.dialects._section import Section

PRECISIONS = {"fp8": "float8", "bf16": "bfloat16", "fp16": "float16"}
ACCUMULATED = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW", "muon": "Muon", "lion": "Lion", "sgd": "SGD"}
COMPRESSING = frozenset({"onebitadam", "onebitlamb", "zerooneadam"})
"""Optimizers that send fewer bits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """Settings of DeepSpeed's engine.

    `dtype` is "" and `optimizer` too where the training script decides; `off` are precisions that are switched off.
    """

    stage: int
    overlap: bool
    tensor: int
    stages: int
    context: int
    experts: int
    dtype: str
    off: tuple[str, ...]
    sums: str
    optimizer: str

    def gradient_dtype(self, dtype: str) -> str:
        """The precision that gradients of a model in `dtype` are summed in."""
        return ACCUMULATED.get(self.sums) or summed_in(dtype, shared=self.stage > 0)


def engine_of(top: Section, *, usual_dtype: str = "float32") -> Engine:
    """The engine that a section of settings describes; every bad value is noted.

    `usual_dtype` is the precision where the settings enable none: "" where the program that reads them adds what they lack.
    """
    zero = top.section("zero_optimization")
    stage = zero.integer("stage", default=0)
    if stage > 3:
        top.reading.problem(zero.path("stage"), f"{stage} must be 0, 1, 2 or 3")
    engine = Engine(
        stage=stage,
        overlap=zero.flag("overlap_comm", default=stage == 3),
        tensor=top.section("tensor_parallel").positive_int("autotp_size", default=1),
        stages=top.section("pipeline").positive_int("stages", default=1),
        context=top.positive_int("sequence_parallel_size", default=1),
        experts=experts_of(top),
        dtype=_dtype(top, usual_dtype),
        off=tuple(
            dtype for name, dtype in PRECISIONS.items() if top.has(name) and top.section(name).values.get("enabled") is False
        ),
        sums=top.section("data_types").word("grad_accum_dtype", default="", allowed=ACCUMULATED),
        optimizer=top.section("optimizer").word("type", default=""),
    )
    if engine.optimizer.lower() in COMPRESSING:
        told = f"full: {engine.optimizer} sends one bit of a gradient after its first steps, which is not counted"
        top.reading.default("communication", told)
    return engine


def experts_of(top: Section) -> int:
    """Devices that share the experts."""
    spread = top.section("expert_parallel")
    return spread.positive_int("autoep_size", default=1) if spread.flag("enabled", default=False) else 1


def _dtype(top: Section, usual: str) -> str:
    """The precision that is on; "" where the script decides it."""
    given = {name: top.section(name) for name in PRECISIONS if top.has(name)}
    enabled = [name for name, section in given.items() if section.has("enabled") and section.flag("enabled", default=False)]
    if {"bf16", "fp16"} <= {*enabled}:
        top.reading.problem("fp16.enabled", "fp16 and bf16 are both enabled, which DeepSpeed refuses; keep one")
    if enabled:
        return PRECISIONS[enabled[0]]
    return "" if any(section.values.get("enabled") == "auto" for section in given.values()) else usual


def summed_in(dtype: str, *, shared: bool) -> str:
    """The precision that gradients are summed in unless the file says it (`get_data_types` in deepspeed/runtime/engine.py)."""
    if dtype == "bfloat16" and not shared:
        return "float32"
    return "bfloat16" if dtype == "float8" else dtype
