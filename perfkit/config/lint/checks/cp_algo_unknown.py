"""A context parallel algorithm that MindFormers does not know."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say

KNOWN = ("colossalai_cp", "ulysses_cp", "hybird_cp", "hybrid_cp")


def _check(config: Config) -> Iterator[Found]:
    algorithm = config.get("parallel_config.context_parallel_algo")
    if config.dialect == "mindformers" and algorithm is not None and algorithm not in KNOWN:
        near = get_close_matches(str(algorithm), KNOWN, 1, 0.3)
        hint = say("did you mean {near}?", near=near[0]) if near else say("known are {names}", names=", ".join(KNOWN))
        yield Found(
            message=say("{algorithm} is no algorithm; {hint}", algorithm=repr(str(algorithm)), hint=hint),
            key="parallel_config.context_parallel_algo",
        )


CHECK = Check(
    name="cp-algo-unknown",
    title="Unknown algorithm of context parallel",
    kind="config",
    severity="error",
    check=_check,
    why="MindFormers refuses the file.",
    fix="use colossalai_cp, ulysses_cp or hybird_cp (spelled so before 1.5; newer releases take hybrid_cp)",
    bad="""use_parallel: True
parallel_config:
  context_parallel: 2
  context_parallel_algo: ulyses
""",
    repair=("  context_parallel_algo: ulyses", "  context_parallel_algo: ulysses_cp"),
    example="pretrain.yaml",
)
