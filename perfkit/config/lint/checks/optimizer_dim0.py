"""Weights whose first dimension the optimizer's shards do not divide."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import MODEL, Check, Found
from perfkit.config.lint.facts import facts_of
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    facts = facts_of(config)
    if facts is None or not facts.optimizer_parallel or facts.data == 1:
        return
    shards = facts.zero_shard if facts.zero_shard > 1 else facts.data
    rows = {"hidden size": facts.hidden, "ffn size": facts.ffn, "vocabulary": facts.vocab}
    cut = {"ffn size": facts.tensor}
    whole = [f"{name} {size}" for name, size in rows.items() if size and size // cut.get(name, 1) % shards]
    if whole:
        yield Found(
            message=say(
                "rows of {names} do not divide over {shards} shards: these weights stay whole",
                names=", ".join(whole),
                shards=str(shards),
            ),
            key=facts.key("zero_shard"),
        )


CHECK = Check(
    name="optimizer-dim0",
    title="Some weights are not sharded",
    kind="config",
    severity="warning",
    check=_check,
    why="A weight whose rows do not divide stays whole on every device.",
    fix="choose a shard size that divides the rows of the large weights",
    bad="""use_parallel: True
parallel_config:
  data_parallel: 7
parallel:
  enable_parallel_optimizer: True
"""
    + MODEL,
    repair=("  data_parallel: 7", "  data_parallel: 8"),
    example="pretrain.yaml",
)
