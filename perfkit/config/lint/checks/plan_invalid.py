"""A configuration that contradicts itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perfkit.config.lint.check import MODEL, Check, Found
from perfkit.config.lint.facts import facts_of
from perfkit.config.lint.subjects import VALUE_PROBLEM, Config


def _check(config: Config) -> Iterator[Found]:
    facts = facts_of(config)
    if config.plan is not None or (facts is not None and not (facts.layers and facts.hidden and facts.heads and facts.seq_length)):
        return  # a template, or a model that perfkit does not cover: nothing can be said
    for problem in config.plan_problems:
        if VALUE_PROBLEM.match(problem) is None:
            found = re.match(r"line (\d+)", problem)
            yield Found(message=problem, line=int(found[1]) if found else None)


CHECK = Check(
    name="plan-invalid",
    title="The configuration contradicts itself",
    kind="config",
    severity="error",
    check=_check,
    why="No job can be made of it.",
    fix="see the message for the nearest valid values",
    bad="""use_parallel: True
parallel_config:
  pipeline_stage: 64
  micro_batch_num: 256
"""
    + MODEL,
    repair=("  pipeline_stage: 64", "  pipeline_stage: 4"),
    example="pretrain.yaml",
)
