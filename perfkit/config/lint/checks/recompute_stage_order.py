"""A later stage that recomputes more than an earlier one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.facts import facts_of
from perfkit.config.lint.recompute import lists_of
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    facts = facts_of(config)
    if facts is None or config.get("model.model_config.offset"):
        return
    for key, value in lists_of(config):
        counts = [item for item in value if isinstance(item, int)]
        if len(counts) == len(value) == facts.pipeline and any(after > before for before, after in pairwise(counts)):
            yield Found(
                message=say("{value}: a later stage recomputes more, although stage 0 holds most micro batches", value=str(value)),
                key=key,
            )


CHECK = Check(
    name="recompute-stage-order",
    title="A later stage recomputes more than an earlier one",
    kind="config",
    severity="warning",
    check=_check,
    why="Stage 0 of a 1F1B pipeline holds the most micro batches, so that it needs recomputation first.",
    fix="move recomputed layers to the earlier stages",
    bad="""use_parallel: True
parallel_config:
  pipeline_stage: 2
  micro_batch_num: 64
recompute_config:
  recompute: [4, 13]
""",
    repair=("  recompute: [4, 13]", "  recompute: [13, 4]"),
    example="pretrain.yaml",
)
