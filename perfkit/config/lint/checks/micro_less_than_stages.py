"""Fewer micro batches than pipeline stages."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.facts import facts_of
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    facts = facts_of(config)
    if facts is None or facts.pipeline < 2 or not 0 < facts.micro_batches < facts.pipeline:
        return
    share = (facts.pipeline - 1) / (facts.micro_batches + facts.pipeline - 1)
    yield Found(
        message=say(
            "{micro_batches} micro batches for {pipeline} stages: the pipeline is never full, bubble {share}",
            micro_batches=str(facts.micro_batches),
            pipeline=str(facts.pipeline),
            share=format(share, ".0%"),
        ),
        key=facts.key("micro_batches"),
    )


CHECK = Check(
    name="micro-less-than-stages",
    title="The pipeline is never full",
    kind="config",
    severity="error",
    check=_check,
    why="Stages wait for one another most of the step.",
    fix="use at least as many micro batches as stages, better four times as many",
    bad="""use_parallel: True
parallel_config:
  pipeline_stage: 8
  micro_batch_num: 4
""",
    repair=("  micro_batch_num: 4", "  micro_batch_num: 64"),
    example="pretrain.yaml",
)
