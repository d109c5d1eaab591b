"""One thread, or all of them, for every process of a node."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.subjects import Environment


def _check(environment: Environment) -> Iterator[Found]:
    found = environment.last("OMP_NUM_THREADS")
    if found is not None and found.value.isdigit() and (int(found.value) == 1 or int(found.value) > 64):
        yield Found(message=f"OMP_NUM_THREADS={found.value}", key="OMP_NUM_THREADS", line=found.line)


CHECK = Check(
    name="omp-threads-one",
    title="Threads of the host do not fit the processes",
    kind="environment",
    severity="information",
    check=_check,
    why="With 1 thread host operators and the data pipeline crawl; with all of them the processes of a node disturb one another.",
    fix="set OMP_NUM_THREADS to processors / processes of the node",
    bad="""export OMP_NUM_THREADS=1
""",
    repair=("export OMP_NUM_THREADS=1", "export OMP_NUM_THREADS=16"),
    example="env.sh",
)
