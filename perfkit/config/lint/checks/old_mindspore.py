"""A version of MindSpore whose operators are slow to launch."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.subjects import Text

VERSION = re.compile(r"mindspore(?:[ _-]?version)?[\s:='\"]*v?(\d+)\.(\d+)(?:\.\d+)?", re.IGNORECASE)


def _check(text: Text) -> Iterator[Found]:
    for number, line in enumerate(text.lines, 1):
        if (found := VERSION.search(line)) and (int(found[1]), int(found[2])) < (2, 3):
            yield Found(message=f"MindSpore {found[1]}.{found[2]}", line=number)
            return


CHECK = Check(
    name="old-mindspore",
    title="This MindSpore launches operators slowly",
    kind="log",
    severity="information",
    check=_check,
    why="Before 2.3 every operator went through a graph of its own: the first rounds were slow, and each launch took longer.",
    fix="update to 2.3 or newer, where forward operators call the low-level interface directly",
    bad="""2024-05-01 10:00:00 - INFO - MindSpore version: 2.2.14
""",
    repair=("2024-05-01 10:00:00 - INFO - MindSpore version: 2.2.14", "2024-05-01 10:00:00 - INFO - MindSpore version: 2.4.0"),
    example="worker_0.log",
)
