"""A profile that records the steps that compile."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.facts import recorded_steps
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    window = recorded_steps(config)
    if window is not None and window[0] <= 3:
        yield Found(
            message=say("the profile starts at step {window}; the first steps compile", window=str(window[0])), key=window[2]
        )


CHECK = Check(
    name="profile-start-compile",
    title="The profile starts while the graph is compiled",
    kind="config",
    severity="warning",
    check=_check,
    why="The first steps compile and warm up; what they show is not how the job runs.",
    fix="start after step 3",
    bad="""run_mode: train
runner_config:
  epochs: 1
profile: True
profile_start_step: 1
profile_stop_step: 3
""",
    repair=(
        """profile_start_step: 1
profile_stop_step: 3""",
        """profile_start_step: 5
profile_stop_step: 7""",
    ),
    example="pretrain.yaml",
)
