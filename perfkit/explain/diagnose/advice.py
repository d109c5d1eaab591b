"""Advice: what to do, in the words of the program and the device that were recorded.

An action is a sentence that holds everywhere, or one for each program or device that says it in words of its own. A run is told
its own words: those of the trainer before those of the framework below it, and these before those of the device. Where nothing
says which program ran, each is told with its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from perfkit.core.run import Run
from perfkit.core.texts import say
from perfkit.explain.diagnose.case import Case

Speaker = Literal["mindspore", "megatron", "torch_npu", "torch", "ascend", "nvidia", "amd"]
Action = str | Mapping[Speaker, str]
"""What to do: the same everywhere, or by program and device."""

NAMES: Mapping[Speaker, str] = {
    "mindspore": "MindSpore and MindFormers",
    "megatron": "Megatron-LM and MindSpeed",
    "torch_npu": "torch_npu",
    "torch": "PyTorch",
    "ascend": "Ascend",
    "nvidia": "NVIDIA",
    "amd": "AMD",
}
BELOW: Mapping[str, tuple[Speaker, ...]] = {
    "mindspore": ("mindspore", "ascend"),
    "torch_npu": ("torch_npu", "torch", "ascend"),
    "torch": ("torch", "nvidia"),
}
"""What a framework understands, its own words first."""
ON_TOP: Mapping[str, tuple[Speaker, ...]] = {"torch_npu": ("megatron",), "torch": ("megatron",)}
"""What may run on a framework, though nothing says so."""
OF_FORMAT: Mapping[str, str] = {
    "mindinsight": "mindspore",
    "mindformers-log": "mindspore",
    "dryrun-log": "mindspore",
    "memory-tracker": "mindspore",
    "kineto": "torch",
    "megatron-log": "torch",
    "torchtitan-log": "torch",
    "torch-memory-snapshot": "torch",
    "torch-memory-timeline": "torch",
}
AMD = re.compile(r"\bAMD\b|\bMI\d{2,3}|gfx\d", re.IGNORECASE)
OF_TORCH_NPU = re.compile(r"NPU out of memory|NPUWorkspaceAllocator|torch_npu|\bERR\d{5}\b")
"""What torch_npu prints when something goes wrong, whatever log it is in."""
GROUPS_OF_MEGATRON = re.compile(r"MODEL_PARALLEL_GROUP|DATA_PARALLEL_GROUP")

EXPANDABLE: Action = {
    "mindspore": "let blocks of the memory pool grow: MS_ALLOC_CONF=enable_vmm:True",
    "torch_npu": "let segments of the memory pool grow: PYTORCH_NPU_ALLOC_CONF=expandable_segments:True",
    "torch": "let segments of the memory pool grow: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
}
KEEP_CACHE: Action = {
    "mindspore": "do not call mindspore.runtime.empty_cache() inside the step",
    "megatron": "do not empty the cache inside the step: --empty-unused-memory-level 0",
    "torch_npu": "do not call torch.npu.empty_cache() inside the step",
    "torch": "do not call torch.cuda.empty_cache() inside the step",
}
BIND: Action = {
    "mindspore": "bind threads to CPUs near the device: mindspore.runtime.set_cpu_affinity(True), or msrun --bind_core=True",
    "torch_npu": "bind threads to CPUs near the device: CPU_AFFINITY_CONF=1",
    "torch": "bind every process to CPUs of its own near its device: numactl --cpunodebind=N --membind=N, or taskset",
}
SMALLER_BUCKETS: Action = {
    "mindspore": "cut gradients into buckets that are sent beside the backward pass: "
    'set_auto_parallel_context(comm_fusion={"allreduce": {"mode": "size", "config": 64}}), in MB',
    "megatron": "send gradients and parameters beside computing: "
    "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather",
    "torch": "send gradients beside the backward pass: DistributedDataParallel(bucket_cap_mb=25) around the whole model, or "
    "fully_shard on every layer by itself and then on the model",
}
REDUCE_INSIDE_FIRST: Action = {
    "mindspore": "shard the optimizer inside a node only: optimizer_weight_shard_size: 8 (devices of a node)",
    "megatron": "shard the optimizer inside a part of the replicas: --num-distributed-optimizer-instances, one for each node",
    "torch": "shard inside a node only: fully_shard over a mesh of two dimensions (replicas x devices of a node)",
}
FEWER_LAYERS_AGAIN: Action = {
    "mindspore": "recompute fewer layers, those of the last stages first: recompute_config.recompute as a list of counts by stage, "
    "as far as memory allows (page 05)",
    "megatron": "recompute fewer layers as far as memory allows (page 05): --recompute-granularity full --recompute-method block "
    "--recompute-num-layers N, a stage",
    "torch": "wrap fewer layers in torch.utils.checkpoint, as far as memory allows (page 05)",
}
CHEAP_OPERATORS_AGAIN: Action = {
    "mindspore": "recompute cheap operators only: recompute_config.select_recompute with patterns of norm and activation",
    "megatron": "recompute the attention core only: --recompute-granularity selective",
    "torch": "recompute cheap operators only: torch.utils.checkpoint with context_fn=create_selective_checkpoint_contexts",
}
HEALTH: Action = {
    "ascend": "look at clock, temperature and power of the device: npu-smi info -t common, and -t ecc for its memory",
    "nvidia": "look at clock, temperature and power of the device: nvidia-smi -q -d PERFORMANCE, and -d ECC for its memory",
    "amd": "look at clock, temperature and power of the device: amd-smi metric -c -t -p, and -e for its memory",
}
RECORD_HOST: Action = {
    "ascend": "record the host side with launches: activities CPU and NPU, and keep the timeline",
    "nvidia": "record the host side with launches: activities CPU and CUDA",
}
ASYNC_SAVE: Action = {
    "mindspore": "save checkpoints rarely and asynchronously: save_checkpoint_steps and async_save of CheckpointMonitor",
    "megatron": "save checkpoints rarely and asynchronously: --save-interval, --async-save with --ckpt-format torch_dist",
    "torch": "save checkpoints rarely and asynchronously: torch.distributed.checkpoint.async_save",
}


def fitting(case: Case, actions: Iterable[Action]) -> tuple[str, ...]:
    """The actions in the words of what was recorded; those that nothing recorded understands are left out."""
    return tuple(text for action in actions for text in _told(speakers(case), action))


def speakers(case: Case) -> tuple[Speaker, ...]:
    """Whose words the run understands, the closest first; empty if nothing says which program ran."""
    framework = _framework(case.run)
    known = BELOW.get(framework, ())
    named = case.run.facts.get("device_name")
    if named is not None and AMD.search(str(named.value)):
        known = tuple("amd" if one == "nvidia" else one for one in known)
    return ("megatron", *known) if known and framework != "mindspore" and _is_megatron(case) else known


def _told(known: tuple[Speaker, ...], action: Action) -> tuple[str, ...]:
    if isinstance(action, str):
        return (action,)
    if (speaker := next((one for one in known if one in action), None)) is not None:
        return (action[speaker],)
    may: tuple[Speaker, ...] = ON_TOP.get(next((one for one in known if one in BELOW), ""), ()) if known else get_args(Speaker)
    return tuple(say("{program}: {what}", program=NAMES[one], what=action[one]) for one in may if one in action)


def _framework(run: Run) -> str:
    """The framework: what the profiler says that recorded, else the format, else the plan; "" if nothing says it."""
    stated = run.facts.get("profiler")
    if stated is not None:
        return "torch_npu" if str(stated.value).startswith("torch_npu") else "mindspore"
    if OF_FORMAT.get(run.format, "torch") == "torch" and run.has("incidents"):
        told = run.frame("incidents", columns=("text",))["text"].astype(str)
        if told.str.contains(OF_TORCH_NPU).any():
            return "torch_npu"
    if run.format in OF_FORMAT:
        return OF_FORMAT[run.format]
    if run.plan is None:
        return ""
    if run.plan.program == "mindspore":
        return "mindspore"
    ascend = run.plan.hardware is not None and run.plan.hardware.name.lower().startswith("ascend")
    return "torch_npu" if ascend else "torch"


def _is_megatron(case: Case) -> bool:
    """Whether Megatron or MindSpeed ran: by its log, the plan, or the process groups that it names."""
    run = case.run
    if run.format == "megatron-log" or (run.plan is not None and run.plan.software.framework == "megatron"):
        return True
    if run.kind == "simulated" and run.plan is not None:
        return run.plan.program == "megatron"
    # MindSpeed writes its sizes into the profile; Kineto has the names of the groups.
    stated = run.facts.get("tensor_parallel_size")
    named = stated is not None and "distributed_args" in stated.source.where
    return named or any(GROUPS_OF_MEGATRON.search(group.label or "") for group in case.groups)
