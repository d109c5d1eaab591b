"""An offset whose shape is not that of stages and chunks."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.facts import facts_of
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    facts = facts_of(config)
    offset = config.get("model.model_config.offset")
    if facts is None or not isinstance(offset, list):
        return
    rows = offset if offset and isinstance(offset[0], list) else [offset]
    lengths = [len(row) if isinstance(row, list) else 0 for row in rows]
    flat_for_chunks = facts.virtual > 1 and rows[0] is offset and any(offset)
    if (
        any(length != facts.pipeline for length in lengths)
        or (rows[0] is not offset and len(rows) != facts.virtual)
        or flat_for_chunks
    ):
        expected = (
            say("[{pipeline} numbers]", pipeline=str(facts.pipeline))
            if facts.virtual == 1
            else say("{virtual} lists of {pipeline} numbers", virtual=str(facts.virtual), pipeline=str(facts.pipeline))
        )
        yield Found(
            message=say("offset {offset} has the wrong shape, expected {expected}", offset=str(offset), expected=expected),
            key="model.model_config.offset",
        )


CHECK = Check(
    name="offset-shape",
    title="The offset has the wrong shape",
    kind="config",
    severity="error",
    check=_check,
    why="MindFormers refuses it, or adds one list to every chunk, which places a wrong number of layers.",
    fix="give one number a stage, and one such list a chunk",
    bad="""use_parallel: True
parallel_config:
  pipeline_stage: 4
model:
  model_config:
    type: LlamaConfig
    num_layers: 32
    hidden_size: 4096
    num_heads: 32
    vocab_size: 32000
    seq_length: 4096
    offset: [0, 0, 0]
""",
    repair=("    offset: [0, 0, 0]", "    offset: [0, 0, 0, 0]"),
    example="pretrain.yaml",
)
