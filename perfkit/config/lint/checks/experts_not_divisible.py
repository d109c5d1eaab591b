"""Experts that expert parallel cannot deal out evenly."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.facts import facts_of
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    facts = facts_of(config)
    experts = config.get("moe_config.expert_num") or config.get("num_experts") or config.get("model_config.num_experts")
    if facts is None or facts.expert < 2 or not isinstance(experts, int):
        return
    if experts % facts.expert:
        yield Found(
            message=say("{experts} experts cannot be dealt out over {expert}", experts=str(experts), expert=str(facts.expert)),
            key=facts.key("expert"),
        )
    group = facts.data * facts.tensor * facts.context
    if config.dialect != "megatron" and group % facts.expert:
        message = say(
            "expert parallel {expert} does not divide data x tensor x context = {group}", expert=str(facts.expert), group=str(group)
        )
        yield Found(message=message, key=facts.key("expert"))


CHECK = Check(
    name="experts-not-divisible",
    title="Experts are not divisible",
    kind="config",
    severity="error",
    check=_check,
    why="The launch fails when the experts are placed.",
    fix="choose an expert parallel size that divides the experts and data x tensor parallel",
    bad="""use_parallel: True
parallel_config:
  data_parallel: 8
  expert_parallel: 3
moe_config:
  expert_num: 8
""",
    repair=("  expert_parallel: 3", "  expert_parallel: 4"),
    example="pretrain.yaml",
)
