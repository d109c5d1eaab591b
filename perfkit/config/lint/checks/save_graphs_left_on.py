"""Graphs that are saved in a full training."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.subjects import Config


def _check(config: Config) -> Iterator[Found]:
    value = config.get("context.save_graphs")
    if value is True or (isinstance(value, int) and value > 0):
        yield Found(message=f"save_graphs = {value}", key="context.save_graphs")


CHECK = Check(
    name="save-graphs-left-on",
    title="Graphs are saved",
    kind="config",
    severity="warning",
    check=_check,
    why="Saving the graphs of every compilation takes time and disk.",
    fix="set save_graphs: False for a training that counts",
    bad="""runner_config:
  epochs: 2
context:
  save_graphs: True
""",
    repair=("  save_graphs: True", "  save_graphs: False"),
    example="pretrain.yaml",
)
