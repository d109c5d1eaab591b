"""Memory settings: what a training framework adds to the memory that a plan itself decides.

A few numbers a framework, each with its source; none was fitted to a table of measurements. What a process takes from the driver
(context, communication libraries) is kept apart from what the framework's allocator hands out, because tools report one or the
other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

from perfkit.core.errors import InputError
from perfkit.core.plan_columns import Coded, PlanColumns, combined
from perfkit.core.spec.checks import counts, one_of, quantity_problem
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.core.spec.memory_limit import MemoryLimit
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.software import CONTEXT_BYTES, FRAMEWORKS, Framework
from perfkit.core.units import MIB

PLAIN_SIZES = (
    "vocab_multiple",
    "logits_bytes_per_element",
    "context_bytes",
    "workspace_bytes",
    "expert_workspace_bytes",
    "bucket_elements",
    "float8_copy_bytes",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class MemorySettings:
    """What a framework keeps beyond the tensors of the model.

    `keeps_norm_in_fp32`: norms cast their input up and keep the copy. `keeps_gathered_inputs`: with sequence parallelism the
    gathered input of a product stays until the backward pass. `keeps_activation_output`: a gated activation keeps its output
    beside both of its inputs. `keeps_float8_inputs`: of the input of an 8-bit product only the 8-bit value is kept.
    `keeps_frozen_inputs`: a product keeps its input though its weight has no gradient. `copies_adapter_inputs`: every adapter
    keeps its input in a copy of its own. `shares_weights`: the group that shares the optimizer state stores the weights that it
    updates in parts too, at every level.
    `keeps_transient_gradients`: gradients of the whole stage exist even with one micro batch.
    `gathers_with_root`: parameters that no wrapped layer has (embedding, head) are whole from the forward pass to the end of the
    backward pass, and with a pipeline all weights and gradients of a stage are, from the first micro batch to the last.
    `vocab_multiple` x tensor-parallel size divides the padded vocabulary. `logits_bytes_per_element` is live at the loss.
    `keeps_score_buffer`: unfused attention computes into one buffer of scores that is never freed (Megatron's local layers).
    `masks_in_batch`: a batch carries an attention mask of one byte a pair of tokens.
    `workspace_bytes` are the allocator's fixed buffers, `expert_workspace_bytes` those of grouped products of experts,
    `context_bytes` what the driver counts outside of it.
    `bucket_elements` are gathered or reduced at once, in a buffer of their own (0: in place). `fragmentation` is the share of the
    peak that the allocator holds beyond it. `float8_copy_bytes` a weight of the layers are kept beside it for 8-bit products: 2
    with its transpose, 1 without. `expert_imbalance` is the tokens of the fullest expert rank over the mean.
    """

    framework: Framework = "megatron"
    keeps_norm_in_fp32: bool = False
    keeps_gathered_inputs: bool = False
    keeps_activation_output: bool = True
    keeps_float8_inputs: bool = False
    keeps_frozen_inputs: bool = False
    copies_adapter_inputs: bool = False
    shares_weights: bool = False
    keeps_transient_gradients: bool = True
    gathers_with_root: bool = False
    masks_in_batch: bool = False
    keeps_score_buffer: bool = False
    vocab_multiple: int = 1
    logits_bytes_per_element: int = 6
    context_bytes: int = 0
    workspace_bytes: int = 0
    expert_workspace_bytes: int = 0
    bucket_elements: int = 0
    float8_copy_bytes: int = 2
    fragmentation: float = 0.0
    expert_imbalance: float = 1.0

    def __post_init__(self) -> None:
        problems = counts(self, PLAIN_SIZES, low=0) + one_of(self, "framework", FRAMEWORKS)
        problems += [problem] if (problem := quantity_problem("expert_imbalance", self.expert_imbalance)) else []
        if not 0 <= self.fragmentation < 1:
            problems.append(f"fragmentation = {self.fragmentation} must be at least 0 and below 1")
        if problems:
            raise InputError("MemorySettings", problems)


_CUBLAS = 2 * 32 * MIB
"""One workspace of 32 MiB (cuBLAS manual: the recommended size) for the thread of the forward and one for that of the backward."""

PRESETS: Mapping[str, MemorySettings] = MappingProxyType(
    {
        "megatron": MemorySettings(
            framework="megatron",
            keeps_activation_output=False,
            keeps_float8_inputs=True,
            masks_in_batch=True,
            vocab_multiple=128,
            context_bytes=CONTEXT_BYTES["megatron"],
            workspace_bytes=_CUBLAS + 4 * MIB,
            expert_workspace_bytes=4 * 4 * MIB,
            fragmentation=0.08,
        ),
        "deepspeed": MemorySettings(
            framework="deepspeed",
            keeps_frozen_inputs=True,
            copies_adapter_inputs=True,
            masks_in_batch=True,
            vocab_multiple=128,
            context_bytes=CONTEXT_BYTES["deepspeed"],
            workspace_bytes=_CUBLAS,
            bucket_elements=500_000_000,
            fragmentation=0.08,
        ),
        "fsdp": MemorySettings(
            framework="fsdp",
            copies_adapter_inputs=True,
            gathers_with_root=True,
            logits_bytes_per_element=16,
            context_bytes=CONTEXT_BYTES["fsdp"],
            workspace_bytes=_CUBLAS,
            float8_copy_bytes=0,
            fragmentation=0.08,
        ),
        "mindspore": MemorySettings(
            framework="mindspore",
            keeps_norm_in_fp32=True,
            keeps_gathered_inputs=True,
            shares_weights=True,
            keeps_transient_gradients=False,
            logits_bytes_per_element=10,
            context_bytes=CONTEXT_BYTES["mindspore"],
            fragmentation=0.04,
        ),
    }
)

SOURCES: Mapping[str, str] = MappingProxyType(
    {
        "context_bytes": "bigscience notes: 1.1 to 1.6 GB a device before the first tensor; MindFormers log: 62432M - 59392M",
        "workspace_bytes": "cuBLAS manual: 32 MiB a handle, two threads; Transformer Engine: 4 MiB, on Hopper 32 MiB",
        "bucket_elements": "DeepSpeed configuration: reduce_bucket_size and allgather_bucket_size, 5e8 by default",
        "fragmentation": "assumed: upper end of 2 to 8 %, as a plan must fit; MindSpore: mean of dry runs' peaks with and without, "
        "0, 2.2, 3.5 and 10.7 % (data/dryrun)",
        "float8_copy_bytes": "Transformer Engine keeps an 8-bit weight and its transpose, as products take rows of either only; "
        "torchao casts a gathered weight for each pass",
        "keeps_float8_inputs": "Transformer Engine, module/linear.py: the quantized input is what the backward pass gets; torchao "
        "keeps the input itself",
        "keeps_frozen_inputs": "DeepSpeed, runtime/zero/linear.py, keeps input and weight; Megatron (LinearWithFrozenWeight) and "
        "autograd of PyTorch only the weight",
        "copies_adapter_inputs": "PEFT, tuners/lora/layer.py: an adapter in 32 bits casts its input, autocast the copy; "
        "an adapter in 16 bits needs less",
        "gathers_with_root": "torchtitan, apply_fsdp: groups of a layer, and the root; with a pipeline nothing is shared again",
        "vocab_multiple": "Megatron: make-vocab-size-divisible-by",
        "logits_bytes_per_element": "16-bit logits and their fp32 copy, which the loss reuses for the gradient; under PyTorch's "
        "loss that copy, its log-softmax and the gradient in 32 bit, and the gradient in 16",
    }
)
_HOPPER = ("H100", "H200", "H800", "GH200", "B200", "GB200")


def settings_for(plan: Plan) -> MemorySettings:
    """The preset of the plan's program on its device; of the usual one where the plan names none.

    Under a limit of the pool what lies outside of it does not count; Megatron's own layers keep a buffer of scores.
    """
    return _settings(plan.program, plan.hardware, plan.software.transformer_impl, plan.memory_limit)


def settings_of(plans: PlanColumns) -> Coded[MemorySettings]:
    """As `settings_for`, of many plans."""
    found = combined(plans.program, plans.hardware, plans.transformer_impl, plans.memory_limit)
    return Coded(found.codes, tuple(_settings(*values) for values in found.values))


@lru_cache(maxsize=1024)
def _settings(program: str, device: HardwareSpec | None, implementation: str, limit: MemoryLimit | None) -> MemorySettings:
    known = preset(program, device.name if device else "")
    return counted(replace(known, keeps_score_buffer=True) if implementation == "local" else known, limit)


def counted(settings: MemorySettings, limit: MemoryLimit | None) -> MemorySettings:
    """The settings as far as they count against a limit: of the pool only what its allocator hands out."""
    return settings if limit is None or limit.part == "device" else replace(settings, context_bytes=0)


def preset(framework: str, device: str = "") -> MemorySettings:
    """The settings of a framework on a device; raises InputError that names the frameworks."""
    if framework not in PRESETS:
        raise InputError("MemorySettings", [f"no framework is called {framework!r}; known are {', '.join(PRESETS)}"])
    found = PRESETS[framework]
    if framework == "megatron" and device.startswith(_HOPPER):
        return replace(found, workspace_bytes=_CUBLAS + 32 * MIB, expert_workspace_bytes=4 * 32 * MIB)
    return found
