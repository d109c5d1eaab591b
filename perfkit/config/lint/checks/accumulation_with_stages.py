"""Gradient accumulation that a pipeline ignores."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.facts import facts_of
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    facts = facts_of(config)
    if facts is not None and config.dialect == "mindformers" and facts.pipeline > 1 and facts.accumulation > 1:
        message = say(
            "gradient_accumulation_steps = {accumulation} counts as 1 with {pipeline} stages",
            accumulation=str(facts.accumulation),
            pipeline=str(facts.pipeline),
        )
        yield Found(message=message, key=facts.key("accumulation"))


CHECK = Check(
    name="accumulation-with-stages",
    title="Gradient accumulation is ignored with stages",
    kind="config",
    severity="warning",
    check=_check,
    why="With pipeline stages MindFormers ignores gradient_accumulation_steps: the global batch is smaller than it looks.",
    fix="raise micro_batch_num instead",
    bad="""use_parallel: True
parallel_config:
  pipeline_stage: 2
  micro_batch_num: 32
runner_config:
  gradient_accumulation_steps: 4
""",
    repair=(
        """  micro_batch_num: 32
runner_config:
  gradient_accumulation_steps: 4""",
        """  micro_batch_num: 128
runner_config:
  gradient_accumulation_steps: 1""",
    ),
    example="pretrain.yaml",
)
