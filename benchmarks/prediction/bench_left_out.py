"""Step time by source, device, precision and kind of model: error as is, after one scalar, and how often the interval holds.

    python -m benchmarks.prediction.bench_left_out

The last table is what a user's own rows give (`perfkit estimate --calibrate-with`): after 0, 1, 3 or 5 rows of a source, drawn 40
times, the mean error of its others, the share of them inside the interval, and the error of the rows that have the layer of one
smaller row (fewer layers or devices), scaled by that one.

The default calibration is not fitted to these rows, except MindFormers' two numbers (data/calibration/default.toml). "others
interval" is the share of rows inside the interval that the residuals of all other sources (devices) give, the judged one left out
whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.prediction.bench_step_time import error, one_scalar
from perfkit.predict.calibration import Calibration, Measured, calibration, interval, read_measured
from perfkit.predict.calibration.few_rows import updated

REFERENCE = Path(__file__).resolve().parents[2] / "data" / "reference"
TABLES = ("step_time.csv", "step_time_new.csv")
LEAST_ROWS = 3
OWN_ROWS, DRAWS, MOST_PAIRS = (0, 1, 3, 5), 40, 5000
LAYER = ["accelerator", "precision", "hidden", "heads", "tp", "seq_len"]


def main() -> None:
    frame = pd.concat([pd.read_csv(REFERENCE / name) for name in TABLES], ignore_index=True)
    measured, known = read_measured(frame), calibration("default")
    ratios = measured.ratios(known)
    low, high = known.bounds(measured.labels, measured.plans.experts > 0, measured.plans.nodes > 1)
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
    print(f"\n{'after own rows':36s}{'rows':>6s}" + "".join(f"{count:9d} (in)" for count in OWN_ROWS) + f"{'smaller':>9s}")
    means = []
    for name, own in rows.assign(ratio=ratios).groupby("source"):
        if len(own) > max(OWN_ROWS):
            plans = measured.take(own.index.to_numpy())
            means.append([after_own_rows(plans, known, count) for count in OWN_ROWS])
            print(f"{name:36s}{len(own):6d}{_cells(means[-1])}{100 * after_a_smaller_one(own):9.1f}")
    print(f"{'mean':36s}{'':6s}{_cells(np.mean(means, axis=0))}")


def _cells(pairs: Iterable[Sequence[float]]) -> str:
    return "".join(f"{100 * wrong:9.1f} {held:4.0%}" for wrong, held in pairs)


def after_own_rows(rows: Measured, known: Calibration, count: int) -> tuple[float, float]:
    """Mean error of the rows beside `count` drawn ones, and how many are inside the interval, with the calibration after those."""
    random, found = np.random.default_rng(0), []
    for _ in range(DRAWS if count else 1):
        drawn = random.choice(len(rows.seconds), count, replace=False)
        rest = rows.take(np.setdiff1d(np.arange(len(rows.seconds)), drawn))
        own = updated(rows.take(drawn), known) if count else known
        ratios, (low, high) = rest.ratios(own), own.bounds(rest.labels, rest.plans.experts > 0, rest.plans.nodes > 1)
        found.append((error(ratios), float(np.mean((1.0 / ratios >= low) & (1.0 / ratios <= high)))))
    wrong, held = np.mean(found, axis=0).tolist()
    return wrong, held


def after_a_smaller_one(rows: pd.DataFrame) -> float:
    """Mean error of rows scaled by the ratio of another one with the same layer, fewer layers or devices, and more of neither."""
    sizes = rows[LAYER].astype(str).agg(" ".join, axis=1).to_numpy()
    layers, devices, ratios = (rows[name].to_numpy(dtype=np.float64) for name in ("layers", "n_devices", "ratio"))
    least = (layers[None] >= layers[:, None]) & (devices[None] >= devices[:, None])
    more = (layers[None] > layers[:, None]) | (devices[None] > devices[:, None])
    small, large = np.nonzero((sizes[:, None] == sizes) & least & more)
    if len(small) > MOST_PAIRS:
        chosen = np.random.default_rng(0).choice(len(small), MOST_PAIRS, replace=False)
        small, large = small[chosen], large[chosen]
    return error(ratios[large] / ratios[small]) if len(small) else float("nan")


if __name__ == "__main__":
    main()
