"""A key that decides time or memory and that no prediction counts, or of which perfkit does not know it."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import MODEL, Check, Found
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    document = config.plan.document if config.plan is not None else None
    for key, decides in getattr(document, "unread", ()):
        yield Found(message=say("{key} is not counted in predictions; {decides}", key=key, decides=decides), key=key)
    for key in getattr(document, "unknown", ()):
        yield Found(message=say("{key} is not known to perfkit; it may decide time or memory", key=key), key=key)


CHECK = Check(
    name="key-not-counted",
    title="A key is not counted in predictions",
    kind="config",
    severity="information",
    check=_check,
    why="A prediction takes what is usual for it, and can be off by what the key decides.",
    fix="judge the prediction by a measured step, which `perfkit compare` sets beside it",
    bad="""use_parallel: True
parallel_config:
  data_parallel: 8
  gradient_aggregation_group: 8
"""
    + MODEL,
    repair=("  gradient_aggregation_group: 8", "  gradient_aggregation_group: 4"),
    example="pretrain.yaml",
)
