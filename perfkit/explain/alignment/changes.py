"""Changes of a round: which of them may change the losses, and how much that may be.

Four classes of change from the decision tree of the guides' accuracy step, each with what still counts as the same model. The
guides ask for alignment and give no number; the limits are perfkit's own and can be set in a project.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

ChangeClass = Literal["exact", "re-association", "precision", "batch"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a class of change allows: differences relative to the reference over the first `steps` compared steps.

    None means that the class has no such limit. `source` says where the numbers come from.
    """

    max_relative: float | None
    mean_relative: float | None
    steps: int
    fewest_steps: int
    source: str


SOURCE = "perfkit's own (decision tree accuracy-not-aligned); the guides ask for alignment without a number"
LIMITS: Mapping[str, Limits] = MappingProxyType(
    {
        "exact": Limits(max_relative=0.0, mean_relative=0.0, steps=10, fewest_steps=10, source=SOURCE),
        "re-association": Limits(max_relative=0.005, mean_relative=0.001, steps=100, fewest_steps=10, source=SOURCE),
        "precision": Limits(max_relative=None, mean_relative=0.01, steps=10_000, fewest_steps=500, source=SOURCE),
        "batch": Limits(max_relative=None, mean_relative=None, steps=10_000, fewest_steps=10, source=SOURCE),
    }
)

ORDER = ("exact", "re-association", "precision", "batch", "data", "model")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """A change of the configuration: its class, and whether and why it may change losses."""

    key: str
    old: Any
    new: Any
    change_class: str
    could_cause: bool
    why: str


_START = r"(^|[._])"
_RULES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "exact",
        "no arithmetic",
        (
            "log",
            "callback",
            "monitor",
            "save_",
            "checkpoint_interval",
            "profil",
            "output_dir",
            "run_name",
            "num_workers",
            "prefetch",
        ),
    ),
    (
        "exact",
        "computes the same values again",
        ("recompute", "checkpoint_activations", "offload", "swap", "vmm", "memory"),
    ),
    (
        "data",
        "other samples, or another order of them",
        ("seed", "data_path", "dataset_dir", "data_loader", "shuffle", "split$", "tokenizer", "data_impl"),
    ),
    ("data", "other weights to start from", ("load_checkpoint", "^load$", "resume", "finetune", "init_method", "checkpoint_name")),
    (
        "precision",
        "values have fewer or more bits",
        ("dtype", "compute_type", "init_type", "bf16", "fp16", "fp32", "fp8", f"{_START}amp", "precision", "loss_scale", "_type$"),
    ),
    ("precision", "gradients or optimizer states have other bits", ("master_weights", "state_bytes")),
    (
        "batch",
        "the optimizer takes other steps",
        (
            "global_batch",
            f"{_START}(lr|eps)",
            "learning",
            "warmup",
            "decay",
            r"optimizer\.(type|name)",
            "beta",
            "adam_",
            "clip_grad",
        ),
    ),
    ("re-association", "gradients are added in another order", ("micro_batch", "batch_size", "accumulation", "sink_size")),
    (
        "re-association",
        "sums are split over other devices and added in another order",
        ("parallel", "pipeline", "stage", "shard", "zero", "expert", "interleave", "devices", "dp$", "tp$", "pp$", "mp$"),
    ),
    (
        "re-association",
        "other kernels add in another order",
        (
            "jit",
            "graph_kernel",
            "fus(e|ion)",
            "flash",
            "swiglu",
            "rotary",
            "kernel",
            "compile",
            "deterministic",
            "[hn]ccl",
            "_impl$",
        ),
    ),
    (
        "model",
        "another model, or other inputs",
        (r"^model\.", "hidden", "num_layers", "heads", "vocab", "ffn", "intermediate", "seq_length", "max_position", "activation"),
    ),
)
"""Class, why, and patterns of a key in lower case with underscores; the first that is found counts."""


def causes(changes: Iterable[Mapping[str, Any]]) -> tuple[Cause, ...]:
    """What every change (`key`, `old`, `new`) may do to the losses, the likeliest cause first."""
    found = [_cause(str(change["key"]), change.get("old"), change.get("new")) for change in changes]
    return tuple(sorted(found, key=lambda cause: (-ORDER.index(cause.change_class), cause.key)))


def class_of(found: Iterable[Cause]) -> ChangeClass | None:
    """The class that a set of changes is judged by: the one that allows most. None without a change."""
    classes = [cause.change_class for cause in found]
    if not classes:
        return None
    most = max(classes, key=ORDER.index)
    return "batch" if most in ("data", "model") else most  # type: ignore[return-value]


def _cause(key: str, old: Any, new: Any) -> Cause:
    plain = key.lower().replace("-", "_")
    for change_class, why, patterns in _RULES:
        if re.search("|".join(patterns), plain):
            could = change_class != "exact"
            text = f"{why}; losses stay equal bit for bit" if not could else why
            return Cause(key=key, old=old, new=new, change_class=change_class, could_cause=could, why=text)
    return Cause(key=key, old=old, new=new, change_class="re-association", could_cause=True, why="not known to perfkit")
