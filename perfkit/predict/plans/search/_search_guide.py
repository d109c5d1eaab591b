"""The guides' rule of thumb: which division a model of some size starts with, found among the strategies of a search.

Small models (7B): data parallel with a shared optimizer. Middle (13B): a short pipeline and recomputation on top. Large (70B):
tensor parallel with sequence parallel, and copies of a micro batch that hide its communication.
"""

from __future__ import annotations

import numpy as np

from perfkit.core.params import count_params
from perfkit.core.plan_columns import Flags, Floats
from perfkit.core.spec.model import ModelSpec
from perfkit.predict.plans.search.strategy_space import Strategies

SMALL, MIDDLE = 10e9, 30e9

RULES = {
    "small": "small model: data parallel, optimizer shared, no recomputation",
    "middle": "middle model: data parallel and a short pipeline, optimizer shared, recomputation",
    "large": "large model: tensor and sequence parallel in a node, a pipeline, optimizer shared, copies of a micro batch",
}


def guide_row(model: ModelSpec, strategies: Strategies, peak: Floats, limit_bytes: float) -> tuple[str, int] | None:
    """The rule for the model's size, and the row that follows it with the shortest pipeline that fits (else the least memory)."""
    parameters = count_params(model).total
    size = "small" if parameters < SMALL else "middle" if parameters < MIDDLE else "large"
    columns = strategies.columns
    common = (columns["cp"] == 1) & (columns["vpp"] == 1) & (columns["mbs"] == columns["mbs"].min()) & (columns["zero"] <= 1)
    shared = columns["zero"] == np.minimum(1, columns["dp"] - 1)
    full, copies = columns["recompute"].max(), columns["copies"].max()
    whole: Flags = common & shared
    if size == "large":
        whole &= (columns["tp"] > 1) & (columns["pp"] > 1) & (columns["sp"] == 1) & (columns["copies"] == copies)
    else:
        whole &= (columns["tp"] == 1) & (columns["copies"] == columns["copies"].min())
        whole &= (columns["recompute"] == (0 if size == "small" else full)) & ((columns["pp"] == 1) == (size == "small"))
    rows = np.flatnonzero(whole)
    if not len(rows):
        return None
    fits = peak[rows] <= limit_bytes
    if not fits.any():
        return RULES[size], int(rows[np.argmin(peak[rows])])
    rows = rows[fits]
    order = np.lexsort((columns["recompute"][rows], -columns["ep"][rows], columns["pp"][rows], -columns["tp"][rows]))
    return RULES[size], int(rows[order[0]])
