"""Chunks of a stage without the switch that uses them."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.facts import is_on
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    chunks = config.get("model.model_config.pp_interleave_num", 1)
    if (
        config.dialect == "mindformers"
        and isinstance(chunks, int)
        and chunks > 1
        and not is_on(config, "parallel.pipeline_config.pipeline_interleave")
    ):
        yield Found(
            message=say("pp_interleave_num = {chunks} has no effect", chunks=str(chunks)),
            key="model.model_config.pp_interleave_num",
        )


CHECK = Check(
    name="interleave-switch-off",
    title="Pipeline chunks are configured, but switched off",
    kind="config",
    severity="warning",
    check=_check,
    why="pp_interleave_num counts as 1 while pipeline_interleave is off: the bubble does not shrink.",
    fix="set parallel.pipeline_config.pipeline_interleave: True",
    bad="""use_parallel: True
parallel_config:
  pipeline_stage: 4
  micro_batch_num: 64
model:
  model_config:
    type: LlamaConfig
    num_layers: 32
    hidden_size: 4096
    num_heads: 32
    vocab_size: 32000
    seq_length: 4096
    pp_interleave_num: 2
""",
    repair=(
        "  micro_batch_num: 64",
        """  micro_batch_num: 64
parallel:
  pipeline_config:
    pipeline_interleave: True""",
    ),
    example="pretrain.yaml",
)
