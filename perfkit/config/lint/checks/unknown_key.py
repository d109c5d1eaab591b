"""A key in a section that refuses unknown ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from perfkit.config.dialects.mindformers_keys import STRICT, strict_keys
from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    if config.dialect != "mindformers":
        return
    for section in STRICT:
        values = config.get(section)
        known = strict_keys(section)
        for name in values if isinstance(values, Mapping) else ():
            if str(name) not in known:
                near = get_close_matches(str(name), known, 1, 0.7)
                hint = say("; did you mean {near}?", near=near[0]) if near else ""
                yield Found(
                    message=say("{section} has no key {name}{hint}", section=section, name=str(name), hint=hint),
                    key=f"{section}.{name}",
                )


CHECK = Check(
    name="unknown-key",
    title="A key that MindFormers refuses",
    kind="config",
    severity="error",
    check=_check,
    why="MindFormers stops with KeyError for a key that it does not know in this section.",
    fix="correct the name, or remove the key",
    bad="""parallel_config:
  data_paralel: 8
""",
    repair=("  data_paralel: 8", "  data_parallel: 8"),
    example="pretrain.yaml",
)
