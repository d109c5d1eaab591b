"""Selective recompute that full recompute hides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    section = config.get("recompute_config")
    if isinstance(section, Mapping) and section.get("recompute") is True:
        for key in ("select_recompute", "select_comm_recompute"):
            if section.get(key):
                yield Found(message=say("recompute: True wins over {key}", key=key), key=f"recompute_config.{key}")


CHECK = Check(
    name="recompute-select-ignored",
    title="Selective recompute is ignored",
    kind="config",
    severity="warning",
    check=_check,
    why="With recompute: True every layer is recomputed in full, whatever select_recompute says.",
    fix="set recompute: False, or give it a list of layers",
    bad="""parallel_config:
  data_parallel: 8
recompute_config:
  recompute: True
  select_recompute: True
""",
    repair=("  recompute: True", "  recompute: False"),
    example="pretrain.yaml",
)
