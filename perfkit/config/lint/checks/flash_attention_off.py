"""A long sequence without flash attention."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import MODEL, Check, Found
from perfkit.config.lint.facts import facts_of, is_inference, is_on
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say
from perfkit.core.units import format_bytes

LONG = 2048


def _check(config: Config) -> Iterator[Found]:
    facts = facts_of(config)
    if facts is None or facts.seq_length < LONG or not facts.heads or is_inference(config):
        return
    key = {"mindformers": "model.model_config.use_flash_attention", "megatron": "use_flash_attn"}.get(config.dialect)
    if key is None or (config.dialect == "megatron" and config.get("transformer_impl") != "local"):
        return
    if not is_on(config, key):
        size = 5 * facts.heads * facts.seq_length**2 * max(facts.batch, 1) // (facts.tensor * facts.context**2)
        yield Found(
            message=say("scores of {amount} are stored for every layer and micro batch", amount=format_bytes(size)), key=key
        )


CHECK = Check(
    name="flash-attention-off",
    title="Flash attention is off",
    kind="config",
    severity="warning",
    check=_check,
    why="Scores and softmax are stored: 5 x heads x sequence squared bytes for each sequence and layer.",
    fix="set model_config.use_flash_attention: True",
    bad="""use_parallel: True
parallel_config:
  data_parallel: 8
"""
    + MODEL,
    repair=(
        "    seq_length: 4096",
        """    seq_length: 4096
    use_flash_attention: True""",
    ),
    example="pretrain.yaml",
)
