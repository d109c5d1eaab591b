"""A file for inference in the place of a training configuration."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.facts import is_on
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    if config.dialect != "mindformers" or config.get("model") is None:
        return
    mode = str(config.get("run_mode", "train"))
    missing = [name for name in ("train_dataset", "optimizer") if config.get(name, None) is None]
    if mode.startswith("predict"):
        yield Found(message=say("run_mode is {mode}", mode=mode), key="run_mode")
    elif is_on(config, "model.model_config.use_past"):
        key = "model.model_config.use_past"
        yield Found(message="use_past is on: the key-value cache of inference", key=key, severity="error" if missing else "warning")
    elif missing and config.get("run_mode") is not None:
        yield Found(
            message=say("run_mode is {mode}, but there is no {names}", mode=mode, names=" and no ".join(missing)), key="run_mode"
        )


CHECK = Check(
    name="predict-config-for-training",
    title="This is an inference file",
    kind="config",
    severity="error",
    check=_check,
    why="It has no optimizer, and its parallel sizes are for serving.",
    fix="take the training file of the model, or set run_mode: train with dataset and optimizer",
    bad="""run_mode: train
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
    use_past: True
""",
    repair=(
        """model:
  model_config:
    type: LlamaConfig
    num_layers: 32
    hidden_size: 4096
    num_heads: 32
    vocab_size: 32000
    seq_length: 4096
    use_past: True""",
        """optimizer:
  type: AdamW
train_dataset:
  batch_size: 1
model:
  model_config:
    type: LlamaConfig
    num_layers: 32
    hidden_size: 4096
    num_heads: 32
    vocab_size: 32000
    seq_length: 4096
    use_past: False""",
    ),
    example="pretrain.yaml",
)
