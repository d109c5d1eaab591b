"""Tensor parallel that is wider than a node."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.facts import facts_of
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say

DEVICES_PER_NODE = 8


def _check(config: Config) -> Iterator[Found]:
    facts = facts_of(config)
    if facts is None:
        return
    hardware = config.plan.hardware if config.plan is not None else None
    size = hardware.devices_per_node if hardware is not None else DEVICES_PER_NODE
    if facts.tensor > size:
        yield Found(
            message=say(
                "tensor parallel {tensor} is wider than a node of {size} devices", tensor=str(facts.tensor), size=str(size)
            ),
            key=facts.key("tensor"),
        )


CHECK = Check(
    name="tp-across-nodes",
    title="Tensor parallel leaves the node",
    kind="config",
    severity="warning",
    check=_check,
    why="Every layer waits for the slow links between nodes.",
    fix="keep tensor parallel within the devices of a node",
    bad="""use_parallel: True
parallel_config:
  model_parallel: 16
""",
    repair=(
        "  model_parallel: 16",
        """  model_parallel: 8
  use_seq_parallel: True""",
    ),
    example="pretrain.yaml",
)
