"""Layers that are swapped and recomputed at once."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.facts import is_on
from perfkit.config.lint.subjects import Config


def _check(config: Config) -> Iterator[Found]:
    if not is_on(config, "swap_config.swap"):
        return
    swapped = config.get("swap_config.layer_swap") or config.get("swap_config.op_swap")
    recomputed = config.get("recompute_config.recompute")
    if swapped and recomputed is True:
        yield Found(message="every layer is recomputed: swap has no effect", key="swap_config.swap")


CHECK = Check(
    name="swap-and-recompute",
    title="Swap and recomputation of the same layers",
    kind="config",
    severity="warning",
    check=_check,
    why="What is recomputed is not kept, so that there is nothing to swap.",
    fix="choose one of the two for a layer",
    bad="""parallel_config:
  data_parallel: 8
recompute_config:
  recompute: True
swap_config:
  swap: True
  layer_swap:
    - backward_prefetch: 1
      layers: True
""",
    repair=("  recompute: True", "  recompute: False"),
    example="pretrain.yaml",
)
