"""Recompute counts of MindSpeed that exceed the layers of a stage."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    if config.dialect != "mindspeed-core":
        return
    section = "parallel_config.recompute_config"
    layers = _flat(config.get("parallel_config.num_layer_list"))
    full = _flat(config.get(f"{section}.recompute"))
    for name in ("select_recompute", "select_comm_recompute"):
        for rank, (most, first, more) in enumerate(zip_longest(layers, full, _flat(config.get(f"{section}.{name}")), fillvalue=0)):
            if layers and more and first + more > most:
                yield Found(
                    message=say(
                        "rank {rank}: {first} + {more} > {most} layers",
                        rank=str(rank),
                        first=str(first),
                        more=str(more),
                        most=str(most),
                    ),
                    key=f"{section}.{name}",
                )


def _flat(value: Any) -> list[int]:
    if not isinstance(value, list):
        return []
    items = [item for row in value for item in (row if isinstance(row, list) else [row])]
    return items if all(isinstance(item, int) for item in items) else []


CHECK = Check(
    name="recompute-over-layers",
    title="More layers are recomputed than a stage has",
    kind="config",
    severity="error",
    check=_check,
    why="MindSpeed counts full and selective layers apart and stops if their sum exceeds the layers.",
    fix="let full + selective be at most the layers of the stage",
    bad="""parallel_config:
  pipeline_model_parallel_size: 2
  tensor_model_parallel_size: 2
  num_layer_list: [2, 2]
  recompute_config:
    recompute: [2, 1]
    select_recompute: [1, 1]
""",
    repair=("    recompute: [2, 1]", "    recompute: [1, 1]"),
    example="pretrain.yaml",
)
