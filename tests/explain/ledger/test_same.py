"""The ledger of a recording does not depend on when it was made, nor on how its steps and ranks are numbered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import pytest

from perfkit.core.run import Run
from perfkit.explain.ledger import ledger
from tests.explain.diagnose.made import Training
from tests.explain.ledger.test_late import stalled, without
from tests.explain.ledger.test_ledger import TRACES, _read

NAMES = (
    "ascend_memory",
    "hta/critical_path",
    "kineto_h100/recompute.json.gz",
    "logs/megatron",
    "mindinsight/run_2",
    "msinsight_trimmed",
    "msprof_db/msprof_0.db",
    "synthetic_ms",
    "torch_npu_db/level1",
    "torch_npu_pp2dp2",
    "tracelens/mi300",
)
"""A recording of each kind of origin; samples that are of today are moved by as much again."""
MOMENTS = ("start_ns", "launch_ns")
EPOCH_NS = 1_700_000_000_000_000_123
"""A recording of today: float64 tells such moments apart to 256 ns only."""


def rewritten(run: Run, column: str, change: Callable[[pd.Series], pd.Series]) -> Run:
    tables = {
        name: frame.assign(**{column: change(frame[column])}) if column in frame else frame for name, frame in run.tables.items()
    }
    return replace(run, tables=tables)


def shifted(run: Run) -> Run:
    for column in MOMENTS:
        run = rewritten(run, column, lambda values: values + EPOCH_NS)
    return run


def renumbered(run: Run) -> Run:
    return rewritten(run, "step", lambda values: 3 * values + 1000)


def entries(run: Run) -> pd.DataFrame:
    return ledger(run).entries


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_recorded_later_with_other_numbers_of_steps_has_the_same_ledger(name: str):
    found = _read(TRACES / name)
    assert found is not None
    pd.testing.assert_frame_equal(
        entries(renumbered(shifted(found[0]))), found[1].entries.assign(step=3 * found[1].entries["step"] + 1000)
    )


@pytest.mark.parametrize("run", [stalled(), without(stalled(), "kernels", 2), Training(factors={2: 1.3}).run()])
def test_a_run_with_other_numbers_of_ranks_has_the_same_ledger(run: Run):
    before = entries(run)
    after = entries(replace(rewritten(run, "rank", lambda ranks: ranks + 7), placement={}))
    ranks = {-1: -1, **{rank: rank + 7 for rank in run.ranks}}
    pd.testing.assert_frame_equal(after, before.assign(rank=before["rank"] + 7, who=before["who"].map(ranks)))
