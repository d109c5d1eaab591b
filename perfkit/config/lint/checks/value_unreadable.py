"""A value that its key cannot have."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.dialects.key_effects import leaves
from perfkit.config.fragments.repair import digits_of
from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.subjects import VALUE_PROBLEM, WORD_PROBLEM, Config
from perfkit.core.texts import say

NAMES = ("name", "type", "path", "dir", "id", "model", "version")
"""Keys of texts, in which letters stand beside digits."""


def _check(config: Config) -> Iterator[Found]:
    refused = {}
    for problem in config.plan_problems:
        if found := VALUE_PROBLEM.match(problem):
            refused[found["key"]] = problem[found.start("key") :]
            line = int(found["line"]) if found["line"] else None
            yield Found(message=refused[found["key"]], key=found["key"], line=line, fix=_meant(found["value"].strip("'")))
        elif not config.whole and (found := WORD_PROBLEM.match(problem)):  # of a whole one `plan-invalid` says it
            line, message = int(found["line"]) if found["line"] else None, problem[found.start("key") :]
            yield Found(message=message, key=found["key"], line=line, fix="see the message for the nearest valid values")
    for key, value in leaves(config.values):
        if key not in refused and isinstance(value, str) and digits_of(value) and not key.endswith(NAMES):
            message = say("{key}: {value} is a number with letters in it", key=key, value=repr(value))
            yield Found(message=message, key=key, fix=_meant(value), severity="warning")


def _meant(value: str) -> str:
    digits = digits_of(value)
    return say("write {value}, if that is meant", value=digits) if digits else ""


CHECK = Check(
    name="value-unreadable",
    title="A value is no number where one is needed",
    kind="config",
    severity="error",
    check=_check,
    why="The program stops at it, or takes something else for it.",
    fix="write the number alone, without letters or a unit",
    bad="""torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 3l --hidden-size 4096
""",
    repair=("3l", "32"),
    example="pretrain.sh",
)
