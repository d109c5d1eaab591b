"""A comment that names another number of devices."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perfkit.config.lint.check import MODEL, Check, Found
from perfkit.config.lint.facts import facts_of
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say

COMMENT = re.compile(r"#.*?device[ _]num\s*=\s*(\d+)", re.IGNORECASE)


def _check(config: Config) -> Iterator[Found]:
    facts = facts_of(config)
    if facts is None or config.dialect != "mindformers" or config.get("use_parallel") is not True:
        return
    for number, line in enumerate(config.text.splitlines(), 1):
        if (found := COMMENT.search(line)) and int(found[1]) != facts.devices:
            yield Found(
                message=say(
                    "the comment says {found} devices, the sizes multiply to {devices}",
                    found=str(found[1]),
                    devices=str(facts.devices),
                ),
                line=number,
            )


CHECK = Check(
    name="comment-device-mismatch",
    title="A comment names another number of devices",
    kind="config",
    severity="information",
    check=_check,
    why="Somebody will trust the comment.",
    fix="correct the comment",
    bad="""use_parallel: True
# default parallel of device num = 16
parallel_config:
  data_parallel: 8
"""
    + MODEL,
    repair=("# default parallel of device num = 16", "# default parallel of device num = 8"),
    example="pretrain.yaml",
)
