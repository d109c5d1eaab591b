"""An allocator setting that a second assignment of the same variable replaces."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.subjects import Environment
from perfkit.core.texts import say


def _check(environment: Environment) -> Iterator[Found]:
    found = [variable for variable in environment.variables if variable.name == "MS_ALLOC_CONF"]
    for before, after in pairwise(found):
        lost = [item for item in before.value.split(",") if item and item not in after.value.split(",")]
        if lost and "$MS_ALLOC_CONF" not in after.value and "${MS_ALLOC_CONF" not in after.value:
            joined = ",".join([*lost, after.value])
            yield Found(
                message=say(
                    "MS_ALLOC_CONF was set on line {line}; {names} is lost here, the last one wins",
                    line=str(before.line),
                    names=", ".join(lost),
                ),
                key="MS_ALLOC_CONF",
                line=after.line,
                fix=say('join with commas: MS_ALLOC_CONF="{joined}"', joined=joined),
            )


CHECK = Check(
    name="alloc-conf-overwritten",
    title="MS_ALLOC_CONF is set twice",
    kind="environment",
    severity="error",
    check=_check,
    why="Only the last assignment counts, so that for example virtual memory is off although the script seems to switch it on.",
    fix="join all items in one assignment, separated by commas",
    bad="""export MS_ALLOC_CONF="enable_vmm:True"
export MS_ALLOC_CONF="memory_tracker:True"
""",
    repair=(
        """export MS_ALLOC_CONF="enable_vmm:True"
export MS_ALLOC_CONF="memory_tracker:True\"""",
        'export MS_ALLOC_CONF="enable_vmm:True,memory_tracker:True"',
    ),
    example="env.sh",
)
