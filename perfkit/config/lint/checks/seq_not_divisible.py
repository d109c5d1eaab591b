"""A sequence that the devices sharing it cannot cut evenly."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.facts import facts_of
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    facts = facts_of(config)
    if facts is None or not facts.seq_length:
        return
    pieces = facts.context * (facts.tensor if facts.sequence_parallel and facts.context == 1 else 1)
    if facts.seq_length % pieces:
        yield Found(
            message=say("sequence {seq_length} cannot be cut into {pieces}", seq_length=str(facts.seq_length), pieces=str(pieces)),
            key=facts.key("seq_length"),
        )


CHECK = Check(
    name="seq-not-divisible",
    title="The sequence is not divisible",
    kind="config",
    severity="error",
    check=_check,
    why="The launch fails, or tokens are padded.",
    fix="choose a sequence length that is a multiple of the devices that share it",
    bad="""use_parallel: True
parallel_config:
  model_parallel: 8
  use_seq_parallel: True
model:
  model_config:
    type: LlamaConfig
    num_layers: 32
    hidden_size: 4096
    num_heads: 32
    vocab_size: 32000
    seq_length: 4100
""",
    repair=("    seq_length: 4100", "    seq_length: 4096"),
    example="pretrain.yaml",
)
