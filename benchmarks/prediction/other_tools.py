"""Predictions that another tool made for the reference rows, read from a table `row_id`, `step_time_s`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from perfkit.core.plan_columns import Floats
from perfkit.predict.calibration import Measured


def tool_ratios(path: str | Path, frame: pd.DataFrame, rows: Measured) -> Floats:
    """Predicted over measured time of the plans of `rows`, read from `frame`; plans that the tool refused are left out."""
    predicted = pd.read_csv(path).set_index("row_id")["step_time_s"]
    found = predicted.reindex(frame["row_id"].iloc[rows.rows]).to_numpy(dtype=np.float64)
    kept = np.isfinite(found) & (found > 0)
    return np.asarray(found[kept] / rows.seconds[kept])
