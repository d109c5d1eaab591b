"""A shard size of the optimizer that does not divide the replicas."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.facts import facts_of
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    facts = facts_of(config)
    if facts is None or facts.zero_shard in (0, -1) or facts.data == 1:
        return
    if not 1 < facts.zero_shard <= facts.data or facts.data % facts.zero_shard:
        message = say(
            "{zero_shard} does not divide data parallel {data}, or is not between 2 and it",
            zero_shard=str(facts.zero_shard),
            data=str(facts.data),
        )
        yield Found(message=message, key=facts.key("zero_shard"))


CHECK = Check(
    name="zero-shard-size",
    title="The optimizer's shard size does not fit",
    kind="config",
    severity="error",
    check=_check,
    why="MindSpore ignores it and shards over all replicas; other frameworks stop.",
    fix="choose a size above 1 that divides data parallel",
    bad="""use_parallel: True
parallel_config:
  data_parallel: 8
parallel:
  enable_parallel_optimizer: True
  parallel_optimizer_config:
    optimizer_weight_shard_size: 3
""",
    repair=("    optimizer_weight_shard_size: 3", "    optimizer_weight_shard_size: 4"),
    example="pretrain.yaml",
)
