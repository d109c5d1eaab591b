"""Which kernels run again is told by their order alone, and told right."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from perfkit.core.spec.recompute import RecomputePlan
from perfkit.explain import recomputed
from perfkit.explain.ledger import causes, ledger
from perfkit.predict.simulate import simulate
from tests.predict.simulate.plans import plan_of

FORWARD = ["norm", "flash", "mlp", "act"]
BACKWARD = ["act_grad", "mlp_grad", "flash_grad", "norm_grad"]


def told(operators: list[str]) -> recomputed.Again | None:
    return recomputed.again(pd.Series(operators), pd.Series([1] * len(operators)))


def again(operators: list[str]) -> list[str]:
    found = told(operators)
    assert found is not None
    return [name for name, which in zip(operators, found.mask(len(operators)), strict=True) if which]


@pytest.mark.parametrize("counts", [((2, 1),), ((0, 4),), ((4, 4),), ((0, 0),)])
def test_the_ledger_holds_what_a_simulated_run_computes_again_to_the_nanosecond(counts):
    plan = plan_of("gpt-7.5b", 16, dp=2, pp=2)
    plan = replace(plan, model=replace(plan.model, num_layers=8), recompute=RecomputePlan(full_layers=counts))
    run = simulate(plan, steps=2)
    kernels = run.frame("kernels")
    named = kernels["name"].astype(str).str.startswith("recompute/") & (kernels["kind"] == "computing")
    entries = ledger(run).entries
    found = entries[entries["cause"] == causes.AGAIN]
    assert found.groupby("rank")["ns"].sum().to_dict() == kernels[named].groupby("rank")["duration_ns"].sum().to_dict()


def test_a_stretch_is_no_longer_than_a_layer_though_the_forward_pass_comes_before_it():
    assert again([*FORWARD, *FORWARD, *FORWARD, *BACKWARD, *FORWARD, *BACKWARD]) == FORWARD * 2
    assert again([*FORWARD, *FORWARD, *BACKWARD, *FORWARD, *BACKWARD]) == FORWARD


def test_a_stretch_may_stop_before_the_end_of_the_layer_and_lack_a_few_kernels():
    forward = ["cast", "norm", "flash", "mlp", "act"]
    assert again([*forward, *forward, *BACKWARD, "norm", "flash", "mlp", *BACKWARD]) == ["norm", "flash", "mlp"]


def test_without_recomputation_nothing_runs_again_and_without_attention_nothing_is_known():
    found = told([*FORWARD, *FORWARD, *BACKWARD, *BACKWARD])
    assert (len(found.firsts), found.forward, found.backward) == (0, 2, 2)
    assert told(["norm", "mlp"]) is None
    assert not len(told([*FORWARD, *FORWARD]).firsts)


def test_attention_alone_runs_again_where_no_two_layers_show_what_is_around_it():
    found = told(["flash", "flash_grad", "x", "flash", "y", "flash_grad", "flash", "z", "norm_grad"])
    assert found.forward == 3
    assert np.array_equal(found.firsts, found.lasts)


CUDNN = "cudnn_generated_fort_native_sdpa_sm90_flash_{}_wgmma_f16"


@pytest.mark.parametrize(
    ("forward", "backward"), [(CUDNN.format("fprop"), CUDNN.format("bprop")), ("fmha_cutlassF_bf16", "fmha_cutlassB_bf16")]
)
def test_backward_attention_is_known_by_the_names_of_cudnn_and_of_cutlass(forward, backward):
    assert not recomputed.BACKWARD.search(forward)
    assert recomputed.BACKWARD.search(backward)
