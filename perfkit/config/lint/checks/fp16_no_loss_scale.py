"""Half precision without loss scaling."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.subjects import Config


def _check(config: Config) -> Iterator[Found]:
    if config.dialect == "megatron":
        if config.get("fp16") is True and config.get("loss_scale", None) is None and config.get("initial_loss_scale") == 1:
            yield Found(message="fp16 with an initial loss scale of 1", key="initial_loss_scale", severity="warning")
        return
    computes = config.get("model.model_config.compute_dtype")
    trains = config.get("run_mode") in ("train", "finetune") and config.get("optimizer") is not None
    if computes == "float16" and trains and config.get("runner_wrapper.scale_sense", None) is None:
        yield Found(
            message="compute_dtype is float16 and there is no runner_wrapper.scale_sense", key="model.model_config.compute_dtype"
        )


CHECK = Check(
    name="fp16-no-loss-scale",
    title="Half precision without loss scaling",
    kind="config",
    severity="error",
    check=_check,
    why="Small gradients become zero; the training stalls or diverges.",
    fix="add a loss scale (runner_wrapper.scale_sense), or compute in bfloat16",
    bad="""run_mode: train
optimizer:
  type: AdamW
parallel_config:
  data_parallel: 8
model:
  model_config:
    type: LlamaConfig
    num_layers: 32
    hidden_size: 4096
    num_heads: 32
    vocab_size: 32000
    seq_length: 4096
    compute_dtype: float16
""",
    repair=(
        "  data_parallel: 8",
        """  data_parallel: 8
runner_wrapper:
  type: MFTrainOneStepCell
  scale_sense:
    type: DynamicLossScaleUpdateCell""",
    ),
    example="pretrain.yaml",
)
