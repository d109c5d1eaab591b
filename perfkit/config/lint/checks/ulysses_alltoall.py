"""Ulysses without the all-to-all operators."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.facts import facts_of, is_on
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    facts = facts_of(config)
    algorithm = config.get("parallel_config.context_parallel_algo")
    if (
        facts is not None
        and facts.context > 1
        and algorithm in ("ulysses_cp", "hybird_cp", "hybrid_cp")
        and not is_on(config, "parallel.enable_alltoall")
    ):
        yield Found(
            message=say("{algorithm} without enable_alltoall: all-to-all is replaced by slower operators", algorithm=algorithm),
            key="parallel.enable_alltoall",
        )


CHECK = Check(
    name="ulysses-alltoall",
    title="Ulysses without all-to-all",
    kind="config",
    severity="warning",
    check=_check,
    why="Every exchange is done by slower operators.",
    fix="set parallel.enable_alltoall: True",
    bad="""use_parallel: True
parallel_config:
  context_parallel: 4
  context_parallel_algo: ulysses_cp
parallel:
  enable_alltoall: False
""",
    repair=("  enable_alltoall: False", "  enable_alltoall: True"),
    example="pretrain.yaml",
)
