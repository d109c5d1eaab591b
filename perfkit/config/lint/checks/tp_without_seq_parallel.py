"""Tensor parallel without sequence parallel."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import MODEL, Check, Found
from perfkit.config.lint.facts import facts_of, is_inference
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    facts = facts_of(config)
    if facts is not None and facts.tensor > 1 and facts.context == 1 and not facts.sequence_parallel and not is_inference(config):
        yield Found(
            message=say("tensor parallel {tensor} without sequence parallel", tensor=str(facts.tensor)), key=facts.key("tensor")
        )


CHECK = Check(
    name="tp-without-seq-parallel",
    title="Sequence parallel would save memory at equal volume",
    kind="config",
    severity="information",
    check=_check,
    why="Norms and dropouts keep the whole sequence on every device of the tensor group.",
    fix="switch sequence parallel on: the bytes sent stay the same",
    bad="""use_parallel: True
parallel_config:
  model_parallel: 4
"""
    + MODEL,
    repair=(
        "  model_parallel: 4",
        """  model_parallel: 4
  use_seq_parallel: True""",
    ),
    example="pretrain.yaml",
)
