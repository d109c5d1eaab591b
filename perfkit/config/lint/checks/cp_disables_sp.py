"""Context parallel and sequence parallel together."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.facts import facts_of
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    facts = facts_of(config)
    if facts is not None and config.dialect == "mindformers" and facts.context > 1 and facts.sequence_parallel:
        message = say("context parallel {context}: sequence parallel is ignored", context=str(facts.context))
        yield Found(message=message, key="parallel_config.use_seq_parallel")


CHECK = Check(
    name="cp-disables-sp",
    title="Context parallel switches sequence parallel off",
    kind="config",
    severity="warning",
    check=_check,
    why="MindFormers ignores use_seq_parallel, so that the memory it seems to save is not saved.",
    fix="switch one of the two off",
    bad="""use_parallel: True
parallel_config:
  context_parallel: 2
  model_parallel: 2
  use_seq_parallel: True
""",
    repair=("  use_seq_parallel: True", "  use_seq_parallel: False"),
    example="pretrain.yaml",
)
