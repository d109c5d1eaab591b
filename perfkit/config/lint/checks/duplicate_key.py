"""A key that stands twice."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.subjects import Config


def _check(config: Config) -> Iterator[Found]:
    for text in config.duplicates:
        found = re.match(r"line (\d+)", text)
        yield Found(message=text, line=int(found[1]) if found else None)


CHECK = Check(
    name="duplicate-key",
    title="A key stands twice",
    kind="config",
    severity="warning",
    check=_check,
    why="Only the last one counts; the first one reads as if it did.",
    fix="remove one of the two",
    bad="""parallel_config:
  data_parallel: 8
  data_parallel: 4
""",
    repair=("  data_parallel: 4\n", ""),
    example="pretrain.yaml",
)
