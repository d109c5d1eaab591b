"""Micro batches that leave a bubble of more than a tenth."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import MODEL, Check, Found
from perfkit.config.lint.facts import facts_of
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say

LIMIT = 0.1


def _check(config: Config) -> Iterator[Found]:
    facts = facts_of(config)
    if facts is None or facts.pipeline < 2 or facts.micro_batches < facts.pipeline:
        return
    bubble = (facts.pipeline - 1) / (facts.virtual * facts.micro_batches)
    if bubble > LIMIT:
        yield Found(message=say("bubble {bubble} of the useful time", bubble=format(bubble, ".1%")), key=facts.key("micro_batches"))


CHECK = Check(
    name="micro-few",
    title="Few micro batches leave a large bubble",
    kind="config",
    severity="warning",
    check=_check,
    why="The bubble is (stages - 1) / (chunks x micro batches) of the useful time.",
    fix="raise the number of micro batches, or cut stages into chunks",
    bad="""use_parallel: True
parallel_config:
  pipeline_stage: 8
  micro_batch_num: 16
"""
    + MODEL,
    repair=("  micro_batch_num: 16", "  micro_batch_num: 128"),
    example="pretrain.yaml",
)
