"""Measure: one run as one average step, with the steps that it is the average of.

Warm-up steps and outliers are left out. Amounts are means over the steady steps and over ranks, because means of parts add up to
the mean of the step and medians do not; the noise rule uses the medians of the steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from perfkit.core import robust
from perfkit.core.breakdown import Breakdown
from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import Run
from perfkit.core.source import Source
from perfkit.explain.training_log import timed

WHOLE = "step"
"""The only part of a step of which nothing but the length is known."""

OUTLIER_RATIO = 0.02
"""Steps nearer to the median than 2 % of it are no outliers: they move a mean of several by less than the noise."""

FEWEST_SAMPLES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """The average steady step of a run: `durations_ns` are its steady steps (mean over ranks), `steps` their numbers."""

    breakdown: Breakdown
    durations_ns: tuple[float, ...]
    steps: tuple[int, ...]
    ranks: tuple[int, ...]
    communication_ns: float | None
    overlapped_ns: float | None
    notes: tuple[str, ...] = ()

    @property
    def median_ns(self) -> float:
        """Median of the steady steps."""
        return float(np.median(self.durations_ns))

    @property
    def mad_ns(self) -> float:
        """Median absolute deviation of the steady steps, not scaled."""
        return robust.mad(self.durations_ns)


def measure(run: Run, *, ranks: tuple[int, ...] | None = None) -> Measure:
    """The average steady step of all ranks, or of some. Raises NotMeasuredError if the run holds no step times."""
    steps = run.steps() if run.has("steps") else _logged(run)
    if ranks is not None:
        steps = steps[steps["rank"].isin(ranks)]
    if steps.empty:
        raise NotMeasuredError(
            f"step times of {run.name}", how_to_collect="record a profile or a training log; page 10 writes the configuration"
        )
    parts = run.frame("step_parts", ranks=ranks) if run.has("step_parts") else None
    if parts is not None and len(parts):
        broken_down = parts[["rank", "step"]].drop_duplicates()
        steps = steps.merge(broken_down, on=["rank", "step"])
    steps, notes = _common(steps)
    notes = [*as_read(run), *notes]
    durations = steps.groupby("step")["duration_ns"].mean().sort_index()
    after = durations.drop(list(robust.warm_up(steps)))
    chosen = after[~robust.outliers(after, least=OUTLIER_RATIO * float(after.median()))]
    if len(chosen) < len(durations):
        notes.append(f"{run.name}: {len(durations) - len(chosen)} of {len(durations)} steps left out as warm-up or outliers")
    steady = steps[steps["step"].isin(chosen.index)]
    return Measure(
        breakdown=_breakdown(run, steady, parts),
        durations_ns=tuple(float(value) for value in chosen),
        steps=tuple(int(step) for step in chosen.index.to_numpy()),
        ranks=tuple(sorted(int(rank) for rank in steady["rank"].unique())),
        communication_ns=_mean(steady, "communication_ns"),
        overlapped_ns=_mean(steady, "overlapped_ns"),
        notes=tuple(notes),
    )


def as_read(run: Run) -> tuple[str, ...]:
    """What was odd when the run was read, skipped iterations among it, and what of it was lost: its figures rest on the rest."""
    return (*run.notes, *(f"{run.name}: {lost}" for lost in run.lost_told))


def stages(run: Run) -> Mapping[int, tuple[int, ...]]:
    """Ranks by pipeline stage, as far as the run knows them; empty for fewer than two stages."""
    found: dict[int, set[int]] = {}
    known = run.frame("steps", columns=["rank", "pipeline_stage"]).dropna() if run.has("steps") else pd.DataFrame()
    for row in known.drop_duplicates().to_dict("records"):
        found.setdefault(int(row["pipeline_stage"]), set()).add(int(row["rank"]))
    for rank, position in run.placement.items():
        if position.pipeline is not None and not any(rank in members for members in found.values()):
            found.setdefault(position.pipeline, set()).add(rank)
    return {stage: tuple(sorted(found[stage])) for stage in sorted(found)} if len(found) > 1 else {}


def beyond_noise(a: Measure | float, b: Measure | float, noise_ratio: float = robust.NOISE_RATIO) -> bool | None:
    """Whether two steps differ by more than noise: 3 standard errors of the medians, and `noise_ratio`.

    A side may be a figure without scatter (a prediction, in ns). None where a change above `noise_ratio` cannot be told from noise,
    because a side has fewer than 3 steady steps.
    """
    sides = [side if isinstance(side, Measure) else None for side in (a, b)]
    low, high = sorted(side.median_ns if isinstance(side, Measure) else side for side in (a, b))
    if high - low <= noise_ratio * abs(low):
        return False
    measured = [side for side in sides if side is not None]
    if not measured or min(len(side.durations_ns) for side in measured) < FEWEST_SAMPLES:
        return None
    return robust.is_real_change(
        low,
        high,
        num_samples=min(len(side.durations_ns) for side in measured),
        median_abs_devs=[side.mad_ns for side in measured],
        noise_ratio=noise_ratio,
    )


def _logged(run: Run) -> pd.DataFrame:
    if not run.has("log"):
        return pd.DataFrame({"rank": [], "step": [], "duration_ns": []})
    return timed(run.frame("log"))[["rank", "step", "duration_ns"]]


def _common(steps: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The steps that all ranks recorded, if there are any: a mean over other ranks each step would be no series."""
    steps = steps.drop_duplicates(["rank", "step"], keep="last")
    ranks = steps["rank"].nunique()
    counts = steps.groupby("step")["rank"].nunique()
    complete = counts[counts == ranks].index
    if not len(complete):
        return steps, [f"no step was recorded by all {ranks} ranks"]
    missing = len(counts) - len(complete)
    notes = [f"{missing} step(s) that not all ranks recorded are left out"] if missing else []
    return steps[steps["step"].isin(complete)], notes


