"""Blame: what a step would win without a cause, where that takes more than a sum."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from perfkit.diagnose._case import Case


def slow_rank_ns(case: Case, ranks: Sequence[int], excess_ns: pd.Series, steps: Sequence[int]) -> int:
    """What a step wins if slow ranks computed as long as their peers, in ns, a mean over all judged steps."""
    share = len(steps) / max(1, len(case.step_numbers))
    return round(float(excess_ns.max()) * share)
