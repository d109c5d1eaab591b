"""Blocking launches in a run that is timed."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.subjects import Environment
from perfkit.core.texts import say

SWITCHES = ("ASCEND_LAUNCH_BLOCKING", "CUDA_LAUNCH_BLOCKING", "TASK_QUEUE_ENABLE")


def _check(environment: Environment) -> Iterator[Found]:
    for name in SWITCHES:
        found = environment.last(name)
        wanted = "0" if name == "TASK_QUEUE_ENABLE" else "1"
        if found is not None and found.value == wanted:
            yield Found(
                message=say("{name}={value}: launches are not queued", name=str(name), value=found.value), key=name, line=found.line
            )


CHECK = Check(
    name="launch-blocking-on",
    title="Every launch waits for the device",
    kind="environment",
    severity="warning",
    check=_check,
    why="The host cannot run ahead of the device.",
    fix="unset it, except to find a failing operator",
    bad="""export ASCEND_LAUNCH_BLOCKING=1
""",
    repair=("export ASCEND_LAUNCH_BLOCKING=1", "export ASCEND_LAUNCH_BLOCKING=0"),
    example="env.sh",
)
