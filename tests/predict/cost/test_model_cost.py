"""The cost of a model: published counts, conventions, impossible speeds, sizes that somebody changes."""

from __future__ import annotations

import pytest

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.workload import Workload
from perfkit.predict.changes import changed_model
from perfkit.predict.cost.model_cost import ModelCost, guide_table, guide_told, model_cost, published_table, utilization_table
from perfkit.predict.cost.model_cost import utilization_told as told
from perfkit.predict.cost.roofline import layer_matmuls, products_told

PEAK = 376e12


def cost_of(name: str, **more: object) -> ModelCost:
    return model_cost(catalog.models()[name], **{"seq_length": 4096, **more})


@pytest.mark.parametrize(
    ("name", "parameters", "gflop"),
    [("llama2-7b", 6_738_415_616, 46.0849), ("llama2-13b", 13_015_864_320, 87.1760), ("llama2-70b", 68_976_648_192, 444.4914)],
)
def test_models_have_their_published_cost(name, parameters, gflop):
    cost = cost_of(name)
    assert cost.parameters.total == cost.to_frame()["parameters"].sum() == parameters
    assert (cost.passes["forward"].total + cost.passes["backward"].total) / 1e9 == pytest.approx(gflop, abs=5e-5)
    assert cost.training_flops.total / 1e9 == pytest.approx(gflop, abs=5e-5)
    assert f"{parameters:,}".replace(",", "\u2009") in cost.told()[0]


def test_the_guides_13b_figure_in_every_convention():
    shares = utilization_table(cost_of("llama2-13b"), 2562.0, PEAK).set_index("convention")["mfu"]
    assert {name: f"{share:.2%}" for name, share in shares.items()} == {
        "full attention, with head": "59.40%",
        "full attention, without head": "58.73%",
        "causal half, with head": "55.97%",
        "causal half, without head": "55.30%",
    }


def test_the_guides_7b_figure_and_its_hfu():
    cost = cost_of("llama2-7b", recomputed_layers=32)
    assert cost.mfu(4695.0, PEAK) == pytest.approx(0.5754, abs=5e-5)
    assert cost.hfu(4695.0, PEAK) == pytest.approx(0.7640, abs=5e-5)
    assert "MFU is 57.54 % of 376 TFLOP/s, HFU 76.40 %." in told(cost, 4695.0, PEAK)[0]


def test_a_speed_that_cannot_be_is_flagged():
    cost = cost_of("llama2-70b")
    assert cost.mfu(1974.0, PEAK) == pytest.approx(2.33, abs=0.01)
    assert told(cost, 1974.0, PEAK)[1].startswith("Impossible")
    assert told(cost, 700.0, PEAK)[1].startswith("Suspicious")
    assert len(told(cost, 100.0, PEAK)) == 2


def test_doubling_the_sequence_doubles_attention_and_nothing_else():
    short, long = (cost_of("llama2-7b", seq_length=length).passes["forward"].parts for length in (4096, 8192))
    for part, amount in short.items():
        assert long[part] == amount * (2 if part in {"layers/scores", "layers/values"} else 1)


def test_the_head_size_follows_the_hidden_size_and_the_heads():
    base = catalog.models()["llama2-13b"]
    assert changed_model(base) == base
    assert changed_model(base, num_layers=20).num_layers == 20
    assert changed_model(base, hidden_size=8192).head_size == 8192 // 40
    assert changed_model(base, hidden_size=8192, head_size=128).head_size == 128
    with pytest.raises(InputError, match="num_attention_heads = 40 is not a multiple of num_key_value_heads = 7"):
        changed_model(base, num_key_value_heads=7)
    with pytest.raises(InputError, match="do you mean 'num_layers'"):
        changed_model(base, layers=7)


def test_odd_sizes_are_told_and_the_guides_stand_beside_the_exact_totals():
    odd = model_cost(changed_model(catalog.models()["llama2-13b"], hidden_size=5121), seq_length=4096)
    assert "rounded down" in odd.told()[1]
    table = guide_table(odd.model, 4096)
    assert (table["guide_flops"] / table["exact_flops"] - 1).tolist() == pytest.approx(table["difference_ratio"].tolist())
    assert guide_told(odd.model, 4096).startswith("Two totals of the guides are off: the forward pass (layer total × layers) is")
    assert published_table()["recomputed_mfu"].notna().any()


def test_a_product_is_held_up_by_memory_or_by_computing():
    work, device = Workload(seq_length=4096, micro_batch_size=1, global_batch_size=1), catalog.hardware_named("Ascend-910B2")
    fast = layer_matmuls(catalog.models()["llama2-7b"], work, ParallelPlan(), device)
    assert products_told(fast).startswith("No product")
    fast.loc[0, "bound"] = "memory"
    assert products_told(fast).startswith(f"Memory holds up {fast['part'][0]}: ")
