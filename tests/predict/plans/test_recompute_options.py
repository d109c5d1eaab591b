"""What recomputation frees and costs: the guides' 13B figures, and conservation between single operators and whole layers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perfkit import read_config
from perfkit.core.patterns import layer_paths
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.units import MIB
from perfkit.predict.cost.flops import pass_flops
from perfkit.predict.estimate import efficiency_of
from perfkit.predict.plans.balance.recompute_options import again_s, full_option, operator_options, saved_bytes

ROOT = Path(__file__).parents[3]
PLAN = read_config(ROOT / "data" / "configs" / "llama2_13b.toml")
EFFICIENCY = efficiency_of(PLAN)
SILU_MUL = (r"feed_forward\.mul", r"feed_forward\.w1\.activation")
FINE = tuple(read_config(ROOT / "data" / "case13b" / "round2.yaml").recompute.operators)


def test_silu_and_mul_free_216_mib_a_layer():
    assert saved_bytes(PLAN, SILU_MUL) == 216 * MIB


def test_the_fine_list_redoes_78_percent_of_a_layers_forward():
    assert len(FINE) == 20
    layers = ((20, 20),)
    fine = RecomputePlan(operators=dict.fromkeys(FINE, layers))
    seq = PLAN.workload.seq_length
    again, full = (pass_flops(PLAN.model, seq, one, "full")["recompute"] for one in (fine, RecomputePlan(all_layers=True)))
    assert float(again.total) / float(full.total) == pytest.approx(0.781, abs=5e-4)


def test_cheap_operators_rank_above_products():
    order = [option.path for option in operator_options(PLAN, layer_paths(), EFFICIENCY)]
    cheap = ("feed_forward.mul", "feed_forward.w1.activation", "ffn_norm.norm", "attention_norm.norm")
    assert max(order.index(path) for path in cheap) < min(order.index(path) for path in order if path.endswith("matmul"))


def test_no_set_of_operators_frees_more_than_the_whole_layer():
    whole = full_option(PLAN, EFFICIENCY)
    patterns = [path.replace(".", r"\.") for path in layer_paths()]
    assert saved_bytes(PLAN, SILU_MUL) < saved_bytes(PLAN, patterns) <= whole.saved_bytes
    assert 0 < again_s(PLAN, EFFICIENCY, [SILU_MUL])[0] < again_s(PLAN, EFFICIENCY, [FINE])[0] < whole.seconds


def test_gathering_again_costs_only_with_sequence_parallelism():
    assert again_s(PLAN, EFFICIENCY, [()], communication=True) == [0]
    split = replace(PLAN, parallel=replace(PLAN.parallel, tensor_parallel_size=8, sequence_parallel=True))
    assert again_s(split, EFFICIENCY, [()], communication=True)[0] > 0
    assert saved_bytes(split, (), communication=True) == 2 * 7 * 4096 * 5120 * 2 // 8
