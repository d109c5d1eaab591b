"""Layer times of a run: which kernels count for which layer, and what they make of a problem."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from perfkit import read_config
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.predict.estimate import efficiency_of
from perfkit.predict.plans.balance.from_plan import problem_of_plan
from perfkit.predict.plans.balance.measured_layers import LayerTime, layer_times, with_layer_times

CONFIG = Path(__file__).parents[3] / "data" / "configs" / "llama2_13b.toml"
MINDSPORE = "Default/network-MFPipelineWithLossScaleCell/network-LlamaForCausalLM/model-LlamaModel/layers-CellList/"


class Kernels:
    """A run of which only the kernels are known."""

    def __init__(self, rows):
        self._frame = pd.DataFrame(
            [dict(zip(("rank", "step", "name", "kind", "duration_ns"), row, strict=True)) for row in rows]
        ).astype({"name": "category", "step": "Int64"})

    def has(self, table):
        return table == "kernels"

    def frame(self, table, *, columns):
        return self._frame[columns]


def test_kernels_count_for_the_layer_that_their_name_states():
    run = Kernels(
        [
            (0, 1, MINDSPORE + "3-LLamaDecodeLayer/attention-LLamaAttention/wq-Linear/MatMul-op7", "computing", 600),
            (0, 1, MINDSPORE + "3-LLamaDecodeLayer/attention-LLamaAttention/wo-Linear/AllReduce-op1", "communication", 200),
            (0, 1, "Gradients/" + MINDSPORE + "3-LLamaDecodeLayer/gradMatMul/MatMul-op9", "computing", 1600),
            (0, 2, MINDSPORE + "3-LLamaDecodeLayer/attention-LLamaAttention/wq-Linear/MatMul-op7", "computing", 1000),
            (0, 2, "Gradients/" + MINDSPORE + "3-LLamaDecodeLayer/gradMatMul/MatMul-op9", "computing", 2000),
            (4, 1, "forward/layers.12/ffn.up", "computing", 400),
            (4, 1, "recompute/layers.12/ffn.up", "computing", 100),
            (4, 1, "backward/layers.12/ffn.up", "computing", 700),
            (4, 1, "forward/layers.12/ffn.up", "copy", 10_000),
            (4, 1, "Default/network/lm_head-Linear/MatMul-op3", "computing", 10_000),
        ]
    )
    assert layer_times(run, 2) == {3: LayerTime(450.0, 900.0), 12: LayerTime(200.0, 400.0)}
    assert layer_times(Kernels([(0, 1, "aclnnMm_MatMulV2", "computing", 5)]), 2) == {}


def test_measured_layers_replace_the_predicted_ones_forward_and_backward_apart():
    plan = replace(read_config(CONFIG), recompute=RecomputePlan())
    found = problem_of_plan(plan, efficiency_of(plan, None))
    (part,) = found.problem.body
    none = part.kinds["none"].bwd_ns
    times = {number: LayerTime(2.0 * part.fwd_ns, 3.0 * none) for number in (0, 7)}
    changed = with_layer_times(found, times).problem
    (layer,) = changed.body
    assert layer.fwd_ns == 2 * part.fwd_ns
    for kind, before in part.kinds.items():
        assert layer.kinds[kind].bwd_ns == pytest.approx(3 * none + 2 * (before.bwd_ns - none), abs=1)
        assert layer.kinds[kind].act_bytes == before.act_bytes
    assert 2 < changed.tail.fwd_ns / found.problem.tail.fwd_ns < 3
    assert with_layer_times(found, {plan.model.num_layers: LayerTime(1.0, 1.0)}) is None
    assert with_layer_times(found, {0: LayerTime(1.0, float("nan"))}) is None


def test_what_a_run_recomputed_is_not_counted_twice():
    plan = replace(read_config(CONFIG), recompute=RecomputePlan(all_layers=True))
    found = problem_of_plan(plan, efficiency_of(plan, None))
    (part,) = found.problem.body
    (layer,) = with_layer_times(found, {3: LayerTime(float(part.fwd_ns), float(part.kinds["full"].bwd_ns))}).problem.body
    assert layer == part
