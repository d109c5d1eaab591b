"""A profile of several devices without their communication."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import MODEL, Check, Found
from perfkit.config.lint.facts import facts_of, is_on
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    facts = facts_of(config) if config.dialect == "mindformers" else None  # other programs record it always
    if facts is not None and facts.devices > 1 and is_on(config, "profile") and not is_on(config, "profile_communication"):
        yield Found(
            message=say("{devices} devices are profiled without communication", devices=str(facts.devices)),
            key="profile_communication",
        )


CHECK = Check(
    name="profile-no-communication",
    title="The profile records no communication",
    kind="config",
    severity="information",
    check=_check,
    why="Without it waiting and transfer cannot be told apart.",
    fix="set profile_communication: True",
    bad="""use_parallel: True
parallel_config:
  data_parallel: 8
profile: True
"""
    + MODEL,
    repair=(
        "profile: True",
        """profile: True
profile_communication: True""",
    ),
    example="pretrain.yaml",
)
