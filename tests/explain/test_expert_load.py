"""Load of experts: tokens of grouped products and sizes of exchanges, against the mean of the group.

No public recording of a run with experts that states shapes was at hand: the numbers of these rows are made up, their form is that
of the samples. The exchanges of the recommendation model are real ones.
"""

from __future__ import annotations

import pandas as pd
import pytest

from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import Run, empty
from perfkit.explain.expert_load import tokens_of
from perfkit.record.load import load
from tests.explain.raw_events import TRACES

ROWS = [(0, "100,64"), (0, "100,64"), (1, "300,64"), (1, "300,64"), (2, "200,64"), (3, "200,64")]


def made(operation: str = "all_to_all") -> Run:
    kernels = pd.DataFrame(
        {
            "rank": [rank for rank, _ in ROWS],
            "step": 1,
            "name": "aclnnGroupedMatmulV4_GroupedMatmul",
            "type": "GroupedMatmul",
            "kind": "computing",
            "duration_ns": [10 * int(shape.partition(",")[0]) for _, shape in ROWS],
            "input_shapes": [f'"{shape};4,64,128;;4"' for _, shape in ROWS],
        }
    )
    exchanges = pd.DataFrame(
        {"rank": [0, 1, 2, 3], "step": 1, "name": "a2a", "operation": operation, "group": ["x", "x", "y", "y"]}
    )
    exchanges = exchanges.assign(bytes=[100, 300, 200, 200], duration_ns=[5, 6, 7, 8])
    frames = {"kernels": kernels, "collectives": exchanges}
    tables = {
        name: frame.reindex(columns=empty(name).columns).astype({"input_shapes": "object"} if name == "kernels" else {})
        for name, frame in frames.items()
    }
    return Run(name="made", kind="measured", format="made", tables=tables)


def test_a_rank_with_three_times_the_tokens_stands_above_the_mean_of_its_group():
    table = made().expert_load().set_index("rank")
    assert table["tokens"].to_dict() == {0: 200, 1: 600, 2: 200, 3: 200}
    assert table["tokens_ratio"].to_dict() == {0: 0.5, 1: 1.5, 2: 1.0, 3: 1.0}
    assert table["matmul_ratio"].to_dict() == table["tokens_ratio"].to_dict()
    assert table["exchanged_ratio"].to_dict() == {0: 0.5, 1: 1.5, 2: 1.0, 3: 1.0}
    assert table.groupby("group")["tokens_ratio"].mean().tolist() == [1.0, 1.0]


def test_a_size_that_is_not_told_is_null_and_times_still_are():
    table = load(TRACES / "dlrm_8xV100", cache=False).expert_load()
    assert table["exchanged_bytes"].isna().all()
    assert table["tokens"].isna().all()
    assert (table["exchange_ns"] > 0).all()
    assert set(table["group"]) == {"0,1,2,3,4,5,6,7"}
    with pytest.raises(NotMeasuredError):
        load(TRACES / "torch_npu_level0", cache=False).expert_load()


@pytest.mark.parametrize(
    ("shapes", "tokens"),
    [("100,64;4,64,128", 100), ('"100,64;4,64,128;;"', 100), ("100,64;64,128", None), ("", None), (None, None)],
)
def test_tokens_are_told_only_where_all_experts_share_one_input(shapes, tokens):
    assert tokens_of(shapes) == tokens
