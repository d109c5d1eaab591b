"""A profile of more steps than needed."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.facts import is_on
from perfkit.config.lint.subjects import Config

MOST = 4


def _check(config: Config) -> Iterator[Found]:
    start, stop = config.get("profile_start_step", 1), config.get("profile_stop_step", 10)
    if not is_on(config, "profile") or not isinstance(start, int) or not isinstance(stop, int):
        return
    steps = stop - start + 1
    if steps > MOST:
        yield Found(message=f"{steps} steps are recorded; 2 to {MOST} are enough", key="profile_stop_step")
    elif steps < 1:
        yield Found(
            message=f"the profile stops at step {stop} before it starts at {start}: 1 and 10 are taken", key="profile_stop_step"
        )


CHECK = Check(
    name="profile-window-long",
    title="The profile is longer than needed",
    kind="config",
    severity="warning",
    check=_check,
    why="Two to four steps tell all; more fill the disk and take hours to analyse.",
    fix="record two to four steps",
    bad="""run_mode: train
runner_config:
  epochs: 1
profile: True
profile_start_step: 5
profile_stop_step: 50
""",
    repair=("profile_stop_step: 50", "profile_stop_step: 7"),
    example="pretrain.yaml",
)
