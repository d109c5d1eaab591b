"""Every fault costs what its kind says where it strikes, and nothing elsewhere; impossible ones are refused with all reasons."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.core.errors import InputError
from perfkit.predict.simulate import FAULTS, parse_faults, simulate
from perfkit.predict.simulate.layout import Layout
from perfkit.predict.simulate.run import prepare
from tests.predict.simulate.plans import SMALL, plan_of

LAYOUT = Layout.of(SMALL)
MOE = plan_of("mixtral-8x7b", 16, seq=4096, dp=4, tp=1, pp=2, ep=4)
WIDE = plan_of("gpt-7.5b", 8, micro=2, dp=2, tp=4)
SHARDED = plan_of("gpt-7.5b", 32, micro=2, dp=8, optimizer_shard_size=8, optimizer_shard_level=2)


def mean_ns(plan, *faults, steps=2):
    return float(np.mean(prepare(plan, faults, steps=steps).durations_ns()))


@pytest.fixture(scope="module")
def healthy_ns():
    return mean_ns(SMALL)


@pytest.mark.parametrize(
    "fault",
    [
        "slow_rank:5:1.5", "slow_link:0-1:4", "slow_op:Attn:3", "slow_op:matmulv3:1.5", "data_stall:all:90", "host_bound:all:100",
        "gc_pause:6:90", "imbalanced_pp_stage:0:1.4", "jitter:0.2", "unneeded_casts:10", "memory_fragmentation:all:30",
        "frequent_sync:50", "full_recompute", "aicpu_ops:3", "slow-rank:5:1.5",
    ],
)  # fmt: skip
def test_a_fault_makes_the_step_longer(fault, healthy_ns):
    assert mean_ns(SMALL, fault) > 1.005 * healthy_ns


def test_faults_add_up(healthy_ns):
    one, other = mean_ns(SMALL, "slow_rank:5:1.3"), mean_ns(SMALL, "data_stall:all:90")
    assert mean_ns(SMALL, "slow_rank:5:1.3", "data_stall:all:90") > max(one, other) + 0.5 * (min(one, other) - healthy_ns)


def test_a_wrong_clock_costs_nothing_and_moves_all_of_its_rank(healthy_ns):
    assert mean_ns(SMALL, "clock_skew:3:250") == healthy_ns
    right, wrong = (simulate(SMALL, faults, steps=1) for faults in ([], ["clock_skew:3:250"]))
    for table in ("kernels", "collectives"):
        ours, theirs = (
            {rank: found.frame(table, ranks=[rank])["start_ns"].to_numpy(dtype="int64") for rank in (2, 3)}
            for found in (wrong, right)
        )
        assert set(ours[3] - theirs[3]) == {250_000}
        assert (ours[2] == theirs[2]).all()
    assert wrong.clock[3] == pytest.approx(-250_000, abs=50)


def test_gradients_that_were_hidden_are_exposed_without_overlap():
    assert mean_ns(SHARDED, "no_overlap") > mean_ns(SHARDED)


def test_small_messages_cost_latency_and_are_counted():
    whole, split = (simulate(SHARDED, faults, steps=1).frame("collectives", ranks=[0]) for faults in ([], ["small_messages:50"]))
    assert mean_ns(SHARDED, "small_messages:50") > mean_ns(SHARDED)
    scatters = [(rows["operation"] == "reduce_scatter").sum() for rows in (whole, split)]
    assert scatters[1] == 50 * scatters[0]
    assert split["bytes"].sum() == pytest.approx(whole["bytes"].sum(), rel=0.01)


def test_experts_with_more_tokens_are_slow_in_one_place_of_each_group():
    run = simulate(MOE, ["moe_imbalance:2:1"], steps=1)
    kernels = run.frame("kernels")
    grouped = kernels[kernels["type"] == "GroupedMatmul"].groupby("rank")["duration_ns"].sum()
    assert grouped[1] > 1.9 * grouped[0]
    assert grouped[5] > 1.9 * grouped[4]


def test_a_slow_rank_is_slow_in_the_steps_asked_for_only():
    run = simulate(SMALL, ["slow_rank:5:2:1:2"], steps=4)
    computing = run.steps().set_index(["rank", "step"])["computing_ns"].unstack()
    assert (computing.loc[5] / computing.loc[4] > 1.9).tolist() == [False, True, True, False]


def test_a_slow_link_shows_in_the_transit_of_its_group_only():
    run = simulate(SMALL, ["slow_link:4-5:4"], steps=1)
    rows = run.frame("collectives")
    transit = rows[rows["group"].astype(str).str.startswith("tp_")].groupby("group", observed=True)["transit_ns"].sum()
    assert transit["tp_4"] > 3 * transit["tp_6"]


def test_only_the_ends_of_a_slow_link_move_data_longer_their_peers_wait():
    run = simulate(WIDE, ["slow_link:1-2:4"], steps=1)
    rows = run.frame("collectives")
    transit = rows[rows["group"] == "tp_0"].groupby("rank")["transit_ns"].sum()
    assert transit[1] == transit[2] > 3.5 * transit[0] == 3.5 * transit[3]
    links = run.frame("links")
    links = links[links["operation"].astype(str).str.startswith("tp-")].set_index(["source_rank", "target_rank"])["transit_ns"]
    assert links[1, 2] == links[2, 1] > 3.5 * links[1, 0]
    assert links[0, 1] == pytest.approx(links[1, 0], rel=0.01) == pytest.approx(links[4, 5], rel=0.05)


def test_a_stall_every_second_step_strikes_every_second_step():
    durations = prepare(SMALL, ["data_stall:0:200:2"], steps=4).durations_ns()
    assert [duration > 1.1 * min(durations) for duration in durations] == [False, True, False, True]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("slow_rank:8:1.2", "outside of 0 to 7"),
        ("slow_rank:1:0", "above 0"),
        ("slow_rank:1:-2", "above 0"),
        ("slow_rank:1:nan", "above 0"),
        ("slow_rank:1", "write slow_rank:RANK:FACTOR[:FROM]"),
        ("slow_rank:1:2:3:2", "before FROM"),
        ("slow_link:2-2:3", "within one device"),
        ("slow_link:0-7:3", "exchange nothing"),
        ("slow_link:0-9:3", "rank 9 is outside"),
        ("slow_op:Pool:2", "no operator"),
        ("imbalanced_pp_stage:2:1.5", "stage 2"),
        ("small_messages:1", "2 to"),
        ("moe_imbalance:2", "no expert-parallel groups"),
        ("data_stall:none:5", "whole number"),
        ("haste:1", "no kind of fault"),
        ("<img src=x onerror=alert(1)>:1", "no kind of fault"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(text, reason):
    with pytest.raises(InputError) as caught:
        parse_faults([text], LAYOUT)
    assert reason in str(caught.value)


def test_all_reasons_come_at_once():
    with pytest.raises(InputError) as caught:
        parse_faults(["slow_rank:99:0", "haste", "slow_link:1-1:0"], LAYOUT)
    assert len(caught.value.problems) == 4


@given(st.text(max_size=40) | st.builds("{}:{}".format, st.sampled_from(sorted(FAULTS)), st.text("0123456789-:.alen", max_size=14)))
def test_any_text_is_a_fault_or_an_error_for_the_user(text):
    try:
        (fault,) = parse_faults([text], LAYOUT)
    except InputError:
        pass
    else:
        assert fault.kind in FAULTS
        assert fault.factor != 0
