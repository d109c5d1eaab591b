"""Collecting: what to record so that a rule can judge, in so many recordings and no more.

Every rule that lacks something names one of these, so that what was not measured can be told by what one recording would answer; a
run that says which program ran is told it in the words of that program (`perfkit.explain.diagnose.own_words`).
Options are those of torch.profiler (`record_shapes`, `profile_memory`, `schedule`), torch_npu.profiler (`ProfilerLevel.Level1` in
`_ExperimentalConfig`), mindspore.profiler (`profiler_level`, `profile_memory`) and MindFormers (`profile_communication`), and the
environment variable MS_ALLOC_CONF of MindSpore, as their documentation names them.
"""

from __future__ import annotations

STEPS_BY = "mark steps and record ten in a row after the first five: profiler.step() after each, or a schedule; three are the least"
KERNELS_BY = (
    "record device activity: torch.profiler with activities CPU and CUDA or NPU, or profiler_level 1 (MindSpore), which writes "
    "kernel_details.csv"
)
HOST_BY = "record the host side with launches: activities CPU and CUDA or NPU; for Ascend text output keep trace_view.json"
COMMUNICATION_BY = (
    "record communication of all ranks of a group, one rank of every stage at least, with sizes and times: profiler level 1, "
    "profile_communication (MindFormers), record_shapes=True (torch)"
)
SHAPES_BY = "record input shapes and types, and the device: record_shapes=True, or profiler_level 1 on Ascend devices"
MEMORY_BY = (
    "record memory: profile_memory=True; in MindSpore MS_ALLOC_CONF=memory_tracker:True for single blocks, or "
    "MS_MEMORY_STATISTIC=1 and the log, also of a dry run"
)
LOG_BY = (
    "keep the log of every rank (msrun --log_dir, torchrun --log-dir), with the time, the loss and skipped iterations of steps, "
    "and the lines of drivers and of HCCL or NCCL"
)
BASELINE_BY = (
    "give another run of the same job with --baseline: an earlier recording, one on fewer devices, or the log of one without a "
    "profiler"
)
