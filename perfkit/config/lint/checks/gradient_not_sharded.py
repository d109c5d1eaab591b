"""Gradients that are kept whole beside a sharded optimizer."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import MODEL, Check, Found
from perfkit.config.lint.facts import facts_of, is_on
from perfkit.config.lint.subjects import Config
from perfkit.core.params import trained_params
from perfkit.core.texts import say
from perfkit.core.units import format_bytes


def _check(config: Config) -> Iterator[Found]:
    facts = facts_of(config)
    sums = facts is not None and (facts.pipeline > 1 or facts.accumulation > 1)
    if facts is None or not sums or not facts.optimizer_parallel or facts.data == 1 or config.dialect != "mindformers":
        return
    key = "parallel.parallel_optimizer_config.gradient_accumulation_shard"
    if is_on(config, key) or config.get("parallel.parallel_optimizer_config.optimizer_level", None) in ("level2", "level3"):
        return
    size = ""
    if config.plan is not None:
        size = say(
            " of {amount}",
            amount=str(format_bytes(2 * int(trained_params(config.plan.model).total) // (facts.tensor * facts.pipeline))),
        )
    yield Found(message=say("a whole copy{size} of the gradients stays on every device", size=size), key=key)


CHECK = Check(
    name="gradient-not-sharded",
    title="Accumulated gradients are not sharded",
    kind="config",
    severity="information",
    check=_check,
    why="A whole copy of the gradients (2 bytes a parameter) stays on every device while they are summed.",
    fix="set parallel_optimizer_config.gradient_accumulation_shard: True if memory is short; it adds communication",
    bad="""use_parallel: True
parallel_config:
  data_parallel: 8
  pipeline_stage: 2
  micro_batch_num: 32
parallel:
  enable_parallel_optimizer: True
"""
    + MODEL,
    repair=(
        "  enable_parallel_optimizer: True",
        """  enable_parallel_optimizer: True
  parallel_optimizer_config:
    gradient_accumulation_shard: True""",
    ),
    example="pretrain.yaml",
)
