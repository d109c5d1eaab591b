"""Fine-grained copies of a micro batch without what they overlap."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.facts import facts_of
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    facts = facts_of(config)
    copies = config.get("model.model_config.fine_grain_interleave", 1)
    if facts is not None and isinstance(copies, int) and copies > 1 and (facts.tensor == 1 or not facts.sequence_parallel):
        missing = "tensor parallel above 1" if facts.tensor == 1 else "use_seq_parallel"
        yield Found(
            message=say("fine_grain_interleave = {copies} needs {missing}", copies=str(copies), missing=missing),
            key="model.model_config.fine_grain_interleave",
        )


CHECK = Check(
    name="multicopy-needs-tp-sp",
    title="Fine-grained interleaving needs tensor and sequence parallel",
    kind="config",
    severity="error",
    check=_check,
    why="MindFormers refuses the layer.",
    fix="use tensor parallel above 1 and use_seq_parallel, or drop fine_grain_interleave",
    bad="""use_parallel: True
parallel_config:
  model_parallel: 1
model:
  model_config:
    type: LlamaConfig
    num_layers: 32
    hidden_size: 4096
    num_heads: 32
    vocab_size: 32000
    seq_length: 4096
    fine_grain_interleave: 2
""",
    repair=(
        "  model_parallel: 1",
        """  model_parallel: 2
  use_seq_parallel: True""",
    ),
    example="pretrain.yaml",
)
