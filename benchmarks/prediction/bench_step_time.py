"""Step time: error by source table before and after calibration, beside naive baselines; regret, interval and speed.

    python -m benchmarks.prediction.bench_step_time [--write] [NAME=PREDICTIONS.csv ...]

Zero-shot uses the bundled default, whose numbers are public figures and typical values (data/calibration/default.toml says which);
"others" fits them to all sources but the judged one. Calibrated is a fit to other rows of the same source (5 random folds), by
group to other models and device counts. Regret is the time lost by the plan that is predicted to be fastest, with the default and
by group. "x, 1 scalar" is after one factor for the source, fitted leaving the judged row out. Tools that install nowhere near
perfkit's environment run in their own (`llm_analysis_rows.py`) and come as tables of predictions.
`--write` stores the fit of every source in data/calibration.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.prediction.naive import constant_mfu, nearest_row
from benchmarks.prediction.other_tools import tool_ratios
from perfkit.core.plan_columns import Floats
from perfkit.predict.calibration import Calibration, Measured, calibrate, calibration, coverage, cross_validate, read_measured
from perfkit.predict.calibration.fit import fit
from perfkit.predict.estimate import estimate_table

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "data" / "reference" / "step_time.csv"
SOURCES = ("vtrain-multi", "vtrain-single", "bigscience", "bigscience-v100", "mosaicml", "mindformers", "megatron-tests")
SHARED = (
    "accelerator.A100.matmul",
    "accelerator.V100.matmul",
    "accelerator.H100.matmul",
    "accelerator.Ascend.matmul",
    "common.misaligned",
    "common.score_bytes",
    "common.layer_host_s",
    "common.straggler",
)
MOST_ROWS = 60
LEAST_ROWS = 20


def main(arguments: list[str]) -> None:
    frame = pd.read_csv(TABLE)
    tables = {source: read_measured(frame[frame["source"] == source].reset_index(drop=True)) for source in SOURCES}
    default = calibration("default")
    tools = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
    columns = [
        "rows",
        "zero-shot",
        "others",
        "1 scalar",
        "calibrated",
        "by group",
        "inside 80 %",
        "regret",
        "regret by group",
        "constant MFU",
        "MFU, 1 scalar",
        "nearest row",
        *(f"{name}{suffix}" for name in tools for suffix in ("", ", 1 scalar")),
    ]
    width = max(14, *(len(column) + 2 for column in columns))
    print(f"{'mean absolute error in %':26s}" + "".join(f"{column:>{width}s}" for column in columns))
    for source, rows in tables.items():
        cells = _line(source, rows, tables, default)
        own = frame[frame["source"] == source].reset_index(drop=True)
        cells += [cell for path in tools.values() for cell in _tool_cells(tool_ratios(path, own, rows))]
        print(f"{source:26s}" + "".join(f"{cell:>{width}s}" for cell in cells), flush=True)
        if "--write" in arguments and len(rows.seconds) >= LEAST_ROWS:
            origin = f"{len(rows.seconds)} measured steps of {source} (data/reference/README.md)"
            calibrate(rows, name=source, origin=origin).write(ROOT / "data" / "calibration" / f"{source}.toml")
    print(f"\n80 % interval of the default, each source left out: {default_coverage(tables, default):.0%} of rows inside")
    print(f"speed: {speed(frame):,.0f} plans/s in a table, one core (CPU time)")


def _line(source: str, rows: Measured, tables: dict[str, Measured], default: Calibration) -> list[str]:
    zero = rows.ratios(default)
    few = len(rows.seconds) < 3
    tested = None if few else cross_validate(rows)
    grouped = None if few else cross_validate(rows, by_group=True)
    others = fit_others(source, tables, default)
    return [
        str(len(rows.seconds)),
        _percent(error(zero)),
        _percent(error(rows.ratios(others))),
        "-" if few else _percent(error(one_scalar(zero))),
        "-" if tested is None else _percent(tested.error),
        "-" if grouped is None else _percent(grouped.error),
        "-" if grouped is None else f"{coverage(grouped.ratios, rows.groups):.0%}",
        _percent(regret(rows, zero)),
        "-" if grouped is None else _percent(regret(rows, grouped.ratios)),
        _percent(error(constant_mfu(rows))),
        "-" if few else _percent(error(one_scalar(constant_mfu(rows)))),
        "-" if few else _percent(error(nearest_row(rows))),
    ]


def _tool_cells(ratios: Floats) -> list[str]:
    """Error as shipped and after one factor; empty where the tool knows too few of the plans."""
    if len(ratios) < LEAST_ROWS:
        return ["-", "-"]
    return [_percent(error(ratios)), _percent(error(one_scalar(ratios)))]


def error(ratios: Floats) -> float:
    """Mean absolute relative error of predicted over measured times."""
    return float(np.mean(np.abs(ratios - 1.0)))


def one_scalar(ratios: Floats) -> Floats:
    """The ratios after one factor, fitted to all rows but the one that it corrects."""
    logs = np.log(ratios)
    return np.array([np.exp(logs[row] - np.median(np.delete(logs, row))) for row in range(len(logs))])


def regret(rows: Measured, ratios: Floats) -> float:
    """Mean time lost by the plan that is predicted to be fastest against the fastest measured, in groups of one model and batch."""
    lost = []
    batches = rows.groups * 10**7 + rows.plans.global_batch
    for group in np.unique(batches):
        own = np.flatnonzero(batches == group)
        if len(own) > 1:
            chosen = own[int(np.argmin(ratios[own] * rows.seconds[own]))]
            lost.append(rows.seconds[chosen] / rows.seconds[own].min() - 1.0)
    return float(np.mean(lost)) if lost else float("nan")


def fit_others(source: str, tables: dict[str, Measured], default: Calibration) -> Calibration:
    """The shared efficiencies fitted to the other sources, at most `MOST_ROWS` rows of each so that none outweighs the rest."""
    frame = pd.read_csv(TABLE)
    kept = []
    for other, rows in tables.items():
        if other != source:
            own = frame[frame["source"] == other].reset_index(drop=True).iloc[rows.rows]
            kept.append(own.sample(min(len(own), MOST_ROWS), random_state=0))
    return fit(read_measured(pd.concat(kept, ignore_index=True)), default, SHARED)


def default_coverage(tables: dict[str, Measured], default: Calibration) -> float:
    """Share of rows inside the interval that the residuals of the other sources give."""
    ratios = np.concatenate([rows.ratios(default) for rows in tables.values()])
    groups = np.concatenate([np.full(len(rows.seconds), code) for code, rows in enumerate(tables.values())])
    return coverage(ratios, groups)


def speed(frame: pd.DataFrame, copies: int = 200) -> float:
    """Plans a second of `estimate_table` without memory, on a table of `copies` times the reference rows."""
    large = pd.concat([frame[frame["exclude"] == 0]] * copies, ignore_index=True)
    start = time.process_time()
    estimate_table(large, memory=False)
    return len(large) / (time.process_time() - start)


def _percent(value: float) -> str:
    return "-" if np.isnan(value) else f"{100 * value:.1f}"


if __name__ == "__main__":
    main(sys.argv[1:])
