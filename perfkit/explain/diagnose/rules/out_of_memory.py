"""A rank ran out of memory, of its device or of its host, as its log says.

What is measured: lines of logs that tell of a request for device memory that failed, or of a process that the host's kernel or
scheduler killed for memory, with rank, file and line. The first one of each is told; the others often follow from it.

What to do: give the framework what the device has, avoid fragments, and hold less: recompute, shard or cut more. On the host fewer
workers that prefetch less, and a larger limit of the job.
"""

from __future__ import annotations

from perfkit.core.texts import say
from perfkit.explain.diagnose import incidents
from perfkit.explain.diagnose.advice import EXPANDABLE, Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import LOG_BY
from perfkit.explain.diagnose.rule import Rule, Verdict

ACTIONS: tuple[Action, ...] = (
    {"mindspore": "raise max_device_memory towards what the device has (page 04 says what fits)"},
    EXPANDABLE,
    "hold less: recompute more layers, a larger optimizer shard, a smaller micro batch; perfkit plan tells what each frees",
)
HOST_ACTIONS: tuple[Action, ...] = (
    {
        "mindspore": "let the dataset hold less: smaller num_parallel_workers and prefetch_size of train_dataset",
        "megatron": "let the dataset hold less: a smaller --num-workers",
        "torch": "let the loader hold less: smaller num_workers and prefetch_factor of the DataLoader",
    },
    "give the job more memory of its host (limit of the scheduler or container), and look at what grows there while it runs",
    "states that were moved to the host, and checkpoints that are copied there before they are written, count too",
)


def check(case: Case) -> Verdict:
    """Lines about memory that was not there."""
    device = incidents.verdict(
        case,
        RULE.name,
        ("out_of_memory",),
        say("ran out of device memory"),
        actions=fitting(case, ACTIONS),
        following=("04_memory", "15_memory_profile"),
    )
    host = incidents.verdict(
        case,
        RULE.name,
        ("host_memory",),
        say("had a process killed for the memory of its host"),
        actions=fitting(case, HOST_ACTIONS),
        following=(),
    )
    return Verdict((*device.findings, *host.findings), device.evidence)


RULE = Rule("out-of-memory", "A rank ran out of memory", frozenset({"incidents"}), LOG_BY, (), check)
