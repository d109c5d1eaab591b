"""A stage with more layers, and none for a head or a slow rank."""

import re
from dataclasses import replace

import pytest

from perfkit.core.spec.recompute import RecomputePlan
from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules.stage_imbalance import RULE, _end_actions
from perfkit.predict.simulate import simulate
from perfkit.record.format import Sink
from tests.explain.diagnose.made import Training, run_of, summaries
from tests.predict.simulate.plans import plan_of

HEALTHY = Training().run()


def judged(run, baseline=None):
    return diagnose(run, baseline, only=[RULE])


def seconds_won(changed, healthy=HEALTHY):
    """What a step really wins without the fault, in ns."""
    return changed.steps()["duration_ns"].mean() - healthy.steps()["duration_ns"].mean()


def test_without_its_tables_nothing_is_measured():
    result = judged(run_of(Sink()))
    assert result.findings == result.healthy == ()
    assert result.not_measured[0].how_to_collect


def pipelined(counts, factors=None):
    sink = Sink()
    for rank in range(2 * len(counts)):
        stage, start = rank // 2, 0
        ops = [op for _ in range(counts[stage]) for op in ("MatMul", "FlashAttention", "Norm")]
        ops += ["Head"] * 3 if stage == len(counts) - 1 else []
        for step in (1, 2, 3):
            lengths = [round(200_000 * (factors or {}).get(rank, 1.0))] * len(ops)
            starts = [start + sum(lengths[:at]) for at in range(len(ops))]
            sink.add("kernels", rank=rank, step=step, name=ops, type=ops, kind="computing", start_ns=starts, duration_ns=lengths)
            sink.add("steps", rank=rank, step=step, pipeline_stage=stage, duration_ns=10**7, computing_ns=sum(lengths), free_ns=0)
            start += 10**7
    return run_of(sink)


def test_the_stage_with_more_layers_is_named():
    (found,) = judged(pipelined([4, 6, 4, 4])).findings
    assert found.subject["stages"] == (1,)
    assert found.subject["ranks"] == (2, 3)


def test_a_head_on_the_last_stage_and_a_slow_rank_are_no_imbalance():
    assert judged(pipelined([4, 4, 4, 4])).findings == ()
    assert judged(pipelined([4, 4, 4, 4], {2: 1.5, 3: 1.5})).findings == ()


def test_without_operators_only_a_large_difference_of_time_is_named():
    stages = {rank: rank // 2 for rank in range(4)}
    assert judged(summaries({0: 100, 1: 100, 2: 115, 3: 115}, stages=stages)).findings == ()
    (found,) = judged(summaries({0: 100, 1: 100, 2: 180, 3: 180}, stages=stages)).findings
    assert found.subject["stages"] == (1,)


def test_one_stage_is_not_measured():
    assert judged(HEALTHY).not_measured


def test_layers_that_the_plan_does_not_divide_evenly_are_as_planned_and_more_is_not():
    plan = plan_of("llama2-7b", 8, pp=4)
    plan = replace(plan, model=replace(plan.model, num_layers=10))
    result = judged(simulate(plan, steps=3))
    assert result.findings == ()
    assert result.healthy[0].evidence["planned_layers_over_mean"] > 0.1
    assert judged(simulate(plan, ["imbalanced_pp_stage:1:1.5"], steps=3)).findings


@pytest.mark.parametrize("stages", [2, 3, 4, 5])
def test_layers_that_leave_a_stage_arrive_at_the_others_and_these_get_as_many_but_for_one(stages):
    for stage in range(stages):
        for moved in range(1, 8):
            move = _end_actions(stage, stages, {"layers_of_stage": 8.0, "layers_to_move": float(moved)})[0]
            offsets = [int(text) for text in re.search(r"\[(.*)\]", move["mindspore"])[1].split(", ")]
            counts = [int(text) for text in re.findall(r"t\*(\d+)", move["megatron"])]
            others = [offset for at, offset in enumerate(offsets) if at != stage]
            assert offsets[stage] == -moved
            assert sum(others) == moved
            assert max(others) - min(others) <= 1
            assert counts == [8 + offset for offset in offsets]


def test_the_layout_of_a_last_stage_that_gives_four_layers_to_three_others():
    move = _end_actions(3, 4, {"layers_of_stage": 8.0, "layers_to_move": 4.0})[0]
    assert move["mindspore"] == "move 4 layers off stage 3: offset: [2, 1, 1, -4]"
    assert move["megatron"] == 'move 4 layers off stage 3: --pipeline-model-parallel-layout "Et*10|t*9|t*9|t*4L"'


def recorded(*full_layers):
    plan = replace(plan_of("llama2-7b", 8, pp=2, tp=2), recompute=RecomputePlan(full_layers=full_layers))
    return replace(simulate(plan, steps=3), plan=None)


@pytest.mark.parametrize("layers", [8, 16])
def test_a_stage_that_computes_more_of_its_layers_again_is_told_so_and_priced(layers):
    changed = recorded((layers, 0))
    (found,) = judged(changed).findings
    assert found.subject["stages"] == (0,)
    assert found.evidence["layers_again_ratio"] == pytest.approx(layers / 16)
    assert found.actions[0].startswith("recompute fewer layers")
    assert found.cost_ns == pytest.approx(seconds_won(changed, recorded()), rel=0.1)


def test_stages_that_compute_as_many_layers_again_are_alike():
    assert judged(recorded((8, 8))).findings == ()


def talking(factor, group_of=lambda stage: f"tp{stage}", more=None):
    """Two stages of two ranks compute alike and then meet; those of the second send among themselves `factor` times as long.

    They send `more` times the bytes, which is `factor` times unless given.
    """
    sink, length, ops = Sink(), 20 * 10**6, ["MatMul", "FlashAttention", "Norm"] * 4
    for rank in range(4):
        own, last = round(10**6 * (factor if rank > 1 else 1)), round(10**6 * max(factor, 1))
        for step in (1, 2, 3):
            at = step * length
            met, ended = at + 12 * 10**6 + own, at + 12 * 10**6 + last + 10_000
            sink.add("kernels", rank=rank, step=step, name=ops, type=ops, kind="computing", duration_ns=10**6, stream="0",
                     start_ns=[at + 10**6 * place for place in range(len(ops))])  # fmt: skip
            sink.add("steps", rank=rank, step=step, pipeline_stage=rank // 2, start_ns=at, duration_ns=ended - at,
                     computing_ns=12 * 10**6)  # fmt: skip
            sink.add("collectives", rank=rank, step=step, name="AllReduce", operation="all_reduce",
                     group=[group_of(rank // 2), "all"], group_size=[2, 4],
                     bytes=[round(10**6 * ((more or factor) if rank > 1 else 1)), 10**6],
                     start_ns=[at + 12 * 10**6, met], duration_ns=[own, ended - met])  # fmt: skip
    return run_of(sink)


def test_a_stage_whose_ranks_send_more_among_themselves_is_named():
    (found,) = judged(talking(3)).findings
    assert (found.subject["stages"], found.subject["ranks"]) == ((1,), (2, 3))
    assert (found.evidence["stage_talk_ns"], found.evidence["other_stages_talk_ns"]) == (3e6, 1e6)
    assert found.cost_ns == pytest.approx(2e6, rel=0.01)
    assert "18_graph_ir" in found.next


def test_stages_that_send_alike_or_to_one_another_are_not_named():
    assert judged(talking(1.4)).findings == ()
    assert judged(talking(3, more=1)).findings == (), "the same bytes for longer: that is a slow link"
    assert judged(talking(3, lambda stage: "across")).findings == ()
