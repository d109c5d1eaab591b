"""Few workers, or no prefetch, in the data pipeline."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.subjects import Config


def _check(config: Config) -> Iterator[Found]:
    workers, prefetch = config.get("train_dataset.num_parallel_workers"), config.get("train_dataset.prefetch_size")
    if isinstance(workers, int) and workers < 4:
        yield Found(message=f"num_parallel_workers = {workers}", key="train_dataset.num_parallel_workers")
    elif isinstance(prefetch, int) and prefetch == 1:
        yield Found(message="prefetch_size = 1: one batch is made ready ahead", key="train_dataset.prefetch_size")


CHECK = Check(
    name="data-workers-low",
    title="The data pipeline has few workers",
    kind="config",
    severity="information",
    check=_check,
    why="The device may wait for data; whether it does shows in a profile (rule data-feed).",
    fix="raise num_parallel_workers to 8 and prefetch_size above 1 if the device waits for data",
    bad="""runner_config:
  epochs: 1
train_dataset:
  num_parallel_workers: 2
""",
    repair=(
        "  num_parallel_workers: 2",
        """  num_parallel_workers: 8
  prefetch_size: 2""",
    ),
    example="pretrain.yaml",
)
