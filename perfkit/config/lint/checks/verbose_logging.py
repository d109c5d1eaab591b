"""Logging that costs time in every step."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.subjects import Environment
from perfkit.core.texts import say

QUIET = {"GLOG_v": 2, "ASCEND_GLOBAL_LOG_LEVEL": 2, "TF_CPP_MIN_LOG_LEVEL": 1}
LOUD = {"NCCL_DEBUG": ("INFO", "TRACE"), "ASCEND_SLOG_PRINT_TO_STDOUT": ("1",), "TORCH_DISTRIBUTED_DEBUG": ("DETAIL",)}


def _check(environment: Environment) -> Iterator[Found]:
    for name, lowest in QUIET.items():
        found = environment.last(name)
        if found is not None and found.value.isdigit() and int(found.value) < lowest:
            yield Found(
                message=f"{name}={found.value}",
                key=name,
                line=found.line,
                fix=say("{name}={lowest} or above", name=str(name), lowest=str(lowest)),
            )
    for name, words in LOUD.items():
        found = environment.last(name)
        if found is not None and found.value.upper() in words:
            yield Found(message=f"{name}={found.value}", key=name, line=found.line)


CHECK = Check(
    name="verbose-logging",
    title="Logging is verbose",
    kind="environment",
    severity="warning",
    check=_check,
    why="Debug and information messages of the runtime are written for every operator.",
    fix="set the level back to errors or warnings",
    bad="""export GLOG_v=0
""",
    repair=("export GLOG_v=0", "export GLOG_v=3"),
    example="env.sh",
)
