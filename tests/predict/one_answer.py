"""One answer: what a table says of plans is what each of them says alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from perfkit.config.dialects.table import row_of
from perfkit.core.spec import Plan
from perfkit.predict.estimate import estimate, estimate_table, estimates

MOST_ALONE = 60
"""So many plans are asked by themselves, too."""


def assert_table_and_plans_agree(plans: Sequence[Plan]) -> None:
    """Step time, HFU and peak memory of the rows, of the plans together, and of the first of them one by one."""
    found, among = estimate_table(pd.DataFrame(map(row_of, plans))), estimates(plans)
    assert found["note"].str.contains("must").sum() == 0
    np.testing.assert_allclose(found["step_time_s"], [one.step_time_s for one in among], rtol=1e-9)
    np.testing.assert_allclose(found["hfu"], [one.hfu for one in among], rtol=1e-9)
    np.testing.assert_allclose(found["peak_memory_bytes"], [one.peak_memory_bytes for one in among], rtol=1e-6)
    for plan, one in zip(plans[:MOST_ALONE], among, strict=False):
        single = estimate(plan)
        assert single.step_time_s == pytest.approx(one.step_time_s, rel=1e-12)
        assert single.memory == one.memory
