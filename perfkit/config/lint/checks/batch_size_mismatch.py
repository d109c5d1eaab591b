"""A batch size of the runner that differs from that of the dataset."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    runner, dataset = config.get("runner_config.batch_size"), config.get("train_dataset.batch_size")
    if isinstance(runner, int) and isinstance(dataset, int) and runner != dataset:
        yield Found(
            message=say("runner {runner}, dataset {dataset}; the runner's counts", runner=str(runner), dataset=str(dataset)),
            key="train_dataset.batch_size",
        )


CHECK = Check(
    name="batch-size-mismatch",
    title="Runner and dataset have different batch sizes",
    kind="config",
    severity="warning",
    check=_check,
    why="The runner's value wins, so that the dataset's line says something that is not true.",
    fix="write one value in both places",
    bad="""run_mode: train
runner_config:
  batch_size: 2
train_dataset:
  batch_size: 4
""",
    repair=("  batch_size: 4", "  batch_size: 2"),
    example="pretrain.yaml",
)
