"""Training log: how long a step takes, how steady it is, and how the log divides its throughput.

Works on rows of the table `log` of a `Run`. Steps at the start hold compilation, memory allocation and the filling of caches: they
are cut off as warm-up, shown apart, and never averaged in. Medians and the median absolute deviation (MAD) are used throughout
(`perfkit.core.robust`), because one checkpoint or one evaluation would move a mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from perfkit.core import robust
from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.units import NS_PER_S

RESOLUTION_NS = 1_000_000
"""Logs print whole ms: of equal times some are 1 ms more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepStatistics:
    """Step times of one run after `num_warmup` steps were left out; times in int ns.

    `mad_ns` is the median absolute deviation, not scaled. `outlier_steps` are the numbers of steps further than 3 scaled MAD from
    the median. `first_to_median` is the time of the very first step over the median; None for a median of 0. The rates are
    medians of what the log prints for the same steps, None where it prints none.
    """

    num_steps: int
    num_warmup: int
    median_ns: int
    mad_ns: int
    p10_ns: int
    p90_ns: int
    first_ns: int
    outlier_steps: tuple[int, ...]
    first_to_median: float | None
    samples_per_s_per_device: float | None
    tokens_per_s_per_device: float | None
    flops_per_s_per_device: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Divisor:
    """What a log divides its samples per second by: `name` and `size` of the candidate, and what it should then print.

    `relative_error` is the printed over the expected number, minus 1.
    """

    name: str
    size: int
    expected_samples_per_s: float
    relative_error: float


def timed(log: pd.DataFrame) -> pd.DataFrame:
    """The rows of a table `log` that have a step time; raises NotMeasuredError if none has, as in logs that print rates only."""
    rows = log[log["duration_ns"].notna()]
    if rows.empty:
        raise NotMeasuredError(
            "step times: the log prints rates, not times",
            how_to_collect="divide the tokens of a step by the printed tokens/s, or record a profile; page 10 writes its settings",
        )
    return rows


def step_statistics(log: pd.DataFrame, warmup: int) -> StepStatistics:
    """Statistics of the rows of a table `log` after its first `warmup` steps.

    Each printed time counts once, also where it is the mean of several steps. With several ranks the slowest one counts in each
    step, because the others wait for it. Steps stand in printed order. Rows without a time are left out. Raises InputError if no
    step is left.
    """
    rows = _slowest_rank(timed(log))
    if not 0 <= warmup < len(rows):
        raise InputError("step statistics", [f"warmup = {warmup} must leave a step; the log has {len(rows)}"])
    kept = rows.iloc[warmup:]
    times = kept["duration_ns"].to_numpy(dtype=np.int64)
    median_ns = robust.median_ns(times)
    p10, p90 = (round(float(value)) for value in np.percentile(times - times.min(), (10, 90)))
    first_ns = int(rows["duration_ns"].iloc[0])
    return StepStatistics(
        num_steps=len(kept),
        num_warmup=warmup,
        median_ns=median_ns,
        mad_ns=robust.median_ns(np.abs(times - median_ns)),
        p10_ns=p10 + int(times.min()),
        p90_ns=p90 + int(times.min()),
        first_ns=first_ns,
        outlier_steps=tuple(int(step) for step in kept["step"].to_numpy()[robust.outliers(times, least=RESOLUTION_NS)]),
        first_to_median=first_ns / median_ns if median_ns else None,
        samples_per_s_per_device=_median_or_none(kept["samples_per_s_per_device"]),
        tokens_per_s_per_device=_median_or_none(kept["tokens_per_s_per_device"]),
        flops_per_s_per_device=_median_or_none(kept["flops_per_s_per_device"]),
    )


def detect_divisor(
    samples_per_s: float,
    *,
    global_batch_size: int,
    duration_ns: int,
    candidates: Mapping[str, int],
    tolerance: float = 0.01,
) -> Divisor | None:
    """Which of `candidates` (name -> size, as num_devices -> 16, data_parallel_size -> 8) a logged samples/s/p was divided by.

    A candidate D fits if global batch / (step seconds * D) is within `tolerance` of the logged number; the nearest one wins, the
    first one of equals. None if none fits: then the log repeats an old line or one of the inputs is wrong. MindFormers divides by
    all devices (its `MFLossMonitor`), though its guides call p the data parallel size.
    """
    problems = [
        f"{name} = {value} must be positive"
        for name, value in {"global_batch_size": global_batch_size, "duration_ns": duration_ns, **candidates}.items()
        if value <= 0
    ]
    if problems:
        raise InputError("divisor of samples/s/p", problems)
    samples_per_s_of_all = global_batch_size * NS_PER_S / duration_ns
    fits = [
        Divisor(
            name=name,
            size=size,
            expected_samples_per_s=samples_per_s_of_all / size,
            relative_error=samples_per_s * size / samples_per_s_of_all - 1,
        )
        for name, size in candidates.items()
    ]
    nearest = min(fits, key=lambda fit: abs(fit.relative_error), default=None)
    return nearest if nearest is not None and abs(nearest.relative_error) <= tolerance else None


def _slowest_rank(log: pd.DataFrame) -> pd.DataFrame:
    if log["rank"].nunique() < 2:
        return log.sort_values("line", kind="stable")
    slowest = log.sort_values("duration_ns", kind="stable").drop_duplicates("step", keep="last")
    return slowest.sort_values("step")


def _median_or_none(values: pd.Series) -> float | None:
    known = values.dropna()
    return float(known.median()) if len(known) else None
