"""An offset that does not place every layer."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.facts import facts_of
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    facts = facts_of(config)
    if facts is None or config.dialect != "mindformers" or not facts.layers:
        return
    parts = facts.pipeline * facts.virtual
    extra = sum(value for name in EXTRA if isinstance(value := config.get(f"model.model_config.{name}"), int))
    rest = (facts.layers + extra) % parts
    offset = config.get("model.model_config.offset")
    rows = offset if isinstance(offset, list) else [offset or 0]
    flat = [item for row in rows for item in (row if isinstance(row, list) else [row])]
    if not all(isinstance(item, int) for item in flat) or sum(flat) == rest:
        return
    key = "model.model_config.offset" if offset is not None else facts.key("layers")
    stated = (
        say("offset {offset} adds up to {flat}", offset=str(offset), flat=str(sum(flat)))
        if offset is not None
        else "there is no offset"
    )
    yield Found(
        message=say(
            "{value} layers on {pipeline} stages x {virtual} chunks leave {rest}, but {stated}",
            value=str(facts.layers + extra),
            pipeline=str(facts.pipeline),
            virtual=str(facts.virtual),
            rest=str(rest),
            stated=stated,
        ),
        key=key,
        fix=say(
            "let the offsets add up to {rest}, for example {value}",
            rest=str(rest),
            value=str([1] * rest + [0] * (facts.pipeline - rest)),
        )
        if rest <= facts.pipeline
        else "",
    )


EXTRA = ("mtp_depth", "mtp_num_layers", "num_nextn_predict_layers")


CHECK = Check(
    name="layers-not-divisible",
    title="Offsets do not add up to the layers that are left over",
    kind="config",
    severity="error",
    check=_check,
    why="The model is built with another number of layers, or not at all.",
    fix="let the offsets add up to layers modulo (stages x chunks)",
    bad="""use_parallel: True
parallel_config:
  pipeline_stage: 3
model:
  model_config:
    type: LlamaConfig
    num_layers: 32
    hidden_size: 4096
    num_heads: 32
    vocab_size: 32000
    seq_length: 4096
    offset: [1, 0, 0]
""",
    repair=("    offset: [1, 0, 0]", "    offset: [1, 1, 0]"),
    example="pretrain.yaml",
)
