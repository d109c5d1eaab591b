"""A rank ran out of memory, of its device or of its host, as its log says.

What is measured: lines of logs that tell of a request for device memory that failed, or of a process that the host's kernel or
scheduler killed for memory, with rank, file and line. The first one of each is told; the others often follow from it. What did not
fit, what was free, what the pool held without using it and what other processes held stand in the line of most frameworks, and
decide what helps: where the pool held enough in pieces it is fragments, where others held enough it is they.

What to do: give the framework what the device has, avoid fragments, and hold less: recompute, shard or cut more. On the host fewer
workers that prefetch less, and a larger limit of the job.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from perfkit.core.texts import say
from perfkit.explain.diagnose import incidents
from perfkit.explain.diagnose.advice import EXPANDABLE, Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import LOG_BY
from perfkit.explain.diagnose.rule import Rule, Verdict

OTHERS: Action = {
    "ascend": "other processes hold what did not fit: see which with npu-smi info, and end them or take another device",
    "nvidia": "other processes hold what did not fit: see which with nvidia-smi, and end them or take another device",
    "amd": "other processes hold what did not fit: see which with amd-smi process, and end them or take another device",
}
ACTIONS: tuple[Action, ...] = (
    {"mindspore": "raise max_device_memory towards what the device has (page 04 says what fits)"},
    EXPANDABLE,
    "hold less: recompute more layers, a larger optimizer shard, a smaller micro batch; perfkit plan tells what each frees",
)
DEVICE = ("out_of_memory",)
FIGURES = ("requested_bytes", "free_bytes", "unused_bytes", "others_bytes")
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
    requests = _requests(case)
    request = requests[0] if requests else {}
    device = incidents.verdict(
        case,
        RULE.name,
        DEVICE,
        _what(request, several=len(requests) > 1),
        actions=tuple(dict.fromkeys(text for one in requests or [{}] for text in fitting(case, _actions(one)))),
        following=("04_memory", "15_memory_profile"),
        measured=request,
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


def _requests(case: Case) -> list[dict[str, float]]:
    """The figures of the first line of each rank that says how much did not fit, the first of all first."""
    rows = incidents.of_kinds(case, DEVICE).dropna(subset=["requested_bytes"]).drop_duplicates("rank")
    return [{name: float(row[name]) for name in FIGURES if not pd.isna(row[name])} for _, row in rows.iterrows()]


def _what(request: Mapping[str, float], *, several: bool) -> str:
    if "requested_bytes" not in request:
        return say("ran out of device memory")
    free = say(" where {free_bytes} were free", **request) if "free_bytes" in request else ""
    form = "ran out of device memory{first} by a request of {requested_bytes}{free}"
    return say(form, first=say(", first") if several else "", free=free, **request)


def _actions(request: Mapping[str, float]) -> tuple[Action, ...]:
    """What would have let the request fit comes first; room in the pool helps only where it is there."""
    needed, unused = request.get("requested_bytes"), request.get("unused_bytes")
    if needed is None:
        return ACTIONS
    theirs = (OTHERS,) if request.get("others_bytes", 0.0) >= needed else ()
    if unused is None:
        return (*theirs, *ACTIONS)
    in_pieces = unused >= needed
    return (*theirs, *((EXPANDABLE,) if in_pieces else ()), *(action for action in ACTIONS if action is not EXPANDABLE))


RULE = Rule("out-of-memory", "A rank ran out of memory", frozenset({"incidents"}), LOG_BY, (), check)
