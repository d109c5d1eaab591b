"""What a calculator is: a question about a plan, answered with a breakdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perfkit.breakdown import Breakdown


@dataclass(frozen=True, kw_only=True, slots=True)
class Calculator:
    """A pure function from parts of a plan, and of what was measured on it, to a breakdown.

    `inputs` names what `run` takes, in order: parts of a `Plan` ("model", "workload", ...) and measured figures with their unit
    ("tokens_per_s_per_device"). Rates such as MFU are plain functions and have no calculator of their own.
    """

    name: str
    question: str
    unit: str
    inputs: tuple[str, ...]
    run: Callable[..., Breakdown]
