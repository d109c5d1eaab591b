"""A dry run for a rank that does not exist."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.subjects import Environment
from perfkit.core.texts import say


def _check(environment: Environment) -> Iterator[Found]:
    size, rank = environment.last("RANK_SIZE"), environment.last("RANK_ID")
    if size is None or rank is None or not size.value.isdigit() or not rank.value.isdigit():
        return
    if int(rank.value) >= int(size.value):
        yield Found(
            message=say("RANK_ID={value} with RANK_SIZE={value_2}", value=rank.value, value_2=size.value),
            key="RANK_ID",
            line=rank.line,
        )


CHECK = Check(
    name="dryrun-rank-size",
    title="The rank of a dry run does not exist",
    kind="environment",
    severity="error",
    check=_check,
    why="The memory of another job, or of no rank, is simulated.",
    fix="let RANK_ID be below RANK_SIZE, and RANK_SIZE the product of the parallel sizes",
    bad="""export MS_SIMULATION_LEVEL=1 RANK_SIZE=16 RANK_ID=16
""",
    repair=("export MS_SIMULATION_LEVEL=1 RANK_SIZE=16 RANK_ID=16", "export RANK_SIZE=16 RANK_ID=15"),
    example="env.sh",
)
