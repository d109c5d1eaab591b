"""Deterministic communication or operators in a run that is timed."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.subjects import Environment

SWITCHES = {
    "HCCL_DETERMINISTIC": ("true", "1", "strict"),
    "LCCL_DETERMINISTIC": ("1", "true"),
    "CUBLAS_WORKSPACE_CONFIG": (":4096:8", ":16:8"),
}


def _check(environment: Environment) -> Iterator[Found]:
    for name, words in SWITCHES.items():
        found = environment.last(name)
        if found is not None and found.value.lower() in words:
            yield Found(message=f"{name}={found.value}", key=name, line=found.line)


CHECK = Check(
    name="deterministic-env",
    title="Deterministic execution is switched on",
    kind="environment",
    severity="warning",
    check=_check,
    why="Deterministic reductions are slower; they are for accuracy runs.",
    fix="unset it outside of accuracy runs",
    bad="""export HCCL_DETERMINISTIC=true
""",
    repair=("export HCCL_DETERMINISTIC=true", "export HCCL_DETERMINISTIC=false"),
    example="env.sh",
)
