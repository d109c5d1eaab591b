"""Step time by source, device, precision and kind of model: error as is, after one scalar, and how often the interval holds.

    python -m benchmarks.prediction.bench_left_out

The default calibration is not fitted to these rows, except MindFormers' two numbers (data/calibration/default.toml). "others
interval" is the share of rows inside the interval that the residuals of all other sources (devices) give, the judged one left out
whole.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.prediction.bench_step_time import error, one_scalar
from perfkit.predict.calibration import calibration, interval, read_measured

REFERENCE = Path(__file__).resolve().parents[2] / "data" / "reference"
TABLES = ("step_time.csv", "step_time_new.csv")
LEAST_ROWS = 3


def main() -> None:
    frame = pd.concat([pd.read_csv(REFERENCE / name) for name in TABLES], ignore_index=True)
    measured, known = read_measured(frame), calibration("default")
    ratios = measured.ratios(known)
    low, high = known.bounds(measured.labels, measured.plans.experts > 0)
    inside = (1.0 / ratios >= low) & (1.0 / ratios <= high)
    rows = frame.iloc[measured.rows].reset_index(drop=True)
    kinds = {
        "source": rows["source"],
        "device": rows["accelerator"],
        "precision": rows["precision"].fillna("not stated"),
        "model": pd.Series(np.where(measured.plans.experts > 0, "mixture", "dense")),
        "device, precision, model": rows["accelerator"]
        + ", "
        + rows["precision"].fillna("-")
        + np.where(measured.plans.experts > 0, ", mixture", ", dense"),
    }
    for kind, names in kinds.items():
        print(f"\n{kind:44s}{'rows':>6s}{'error %':>9s}{'1 scalar':>10s}{'inside':>8s}{'others interval':>17s}")
        errors = []
        for name, index in names.groupby(names).groups.items():
            own = np.zeros(len(ratios), dtype=bool)
            own[index] = True
            bounds = interval(ratios[~own], names[~own].to_numpy())
            held = np.mean((1.0 / ratios[own] >= bounds[0]) & (1.0 / ratios[own] <= bounds[1]))
            scaled = error(one_scalar(ratios[own])) if own.sum() >= LEAST_ROWS else float("nan")
            if own.sum() >= LEAST_ROWS:
                errors.append((error(ratios[own]), scaled))
            print(
                f"{name:44s}{own.sum():6d}{100 * error(ratios[own]):9.1f}{100 * scaled:10.1f}{inside[own].mean():8.0%}{held:17.0%}"
            )
        mean = 100 * np.mean(errors, axis=0)
        print(f"{f'mean of those with {LEAST_ROWS} rows or more':44s}{'':6s}{mean[0]:9.1f}{mean[1]:10.1f}")


if __name__ == "__main__":
    main()
