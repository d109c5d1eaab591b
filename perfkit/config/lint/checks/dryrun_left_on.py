"""The switch of a dry run in the launch of a training."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.subjects import Environment
from perfkit.core.texts import say

SWITCHES = ("MS_SIMULATION_LEVEL", "MS_KERNEL_LAUNCH_SKIP")


def _check(environment: Environment) -> Iterator[Found]:
    if "dryrun" in environment.file.lower() or "dry_run" in environment.file.lower():
        return
    for name in SWITCHES:
        found = environment.last(name)
        if found is not None and found.value not in ("", "0"):
            yield Found(
                message=say("{name}={value}: nothing is trained", name=str(name), value=found.value), key=name, line=found.line
            )


CHECK = Check(
    name="dryrun-left-on",
    title="A dry run is switched on",
    kind="environment",
    severity="error",
    check=_check,
    why="With simulation on nothing is trained, although the log looks as if it were.",
    fix="unset it for a training",
    bad="""export MS_SIMULATION_LEVEL=1
python run.py
""",
    repair=("export MS_SIMULATION_LEVEL=1", "export MS_MEMORY_STATISTIC=1"),
    example="env.sh",
)
