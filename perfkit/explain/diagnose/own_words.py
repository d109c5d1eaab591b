"""Own words: how to collect what was not measured, as the program and the device that were recorded have it."""

from __future__ import annotations

from collections.abc import Mapping

from perfkit.explain.diagnose.advice import RECORD_HOST, Action, fitting, speakers
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import COMMUNICATION_BY, HOST_BY, KERNELS_BY, LOG_BY, MEMORY_BY, SHAPES_BY

OWN_WORDS: Mapping[str, Action] = {
    KERNELS_BY: {
        "mindspore": "record device activity: profiler_level 1",
        "torch_npu": "record device activity: torch_npu.profiler with activities CPU and NPU and ProfilerLevel.Level1",
        "torch": "record device activity: torch.profiler with activities CPU and CUDA",
    },
    HOST_BY: RECORD_HOST,
    COMMUNICATION_BY: {
        "mindspore": "record communication of all ranks of a group, one rank of every stage at least, with sizes and times: "
        "profiler_level 1, profile_communication (MindFormers)",
        "torch_npu": "record communication of all ranks of a group, one rank of every stage at least, with sizes and times: "
        "ProfilerLevel.Level1",
        "torch": "record communication of all ranks of a group, one rank of every stage at least, with sizes and times: "
        "record_shapes=True",
    },
    SHAPES_BY: {
        "mindspore": "record input shapes and types, and the device: profiler_level 1",
        "torch_npu": "record input shapes and types, and the device: record_shapes=True and ProfilerLevel.Level1",
        "torch": "record input shapes and types, and the device: record_shapes=True",
    },
    MEMORY_BY: {
        "mindspore": "record memory: MS_ALLOC_CONF=memory_tracker:True for single blocks, or MS_MEMORY_STATISTIC=1 and the log, "
        "also of a dry run",
        "torch": "record memory: profile_memory=True",
    },
    LOG_BY: {
        "mindspore": "keep the log of every rank (msrun --log_dir), with the time, the loss and skipped iterations of steps, "
        "and the lines of drivers and of HCCL",
        "torch_npu": "keep the log of every rank (torchrun --log-dir), with the time, the loss and skipped iterations of steps, "
        "and the lines of drivers and of HCCL",
        "torch": "keep the log of every rank (torchrun --log-dir), with the time, the loss and skipped iterations of steps, "
        "and the lines of drivers and of NCCL",
    },
}


def in_own_words(case: Case, how: str) -> str:
    """How to collect something, in the words of what was recorded; as it stands where nothing says which program ran."""
    told = fitting(case, [OWN_WORDS[how]]) if how in OWN_WORDS and speakers(case) else ()
    return told[0] if len(told) == 1 else how
