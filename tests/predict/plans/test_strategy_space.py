"""Strategies: the published counts and rows of three spaces, and rules that lose nothing."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.core.errors import InputError
from perfkit.predict.plans.search.strategy_space import ORDER, RULES, StrategySpace, broken_rules, divisors, enumerate_strategies

CASES = json.loads((Path(__file__).parents[2] / "data" / "plans" / "d14_enumerate.json").read_text(encoding="utf-8"))["cases"]


def space_of(values):
    return StrategySpace(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_space_has_the_stated_rows(case):
    expected = case["expected"]
    rows = enumerate_strategies(space_of(case["space"])).table(tuple(expected["columns"])).tolist()
    assert len(rows) == expected["count"]
    assert rows[: len(expected["first_rows"])] == expected["first_rows"]
    assert rows[-len(expected["last_rows"]) :] == expected["last_rows"]
    stages = [row[expected["columns"].index("pp")] for row in rows]
    assert {str(size): stages.count(size) for size in sorted(set(stages))} == expected["count_by_pp"]
    text = "\n".join(",".join(map(str, row)) for row in rows)
    assert hashlib.sha256(text.encode()).hexdigest() == expected["sha256_sorted_rows"]


SPACES = st.builds(
    StrategySpace,
    devices=st.integers(1, 30),
    layers=st.integers(1, 12),
    heads=st.integers(1, 16),
    kv_heads=st.integers(1, 8),
    vocab=st.integers(1, 64),
    seq_len=st.sampled_from([16, 24, 30]),
    global_batch=st.integers(1, 64),
    experts=st.sampled_from([0, 6, 8]),
    cp=st.just((1, 2)),
    vpp=st.just((1, 2, 3)),
    ep=st.just((1, 2, 4)),
    mbs=st.just((1, 3)),
    copies=st.just((1, 2)),
    zero=st.just((0, 1, 2)),
    shard=st.just((0, 2)),
    pads_vocab=st.booleans(),
    devices_per_node=st.sampled_from([0, 4]),
    framework=st.sampled_from(["", "megatron"]),
    even_chunks=st.booleans(),
)


@settings(max_examples=30)
@given(SPACES)
def test_every_combination_is_kept_or_counted_once(space):
    found = enumerate_strategies(space)
    assert len(found) + sum(found.rejected.values()) == found.searched
    assert found.searched == np.prod([len(space.values(name)) for name in ORDER])


@settings(max_examples=15)
@given(SPACES)
def test_exactly_the_combinations_that_break_no_rule_are_kept(space):
    found = enumerate_strategies(space)
    rows = {tuple(row) for row in found.table(ORDER).tolist()}
    for values in itertools.islice(itertools.product(*(space.values(name).tolist() for name in ORDER)), 0, None, 4001):
        assert (tuple(values) in rows) == (not broken_rules(dict(zip(ORDER, values, strict=True)), space))


def test_kept_rows_use_all_devices_and_the_whole_batch():
    columns = enumerate_strategies(space_of(CASES[1]["space"])).columns
    assert (columns["dp"] * columns["tp"] * columns["cp"] * columns["pp"] == 64).all()
    assert (columns["m"] * columns["mbs"] * columns["dp"] == 512).all()


def test_all_rules_that_one_strategy_breaks_are_named():
    space = space_of(CASES[0]["space"])
    reasons = broken_rules({"tp": 3, "pp": 64, "vpp": 2, "mbs": 5, "sp": 1}, space)
    assert {"tensor size does not divide the devices", "tensor size does not divide the attention heads"} <= set(reasons)
    assert "more pipeline stages than layers" in reasons
    assert len(reasons) >= 5


def test_rules_have_ids_and_reasons_of_their_own():
    assert len({rule.id for rule in RULES}) == len({rule.reason for rule in RULES}) == len(RULES)


def test_all_impossible_sizes_are_named_at_once():
    with pytest.raises(InputError) as raised:
        StrategySpace(devices=8, layers=0, heads=8, kv_heads=8, vocab=8, seq_len=8, global_batch=-1, zero=(4,), sp=(2,), mbs=())
    assert len(raised.value.problems) == 5


def test_divisors_are_all_and_rising():
    assert divisors(12) == (1, 2, 3, 4, 6, 12)
    assert divisors(1) == (1,)
    assert divisors(7) == (1, 7)


def test_megatron_may_run_fewer_micro_batches_than_stages_but_not_interleaved():
    sizes = {"devices": 4, "layers": 8, "heads": 8, "kv_heads": 8, "vocab": 512, "seq_len": 64, "global_batch": 2}
    few = {"tp": 1, "pp": 4, "mbs": 1}
    assert broken_rules(few, StrategySpace(**sizes)) == ("fewer micro batches than pipeline stages",)
    assert broken_rules(few, StrategySpace(**sizes, framework="mindspore")) == ("fewer micro batches than pipeline stages",)
    assert broken_rules(few, StrategySpace(**sizes, framework="megatron")) == ()
    assert broken_rules({**few, "vpp": 2}, StrategySpace(**sizes, framework="megatron")) == (
        "interleaving needs micro batches that the stages divide",
    )
