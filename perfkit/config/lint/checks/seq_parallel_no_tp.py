"""Sequence parallel where there is no tensor parallel."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.facts import facts_of
from perfkit.config.lint.subjects import Config


def _check(config: Config) -> Iterator[Found]:
    facts = facts_of(config)
    if facts is not None and facts.sequence_parallel and facts.tensor == 1:
        key = (
            "sequence_parallel"
            if config.dialect == "megatron"
            else f"parallel_config.{'use_seq_parallel' if config.dialect == 'mindformers' else 'sequence_parallel'}"
        )
        yield Found(message="sequence parallel has no effect: tensor parallel is 1", key=key)


CHECK = Check(
    name="seq-parallel-no-tp",
    title="Sequence parallel has no effect without tensor parallel",
    kind="config",
    severity="warning",
    check=_check,
    why="The switch looks as if it saved memory, and saves none.",
    fix="switch it off, or use tensor parallel",
    bad="""use_parallel: True
parallel_config:
  model_parallel: 1
  use_seq_parallel: True
""",
    repair=("  model_parallel: 1", "  model_parallel: 2"),
    example="pretrain.yaml",
)