def _breakdown(run: Run, steps: pd.DataFrame, parts: pd.DataFrame | None) -> Breakdown:
    source = Source("measured" if run.kind == "measured" else "simulated", run.name, f"mean of {steps['step'].nunique()} steps")
    total = round(float(steps.groupby("step")["duration_ns"].mean().mean()))
    if parts is None or parts.empty:
        return Breakdown("ns", {WHOLE: total}, source)
    rows = steps[["rank", "step"]].merge(parts, on=["rank", "step"])
    known = rows[rows["amount_ns"].notna()]
    weight = 1 / (steps.groupby("step")["rank"].transform("count") * steps["step"].nunique())
    weighted = known.merge(steps[["rank", "step"]].assign(weight=weight), on=["rank", "step"])
    amounts = (weighted["amount_ns"].astype("float64") * weighted["weight"]).groupby(weighted["path"].astype(str), sort=False).sum()
    exact = {str(path): float(amount) for path, amount in amounts.items()}
    unmeasured = {str(path) for path in rows.loc[rows["amount_ns"].isna(), "path"]} - set(exact)
    if abs(sum(exact.values()) - total) > 1 + 1e-6 * total:
        # A recording whose parts do not cover the step: what is left is named, so that parts still sum to the step.
        exact["not told apart"] = max(0.0, total - sum(exact.values()))
    return Breakdown("ns", whole_numbers(exact, total), source, frozenset(unmeasured))


def whole_numbers(amounts: Mapping[str, float], total: int) -> dict[str, int]:
    """Amounts as integers that sum to `total`: rounded down, then the largest remainders up. A total that differs is spread."""
    whole = {path: int(amount) for path, amount in amounts.items()}
    rest = total - sum(whole.values())
    by_remainder = sorted(amounts, key=lambda path: amounts[path] - whole[path], reverse=rest > 0)
    for index in range(abs(rest)):
        path = by_remainder[index % len(by_remainder)]
        whole[path] = max(0, whole[path] + (1 if rest > 0 else -1))
    return whole


def _mean(steps: pd.DataFrame, column: str) -> float | None:
    if column not in steps or steps[column].isna().any():
        return None
    return float(steps.groupby("step")[column].mean().mean())
