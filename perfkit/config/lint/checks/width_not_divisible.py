"""A width of the model that tensor parallel cannot cut evenly."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.facts import facts_of
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    facts = facts_of(config)
    if facts is None or facts.tensor < 2:
        return
    for name, title in (("hidden", "hidden size"), ("ffn", "ffn size")):
        size = getattr(facts, name)
        if size and size % facts.tensor:
            yield Found(message=say("{title} {rest} != 0", title=title, rest=f"{size} % {facts.tensor}"), key=facts.key(name))
    if facts.vocab and facts.vocab % facts.tensor and config.dialect == "mindformers" and facts.pipeline == 1:
        key = facts.key("vocab")
        yield Found(
            message=say(
                "vocabulary {vocab} % {tensor} != 0: the head stays whole on every device",
                vocab=str(facts.vocab),
                tensor=str(facts.tensor),
            ),
            key=key,
            severity="warning",
        )


CHECK = Check(
    name="width-not-divisible",
    title="Widths are not divisible by tensor parallel",
    kind="config",
    severity="error",
    check=_check,
    why="The weights cannot be cut; a vocabulary that cannot be cut leaves the head whole on every device.",
    fix="choose a tensor parallel size that divides hidden and ffn size; pad the vocabulary",
    bad="""use_parallel: True
parallel_config:
  model_parallel: 8
model:
  model_config:
    type: LlamaConfig
    num_layers: 32
    hidden_size: 4092
    num_heads: 32
    vocab_size: 32000
    seq_length: 4096
""",
    repair=("    hidden_size: 4092", "    hidden_size: 4096"),
    example="pretrain.yaml",
)
