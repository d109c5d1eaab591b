"""What a calculator is: a question about a plan, answered with a breakdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perfkit.breakdown import Breakdown


@dataclass(frozen=True, kw_only=True, slots=True)
class Calculator:
    """A pure function from parts of a plan to a breakdown.

    `inputs` names the parts of a `Plan` that `run` takes, in order ("model", "workload", ...); rates such as MFU are plain
    functions of breakdowns and have no calculator of their own.
    """

    name: str
    question: str
    unit: str
    inputs: tuple[str, ...]
    run: Callable[..., Breakdown]
