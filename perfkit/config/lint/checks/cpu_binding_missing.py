"""A launch of several processes that are not bound to processors."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.subjects import Environment

LAUNCHERS = re.compile(r"\b(msrun|torchrun|mpirun|deepspeed|python\S*\s+-m\s+torch\.distributed)\b")
BOUND = ("CPU_AFFINITY_CONF", "GOMP_CPU_AFFINITY", "OMP_PROC_BIND", "KMP_AFFINITY")
TOOLS = ("numactl", "taskset", "--bind_core", "--bind-to", "hwloc-bind")


def _check(environment: Environment) -> Iterator[Found]:
    launched = next(
        (n for n, line in enumerate(environment.text.splitlines(), 1) if LAUNCHERS.search(line) and "#" not in line[:1]), None
    )
    if launched is None or any(environment.last(name) for name in BOUND) or any(tool in environment.text for tool in TOOLS):
        return
    yield Found(message="several processes are started without binding", line=launched)


CHECK = Check(
    name="cpu-binding-missing",
    title="Processes are not bound to processors",
    kind="environment",
    severity="information",
    check=_check,
    why="Processes of one node move between the halves of the machine; launching operators then takes longer at times.",
    fix="set CPU_AFFINITY_CONF=1 (torch_npu), context.affinity_cpu_list (MindSpore), or start with numactl or taskset",
    bad="""export MS_ENABLE_NUMA=0
msrun --worker_num=8 run.py
""",
    repair=("export MS_ENABLE_NUMA=0", "export CPU_AFFINITY_CONF=1"),
    example="launch.sh",
)
