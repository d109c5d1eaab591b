"""A recompute list whose length is not the number of stages."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.facts import facts_of
from perfkit.config.lint.recompute import lists_of
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    facts = facts_of(config)
    if facts is None:
        return
    for key, value in lists_of(config):
        rows = value if value and isinstance(value[0], list) else [value]
        wrong = any(not isinstance(row, list) or len(row) != facts.pipeline for row in rows)
        if rows is not value:
            expected = say("{pipeline} counts", pipeline=str(facts.pipeline))
        else:
            wrong, expected = (
                wrong or len(rows) != facts.virtual,
                say("{virtual} lists of {pipeline} counts", virtual=str(facts.virtual), pipeline=str(facts.pipeline)),
            )
        if wrong:
            yield Found(
                message=say("{value} has the wrong shape, expected {expected}", value=str(value), expected=expected), key=key
            )


CHECK = Check(
    name="recompute-list-shape",
    title="A recompute list has the wrong length",
    kind="config",
    severity="error",
    check=_check,
    why="MindFormers stops with an error while it builds the layers.",
    fix="give one count a pipeline stage, and one such list a chunk",
    bad="""use_parallel: True
parallel_config:
  pipeline_stage: 4
  micro_batch_num: 64
recompute_config:
  recompute: [4, 4]
""",
    repair=("  recompute: [4, 4]", "  recompute: [4, 4, 2, 0]"),
    example="pretrain.yaml",
)
