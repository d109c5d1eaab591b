"""A profiler that runs in a training of full length."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.facts import is_on
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    epochs = config.get("runner_config.epochs", 1)
    if is_on(config, "profile") and isinstance(epochs, int) and epochs > 1:
        yield Found(message=say("profile is on in a training of {epochs} epochs", epochs=str(epochs)), key="profile")


CHECK = Check(
    name="profile-left-on",
    title="The profiler is left on",
    kind="config",
    severity="warning",
    check=_check,
    why="Recording slows the steps it covers, and its files fill the disk.",
    fix="switch it off after the measurement",
    bad="""profile: True
runner_config:
  epochs: 10
""",
    repair=("profile: True", "profile: False"),
    example="pretrain.yaml",
)
