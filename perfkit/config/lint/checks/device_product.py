"""Parallel sizes whose product is not the number of devices that the configuration names."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import MODEL, Check, Found
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    sizes = [
        config.get(f"parallel_config.{name}", 1)
        for name in ("data_parallel", "model_parallel", "context_parallel", "pipeline_stage")
    ]
    stated = config.get("parallel.device_num") or config.get("context.device_num")
    if not all(isinstance(size, int) for size in [*sizes, stated]):
        return
    product = sizes[0] * sizes[1] * sizes[2] * sizes[3]
    if product != stated:
        text = " x ".join(map(str, sizes))
        yield Found(
            message=say("{text} = {product}, but {stated} devices are named", text=text, product=str(product), stated=str(stated)),
            key="parallel_config",
        )


CHECK = Check(
    name="device-product",
    title="Parallel sizes do not multiply to the number of devices",
    kind="config",
    severity="error",
    check=_check,
    why="The launch fails, or some devices do nothing.",
    fix="make data x tensor x context x pipeline equal to the number of devices",
    bad="""parallel:
  device_num: 16
parallel_config:
  data_parallel: 4
  model_parallel: 2
  pipeline_stage: 1
"""
    + MODEL,
    repair=("  device_num: 16", "  device_num: 8"),
    example="pretrain.yaml",
)
