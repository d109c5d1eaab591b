"""Page 12: totals add up, filters hold, the question about an operator is answered, names stay data."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfkit.core.resources import data_folder
from perfkit.face.charts.operators import core_label
from perfkit.face.panels import operators
from perfkit.face.panels.operators import ALL, State, _gain, choose, compute, view

ASCEND = str(data_folder() / "traces/torch_npu_2rank")
KINETO = str(data_folder() / "traces/kineto_resnet")


@pytest.fixture(scope="module")
def ascend():
    return compute(State(run=ASCEND, core=ALL, device="Ascend-910B2"))


def test_totals_are_those_of_the_kernels(ascend):
    kernels = ascend.run.frame("kernels", ranks=[ascend.rank])
    assert ascend.table["total_ns"].sum() == kernels["duration_ns"].sum()
    assert ascend.table["count"].sum() == len(kernels)
    assert ascend.table["share"].sum() == pytest.approx(1.0)


def test_communication_is_left_out_unless_asked_for(ascend):
    computing = compute(State(run=ASCEND))
    assert "communication" in set(ascend.table["core"])
    assert not {"communication", "copy"} & set(computing.table["core"])
    assert set(compute(State(run=ASCEND, core="cube")).table["core"]) == {"cube"}


def test_the_chosen_operator_is_asked_about(ascend):
    name = str(ascend.table.loc[ascend.table["core"] == "cube", "name"].iloc[0])
    state = choose(replace(ascend.state, factor=4.0), "operators", {"name": name})
    result = compute(state)
    assert result.answer is not None
    assert result.answer.step_ns <= result.answer.before_ns
    assert f"{name} 4 times faster" in view(result).text


def test_charts_tables_and_the_roofline_are_there(ascend):
    answer = view(ascend)
    assert set(answer.charts) == {"totals", "calls", "roofline"}
    assert list(answer.tables) == ["operators"]


def test_many_short_vector_kernels_are_named():
    assert "a fused operator replaces many" in view(compute(State(run=KINETO))).text


def test_two_runs_are_put_side_by_side():
    answer = view(compute(State(run=ASCEND, other=KINETO)))
    assert {"slower", "compared", "only in a", "only in b"} <= set(answer.tables)
    assert "shares" in answer.charts
    # Its optimizer takes 25.5 % of the computing time, that of the other run 3.8 %.
    row = answer.tables["slower"].frame.set_index("operator").loc["Optimizer"]
    assert row["times"] == pytest.approx(0.255 / 0.0382, rel=0.02)
    assert "Optimizer (25.5% of the computing time here, 3.8% there)" in answer.text


def test_a_run_beside_itself_has_nothing_slower_than_its_share():
    answer = view(compute(State(run=ASCEND, other=ASCEND)))
    assert "slower" not in answer.tables
    assert "no operator takes 1.5 times its share" in answer.text


@pytest.mark.parametrize(
    ("core", "kind", "expected"),
    [
        ("AI_CORE", "computing", "cube"),
        ("AI_VECTOR_CORE", "computing", "vector"),
        ("MIX_AIC", "computing", "mixed"),
        ("AI_CPU", "computing", "AI CPU"),
        ("HCCL", "communication", "communication"),
        (None, "computing", "unknown"),
    ],
)
def test_cores_have_plain_names(core, kind, expected):
    assert core_label(core, kind) == expected


def test_the_gain_of_a_share_is_s_over_one_minus_s():
    assert _gain(0.2) == "+25.0%"
    assert _gain(1.0) == "-"


def test_a_name_with_markup_stays_data():
    rows = operators.operator_rows(compute(State(run=ASCEND)).table.head(1).assign(name="<img src=x onerror=alert(1)>"))
    assert rows["operators"][0]["label"] == "<img src=x onerror=alert(1)>"
