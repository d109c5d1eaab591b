"""Micro batches where there is no pipeline."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.facts import facts_of, is_inference
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    facts = facts_of(config)
    if (
        facts is not None
        and config.dialect == "mindformers"
        and facts.pipeline == 1
        and facts.micro_batches > 1
        and not is_inference(config)
    ):
        yield Found(
            message=say("micro_batch_num = {micro_batches} counts as 1", micro_batches=str(facts.micro_batches)),
            key=facts.key("micro_batches"),
        )


CHECK = Check(
    name="micro-batches-without-stages",
    title="Micro batches have no effect without stages",
    kind="config",
    severity="information",
    check=_check,
    why="With one stage MindFormers sets micro_batch_num to 1; only gradient_accumulation_steps cut the batch.",
    fix="use gradient_accumulation_steps",
    bad="""use_parallel: True
parallel_config:
  pipeline_stage: 1
  micro_batch_num: 16
""",
    repair=("  micro_batch_num: 16", "  micro_batch_num: 1"),
    example="pretrain.yaml",
)
