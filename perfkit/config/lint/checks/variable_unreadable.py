"""A value that an environment variable cannot have."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.fragments.repair import digits_of
from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.subjects import Environment
from perfkit.core.texts import say

NUMBERS = frozenset(
    {
        "ASCEND_GLOBAL_LOG_LEVEL",
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "GLOG_v",
        "HCCL_BUFFSIZE",
        "HCCL_CONNECT_TIMEOUT",
        "HCCL_EXEC_TIMEOUT",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_PORT",
        "NCCL_BUFFSIZE",
        "NCCL_MIN_NCHANNELS",
        "NODE_RANK",
        "OMP_NUM_THREADS",
        "RANK",
        "RANK_ID",
        "RANK_SIZE",
        "TASK_QUEUE_ENABLE",
        "WORLD_SIZE",
    }
)
"""Variables that take a whole number and nothing else."""
BY_LEVEL = "OMP_NUM_THREADS"
"""Also takes a list, a number a level of nested parallel regions (OpenMP 5.2, section 21.1.2)."""


def _check(environment: Environment) -> Iterator[Found]:
    for one in environment.variables:
        digits = digits_of(one.value)
        fix = say("write {value}, if that is meant", value=digits) if digits else ""
        numbers = one.value.split(",") if one.name == BY_LEVEL else [one.value]
        is_number = all(number.strip().removeprefix("-").isdecimal() for number in numbers)
        if one.name in NUMBERS and _is_stated(one.value) and not is_number:
            message = say("{key}: {value} must be a whole number", key=one.name, value=repr(one.value))
            yield Found(message=message, key=one.name, line=one.line, fix=fix)
        elif digits:
            message = say("{key}: {value} is a number with letters in it", key=one.name, value=repr(one.value))
            yield Found(message=message, key=one.name, line=one.line, fix=fix, severity="warning")


def _is_stated(value: str) -> bool:
    """Whether a value is there and is not for the shell, a template or a reader to fill in (`$1`, `{{ port }}`, `<rank>`)."""
    return bool(value) and not set(value) & set("$`{}<>%()")


CHECK = Check(
    name="variable-unreadable",
    title="An environment variable is no number where one is needed",
    kind="environment",
    severity="error",
    check=_check,
    why="The library stops at it, or keeps its default and says nothing.",
    fix="write the number alone, without letters or a unit",
    bad="""export HCCL_BUFFSIZE=4OO
""",
    repair=("export HCCL_BUFFSIZE=4OO", "export HCCL_BUFFSIZE=400"),
    example="env.sh",
)
