"""Facts: the sizes that checks compare, as a configuration states them, whatever its dialect, also where it makes no valid plan.

Names are those of the plan; `keys` has the key or option of each, for messages and lines. A size that is not stated is its default.
A size that only the caller of the file knows (`$VAR`) is none, and nothing follows from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perfkit.config.dialects.registry import dialect_named
from perfkit.config.lint.subjects import Config, NotStatedError

FLAGS = ("sequence_parallel", "optimizer_parallel")
ONE_DEVICE = ("data", "tensor", "pipeline", "context", "expert")
DEGREES = (*ONE_DEVICE, "ulysses")


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """Sizes of a configuration; 0 for a size of the model or the batch that is not stated."""

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    ulysses: int = 1
    virtual: int = 1
    micro_batches: int = 1
    interleave: int = 1
    batch: int = 0
    accumulation: int = 1
    global_batch: int = 0
    seq_length: int = 0
    hidden: int = 0
    layers: int = 0
    heads: int = 0
    kv_heads: int = 0
    ffn: int = 0
    vocab: int = 0
    zero_shard: int = 0
    sequence_parallel: bool = False
    optimizer_parallel: bool = False
    keys: Mapping[str, str] = field(default_factory=dict)

    @property
    def devices(self) -> int:
        """Data x tensor x context x pipeline."""
        return self.data * self.tensor * self.context * self.pipeline

    def key(self, name: str) -> str:
        """The key that states a size, or would state it."""
        return self.keys[name]


class _StatedFacts(Facts):
    """The facts of a piece of a configuration, or of one that leaves sizes open: what is not known cannot be asked for."""

    def __getattribute__(self, name: str) -> Any:
        if name in SIZES and name not in object.__getattribute__(self, "keys")[STATED].split():
            raise NotStatedError(name)
        return object.__getattribute__(self, name)


SIZES = frozenset(Facts.__slots__) - {"keys"}
STATED = ""


def facts_of(config: Config) -> Facts | None:
    """The facts of a configuration; None for a dialect that does not say where it states sizes: its plan is checked as a whole.

    None also where a degree is below 1: its reader refuses it, and nothing else follows from it.
    Those of a piece of a configuration raise NotStatedError for what it does not state.
    """
    names = dialect_named(config.dialect).sizes
    if not names:
        return None
    found: dict[str, Any] = {}
    keys: dict[str, str] = {}
    for name, candidates in names.items():
        keys[name] = candidates[0]
        for key in candidates:
            value = config.get(key)
            if isinstance(value, int) and not isinstance(value, bool):
                found[name], keys[name] = value, key
                break
    asked = [flag for flag in FLAGS if flag in names and (config.whole or config.get(keys[flag]) is not None)]
    found |= {flag: any(is_on(config, key) for key in names[flag]) for flag in asked}
    if any(found.get(name, 1) < 1 for name in DEGREES):
        return None
    if (
        "parallel" in names
        and (config.whole or config.get(keys["parallel"]) is not None)
        and config.get(keys["parallel"]) is not True
    ):
        found |= dict.fromkeys(ONE_DEVICE, 1)
    if "interleaved" in names and config.whole and not is_on(config, keys["interleaved"]):
        found["virtual"] = 1
    if "kv_heads" not in found and "heads" in found:
        found["kv_heads"] = found["heads"]
    if config.whole and "micro_batches" not in found and (config.plan is not None or "micro_batches" not in names):
        # What follows from the batches and the devices is a matter of the plan; without one it is not stated.
        found["micro_batches"] = config.plan.num_micro_batches if config.plan is not None else 0
        keys.setdefault("micro_batches", keys.get("global_batch", ""))
    stated = {name: value for name, value in found.items() if name in Facts.__slots__}
    left_open = {
        name for name, candidates in names.items() if name not in stated and any(_is_open(config, key) for key in candidates)
    }
    named = {**dict.fromkeys(Facts.__slots__, ""), **keys}
    if config.whole and not left_open:
        return Facts(**stated, keys=named)
    known = SIZES - left_open if config.whole else stated
    return _StatedFacts(**stated, keys=named | {STATED: " ".join(known)})


def _is_open(config: Config, key: str) -> bool:
    """Whether a key stands there with a value that only the caller of the file knows."""
    value = config.get(key)
    return isinstance(value, str) and "$" in value


def is_on(config: Config, key: str) -> bool:
    """Whether a flag is on, written in any way that YAML, a shell or JSON has."""
    value = config.get(key, None)
    return (
        value is True
        or (isinstance(value, str) and value.strip().lower() in {"true", "on", "1"})
        or (value == 1 and value is not False)
    )


WINDOWS = {"megatron": ("profile_step_start", 10, "profile_step_end", 12, -1)}
"""Keys of the first step and of the last that is recorded, with their defaults and how far the second lies behind the last."""
USUAL_WINDOW = ("profile_start_step", 1, "profile_stop_step", 10, 0)


def recorded_steps(config: Config) -> tuple[int, int, str, str] | None:
    """First and last step of the profile and the keys that say so; None where none is on, or the steps are no numbers."""
    first, start, last, stop, behind = WINDOWS.get(config.dialect, USUAL_WINDOW)
    start, stop = config.get(first, start), config.get(last, stop)
    if not is_on(config, "profile") or not isinstance(start, int) or not isinstance(stop, int):
        return None
    return start, stop + behind, first, last


def is_inference(config: Config) -> bool:
    """Whether the file is for inference, where training advice does not hold."""
    mode = config.get("run_mode") or "train"
    return str(mode).startswith("predict") or (config.whole and is_on(config, "model.model_config.use_past"))
