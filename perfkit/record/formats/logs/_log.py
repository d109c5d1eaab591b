"""Log: what one file of a training prints, step by step, and the settings that it states."""

from __future__ import annotations

from dataclasses import dataclass, field

from perfkit.record.listing import File


@dataclass(frozen=True, kw_only=True, slots=True)
class LogStep:
    """One printed step; the fields are the columns of the table `log`, None where the line does not say."""

    step: int
    line: int
    duration_ns: int | None
    num_steps: int = 1
    timestamp_ns: int | None = None
    loss: float | None = None
    learning_rate: float | None = None
    gradient_norm: float | None = None
    global_batch_size: int | None = None
    samples_per_s_per_device: float | None = None
    tokens_per_s_per_device: float | None = None
    flops_per_s_per_device: float | None = None
    overflow: bool | None = None
    num_skipped: int | None = None
    num_nan: int | None = None


@dataclass
class Log:
    """What one file prints: its steps, and the settings that it states as name -> (value, file and line), first statement first.

    `last_step` is the one with which the job is to end, 0 if the log does not say.
    """

    file: File
    steps: list[LogStep] = field(default_factory=list)
    last_step: int = 0
    facts: dict[str, tuple[int | float | str, str]] = field(default_factory=dict)

    def state(self, name: str, value: int | float | str, where: str) -> None:
        """Keep a setting unless it was stated before: later dumps repeat names for other parts of the program."""
        self.facts.setdefault(name, (value, where))
