"""A device failed: an error of its memory (ECC), its driver or its runtime.

What is measured: lines of logs that tell of ECC errors, Xid of NVIDIA's driver, codes of Ascend's runtime and HCCL, or errors of
CUDA, with rank, file and line.

What to do: an ECC error or an Xid of hardware wants the device reset or exchanged; an illegal access wants the kernel found.
"""

from __future__ import annotations

import re

from perfkit.core.texts import say
from perfkit.explain.diagnose import incidents
from perfkit.explain.diagnose.advice import Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import LOG_BY
from perfkit.explain.diagnose.rule import Rule, Verdict

ACTIONS: tuple[Action, ...] = (
    {
        "ascend": "look at the memory of the named devices: npu-smi info -t ecc; take those with uncorrectable errors out",
        "nvidia": "look at the memory of the named devices: nvidia-smi -q -d ECC; take those with uncorrectable errors out",
        "amd": "look at the memory of the named devices: amd-smi metric -e; take those with uncorrectable errors out",
    },
    {
        "mindspore": "for an illegal access: run again with mindspore.runtime.launch_blocking(), so that the failing call is named",
        "torch_npu": "for an illegal access: run again with ASCEND_LAUNCH_BLOCKING=1, so that the failing call is named",
        "torch": "for an illegal access: run again with CUDA_LAUNCH_BLOCKING=1, so that the failing call is named",
    },
)
OFF_THE_BUS = re.compile(r"fallen off the bus|\bXid\b.{0,40}?\):\s*79\b")
GONE: tuple[Action, ...] = (
    "the device left its bus: start its node anew; if it comes again, look at power, cooling and seat of the card, or exchange it",
)


def check(case: Case) -> Verdict:
    """Lines about errors of devices."""
    told = case.run.frame("incidents")
    gone = told[(told["kind"] == "device_error").to_numpy(dtype=bool)]["text"].astype(str).str.contains(OFF_THE_BUS).any()
    return incidents.verdict(
        case,
        RULE.name,
        ("memory_error", "device_error"),
        say("reported an error of its device"),
        actions=fitting(case, GONE if gone else ACTIONS),
        following=("17_cluster",),
    )


RULE = Rule("device-error", "A device reported an error", frozenset({"incidents"}), LOG_BY, (), check)
