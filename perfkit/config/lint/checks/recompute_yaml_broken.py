"""A recompute list that is no YAML any more."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.subjects import Text
from perfkit.core.texts import say

BEHIND = re.compile(r"^(\s*)([^#\n]*:\s*\[[^\]#]*\])\s*([^\s,#\]\)}][^#\n]*)")
KEY = re.compile(r"^(\s*)([^\s#:][^#:]*):(\s|$)")


def _check(text: Text) -> Iterator[Found]:
    inside, indent = False, 0
    seen: dict[tuple[int, str], int] = {}
    for number, line in enumerate(text.text.splitlines(), 1):
        if line.startswith("recompute_config:"):
            inside, indent = True, 0
            continue
        if inside and line.strip() and not line[0].isspace() and not line.startswith("#"):
            inside = False
        if not inside or not line.strip():
            continue
        if "\t" in line[: len(line) - len(line.lstrip())]:
            yield Found(message="indented with a tab", line=number, fix="use spaces")
        if found := BEHIND.match(line):
            yield Found(
                message=say("remove {strip} behind the list", strip=repr(found[3].strip())),
                line=number,
                key=found[2].split(":")[0].strip(),
            )
        if found := KEY.match(line):
            name = (len(found[1]), found[2].strip())
            if name in seen and name[0] >= indent:
                yield Found(
                    message=say("{name} stands on line {seen} already", name=str(name[1]), seen=str(seen[name])),
                    line=number,
                    key=name[1],
                )
            seen[name], indent = number, name[0]


CHECK = Check(
    name="recompute-yaml-broken",
    title="The recompute section cannot be parsed",
    kind="config-text",
    severity="error",
    check=_check,
    why="The file is refused, or a key counts twice and only the last one holds.",
    fix="remove what stands behind the bracket, or the second key",
    bad=r"""parallel_config:
  pipeline_stage: 2
recompute_config:
  recompute: False
  select_recompute:
    'feed_forward\.mul': [20, 8]
    'attention\.wq\.reshape': [20, 0]e
""",
    repair=("    'attention\\.wq\\.reshape': [20, 0]e", "    'attention\\.wq\\.reshape': [20, 0]"),
    example="pretrain.yaml",
)
