"""A start step that init_start_profile makes void."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.facts import is_on
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    start = config.get("profile_start_step", 1)
    if is_on(config, "profile") and is_on(config, "init_start_profile") and isinstance(start, int) and start > 1:
        yield Found(
            message=say("init_start_profile: the start step {start} is ignored", start=str(start)), key="init_start_profile"
        )


CHECK = Check(
    name="profile-init-overrides",
    title="The start step of the profile is ignored",
    kind="config",
    severity="warning",
    check=_check,
    why="With init_start_profile recording starts at once, compilation included.",
    fix="set init_start_profile: False",
    bad="""run_mode: train
runner_config:
  epochs: 1
profile: True
profile_start_step: 5
profile_stop_step: 7
init_start_profile: True
""",
    repair=("init_start_profile: True", "init_start_profile: False"),
    example="pretrain.yaml",
)
