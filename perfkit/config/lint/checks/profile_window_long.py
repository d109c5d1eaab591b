"""A profile of more steps than needed."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.facts import recorded_steps
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say

MOST = 4


def _check(config: Config) -> Iterator[Found]:
    window = recorded_steps(config)
    if window is None:
        return
    start, stop, _, key = window
    steps = stop - start + 1
    if steps > MOST:
        yield Found(message=say("{steps} steps are recorded; 2 to {most} are enough", steps=str(steps), most=str(MOST)), key=key)
    elif steps < 1:
        taken = "1 and 10 are taken" if config.dialect == "mindformers" else "none is recorded"
        yield Found(
            message=say(
                "the profile stops at step {stop} before it starts at {start}: {taken}",
                stop=str(stop),
                start=str(start),
                taken=taken,
            ),
            key=key,
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
