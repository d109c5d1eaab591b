"""The key parallel_config.optimizer_shard, which has no effect any more."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import MODEL, Check, Found
from perfkit.config.lint.facts import is_on
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    value = config.get("parallel_config.optimizer_shard")
    if config.dialect == "mindformers" and value is True and not is_on(config, "parallel.enable_parallel_optimizer"):
        yield Found(
            message=say("optimizer_shard = {value} has no effect, and enable_parallel_optimizer is off", value=str(value)),
            key="parallel_config.optimizer_shard",
        )


CHECK = Check(
    name="optimizer-shard-key",
    title="The key optimizer_shard has no effect",
    kind="config",
    severity="warning",
    check=_check,
    why="Since release 0.7 MindFormers reads parallel.enable_parallel_optimizer only.",
    fix="remove it; use parallel.enable_parallel_optimizer",
    bad="""use_parallel: True
parallel_config:
  data_parallel: 8
  optimizer_shard: True
"""
    + MODEL,
    repair=(
        "  optimizer_shard: True",
        """parallel:
  enable_parallel_optimizer: True""",
    ),
    example="pretrain.yaml",
)
