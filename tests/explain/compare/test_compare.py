"""Comparisons of runs, plans, a run with its plan, graphs and losses: sums, signs, noise, and what may not be compared."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.config.dialects import read_config
from perfkit.core.breakdown import Breakdown
from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.core.run import Dropped, Run
from perfkit.core.schema import TABLES, pandas_dtype
from perfkit.core.source import Source
from perfkit.explain.compare import compare
from perfkit.explain.compare._parts import common, parts
from perfkit.explain.compare._planned import planned_stage
from perfkit.explain.compare.settings import group_of
from perfkit.predict.estimate import estimate
from perfkit.record.load import load

DATA = data_folder()
PLAN = DATA / "configs" / "llama2_13b.toml"
EXPOSED = "communication/exposed"


def table(name: str, rows: list[dict]) -> pd.DataFrame:
    columns = TABLES[name].columns
    return pd.DataFrame(
        {
            column.name: pd.Series([row.get(column.name) for row in rows], dtype=pandas_dtype(column))
            if column.dtype == "text" or column.nullable
            else [row[column.name] for row in rows]
            for column in columns
        }
    )


def run_of(steps: list[dict[str, int]], *, ranks: int = 1, name: str = "run", stages: int = 1) -> Run:
    """A run whose steps have these parts in ns on every rank; ranks are dealt to `stages` in turn."""
    rows, leaves = [], []
    for rank in range(ranks):
        for number, amounts in enumerate(steps):
            stage = rank % stages if stages > 1 else None
            rows.append({"rank": rank, "step": number, "pipeline_stage": stage, "duration_ns": sum(amounts.values())})
            leaves += [{"rank": rank, "step": number, "path": path, "amount_ns": amount} for path, amount in amounts.items()]
    return Run(
        name=name, kind="measured", format="test", tables={"steps": table("steps", rows), "step_parts": table("step_parts", leaves)}
    )


def steps_of(median_ns: int, noise: float = 0.002, count: int = 12, seed: int = 0) -> list[dict[str, int]]:
    factors = 1 + noise * np.random.default_rng(seed).normal(size=count)
    return [
        {"computing": int(0.6 * median_ns * f), EXPOSED: int(0.3 * median_ns * f), "free": int(0.1 * median_ns * f)}
        for f in factors
    ]


part_names = st.sampled_from(["computing", EXPOSED, "bubble", "free"])
some_steps = st.lists(st.dictionaries(part_names, st.integers(1, 10**12), min_size=1), min_size=1, max_size=6)


@settings(max_examples=50, deadline=None)
@given(first=some_steps, second=some_steps)
def test_parts_sum_to_the_totals_and_swapping_turns_every_sign(first, second):
    a, b = run_of(first, name="a"), run_of(second, name="b")
    there, back = compare(a, b), compare(b, a)
    assert sum(part.a for part in there.parts) == there.total_a
    assert sum(part.b for part in there.parts) == there.total_b
    assert {part.path: part.delta for part in there.parts} == {part.path: -part.delta for part in back.parts}
    assert there.beyond_noise == back.beyond_noise
    json.dumps(there.to_json(), allow_nan=False)


@pytest.mark.parametrize(
    "side", ["traces/torch_npu_2rank", "traces/kineto_resnet", "traces/cluster_16card", "configs/llama2_13b.toml"]
)
def test_a_thing_compared_with_itself_is_zero(side):
    document = compare(DATA / side, DATA / side).to_json()
    assert document["total"]["delta"] == 0
    assert document["total"]["ratio"] == 1
    assert all(part["delta"] == 0 for part in document["parts"])
    assert (document["beyond_noise"], document["config"]) == (False, [])


def test_the_document_has_the_fields_of_the_interface():
    document = compare(DATA / "traces/torch_npu_2rank", DATA / "traces/kineto_resnet").to_json()
    assert {"a", "b", "kind", "unit", "total", "parts", "beyond_noise", "config"} <= set(document)
    assert document["kind"], document["unit"] == ("runs", "ns")
    assert set(document["total"]) == {"a", "b", "delta", "ratio"}
    assert all(isinstance(part[key], int) for part in document["parts"] for key in ("a", "b", "delta"))


def test_a_change_beyond_noise_is_one_and_noise_is_none():
    base = run_of(steps_of(100_000_000))
    assert compare(base, run_of(steps_of(103_000_000, seed=1))).beyond_noise is True
    assert compare(base, run_of(steps_of(100_500_000, seed=1))).beyond_noise is False
    assert compare(run_of(steps_of(100_000_000, 0.1)), run_of(steps_of(103_000_000, 0.1, seed=1))).beyond_noise is False


@pytest.mark.parametrize("seed", range(20))
def test_repeats_of_one_run_are_never_beyond_noise(seed):
    noise = (0.003, 0.01, 0.04)[seed % 3]
    a, b = (run_of(steps_of(100_000_000, noise, seed=2 * seed + side)) for side in (0, 1))
    assert compare(a, b).beyond_noise is False


def test_too_few_steps_leave_it_open_but_no_change_is_no_change():
    one = run_of(steps_of(100_000_000, count=1))
    assert compare(one, run_of(steps_of(200_000_000, count=1))).beyond_noise is None
    assert compare(one, run_of(steps_of(100_400_000, count=1, seed=0))).beyond_noise is False


def test_warm_up_and_outliers_are_left_out_and_said():
    steps = steps_of(100_000_000)
    spoiled = [{"computing": 10**10, "free": 1}, *steps, {"computing": 5 * 10**9}]
    found = compare(run_of(steps), run_of(spoiled))
    assert found.beyond_noise is False
    assert any("2 of 14 steps left out" in note for note in found.notes)


def test_the_change_is_given_to_the_part_that_changed():
    slower = [{**step, EXPOSED: step[EXPOSED] + 41_000_000} for step in steps_of(100_000_000)]
    found = compare(run_of(steps_of(100_000_000)), run_of(slower))
    deltas = {part.path: part.delta for part in found.parts}
    assert deltas == {"computing": 0, EXPOSED: 41_000_000, "free": 0}
    assert "communication/exposed changed most: 41.0 ms more" in found.sentences


def test_sides_that_divide_their_time_otherwise_meet_at_what_both_name():
    source = Source("measured", "test")
    a = Breakdown("ns", {"computing/forward_backward": 6, "computing/tail": 2, "free/data": 1, "free/other": 1}, source)
    b = Breakdown("ns", {"computing/forward": 3, "computing/backward": 6, "free": 1}, source)
    left, right, _ = common(a, b)
    assert dict(left.parts) == {"computing": 8, "free": 2}
    assert dict(right.parts) == {"computing": 9, "free": 1}


def test_a_side_that_knows_only_its_length_is_compared_as_a_whole():
    source = Source("measured", "test")
    left, right, notes = common(Breakdown("ns", {"step": 10}, source), Breakdown("ns", {"computing": 8, "free": 1}, source))
    assert [(part.path, part.a, part.b) for part in parts(left, right)] == [("step", 10, 9)]
    assert notes


def test_a_recording_that_cannot_see_the_bubble_is_not_taken_to_have_none():
    source = Source("measured", "test")
    a = Breakdown("ns", {"computing": 8, EXPOSED: 3}, source)
    b = Breakdown("ns", {"computing": 8, f"{EXPOSED}/dp": 1, "bubble": 2}, Source("computed", "plan"))
    left, right, notes = common(a, b)
    assert dict(left.parts) == dict(right.parts) == {"computing": 8, EXPOSED: 3}
    assert any("bubble" in note for note in notes)


def test_two_plans_differ_by_what_their_files_say():
    found = compare(DATA / "case13b/round4.yaml", DATA / "case13b/round5.yaml", device="Ascend-910B2")
    document = found.to_json()
    assert {row["key"] for row in document["config"]} == {"context.max_device_memory", "recompute_config.recompute"}
    assert document["unit"] == "s"
    assert document["total"]["delta"] == pytest.approx(sum(part["delta"] for part in document["parts"]))
    assert document["total"]["delta"] < 0
    largest = max(document["parts"], key=lambda part: abs(part["delta"]))
    assert largest["path"] == "computing/recompute"


@pytest.mark.parametrize(
    ("key", "group"),
    [
        ("model.hidden_size", "architecture"),
        ("parallel_config.model_parallel", "strategy"),
        ("hardware.name", "device"),
        ("context.jit_level", "software"),
        ("runner_config.batch_size", "data and batch"),
        ("workload.global_batch_size", "data and batch"),
    ],
)
def test_settings_belong_to_the_five_groups_of_the_guide(key, group):
    assert group_of(key) == group


def measured_as_planned(plan, changes: dict[str, int]) -> Run:
    """A run of every stage of a plan that takes exactly what the plan says, plus `changes` in ns."""
    rows, leaves = [], []
    for stage in range(plan.parallel.pipeline_parallel_size):
        breakdown = planned_stage(plan, stage).collapse(2)
        amounts = {path: round(amount * 1e9) for path, amount in breakdown.parts.items() if not path.startswith("computing")}
        amounts["computing"] = round(breakdown.amount("computing") * 1e9)
        for step in range(3):
            parts_ns = {path: amounts.get(path, 0) + changes.get(path, 0) for path in {*amounts, *changes}}
            rows.append({"rank": stage, "step": step, "pipeline_stage": stage, "duration_ns": sum(parts_ns.values())})
            leaves += [{"rank": stage, "step": step, "path": path, "amount_ns": amount} for path, amount in parts_ns.items()]
    tables = {"steps": table("steps", rows), "step_parts": table("step_parts", leaves)}
    return Run(name="as planned", kind="measured", format="test", tables=tables)


def test_the_stages_of_a_plan_take_as_long_as_the_plan():
    plan = read_config(PLAN)
    whole = estimate(plan).breakdown.total
    for stage in range(plan.parallel.pipeline_parallel_size):
        assert planned_stage(plan, stage).total == pytest.approx(whole)


def test_a_run_that_knows_only_its_step_meets_its_plan_in_one_unit():
    plan = read_config(PLAN)
    (part,) = compare(run_of([{"step": 9_000_000_000}]), plan).parts
    assert (part.a, part.b) == (9_000_000_000, pytest.approx(estimate(plan).step_time_s * 1e9, rel=1e-6))


def test_a_run_as_planned_leaves_no_residual_and_no_finding():
    plan = read_config(PLAN)
    document = compare(measured_as_planned(plan, {}), plan).to_json()
    assert document["kind"] == "run_plan"
    assert document["beyond_noise"] is False
    assert document["findings"] == []
    assert all(abs(part["delta"]) < 1e-6 * document["total"]["a"] for part in document["parts"])
    assert document["within_interval"] is True


def test_a_residual_becomes_a_sentence_with_its_amount_and_place_to_look():
    plan = read_config(PLAN)
    late = measured_as_planned(plan, {EXPOSED: 9_000_000_000})
    document = compare(late, plan).to_json()
    finding = document["findings"][0]
    assert (finding["path"], finding["residual_ns"]) == (EXPOSED, pytest.approx(9_000_000_000, rel=1e-6))
    assert "exposed communication" in finding["sentence"]
    assert "9.00 s above the plan" in finding["sentence"]
    assert finding["next"] == ("13",)
    assert {row["stage"] for row in document["stages"]} == {0, 1}


def test_a_plan_and_its_run_in_either_order_tell_the_same():
    plan = read_config(PLAN)
    run = measured_as_planned(plan, {"free": 5_000_000_000})
    there, back = compare(run, plan), compare(plan, run)
    assert there.sentences == back.sentences
    assert {part.path: part.delta for part in there.parts} == {part.path: -part.delta for part in back.parts}
    assert there.worse_than(3)
    assert back.worse_than(3)


def test_gradients_that_nothing_hides_are_named():
    plan = read_config(PLAN)
    run = measured_as_planned(plan, {EXPOSED: 9_000_000_000})
    calls, kernels = [], []
    for rank in (0, 1):
        for step in range(3):
            kernels.append(
                {"rank": rank, "step": step, "name": "MatMul", "kind": "computing", "start_ns": step * 10**11, "duration_ns": 10}
            )
            calls.append(
                {
                    "rank": rank, "step": step, "name": "ar", "operation": "all_reduce", "group": f"g{rank}", "group_size": 8,
                    "start_ns": step * 10**11 + 20, "duration_ns": 9_000_000_000,
                }
            )  # fmt: skip
    tables = {**run.tables, "kernels": table("kernels", kernels), "collectives": table("collectives", calls)}
    found = compare(replace(run, tables=tables), plan)
    assert found.sentences[0].startswith("exposed gradient communication on stage 0 is 8.")
    assert found.sentences[0].endswith("above the plan: overlap is off")
    assert sum(part.a for part in found.parts) == found.total_a


def test_graph_dumps_say_what_appeared_and_what_went():
    before, after = DATA / "ir/silu_mul_not_in_effect.ir", DATA / "ir/silu_mul_in_effect.ir"
    there, back = compare(before, after).to_json(), compare(after, before).to_json()
    assert there["kind"] == "graphs"
    assert {entry["op"] for entry in there["added"]} == {"Mul"}
    assert len(there["added"]) == len(back["removed"]) == 2
    assert set(there["added"][0]) >= {"node", "op", "scope"}
    assert there["total"]["delta"] == -back["total"]["delta"]
    same = compare(before, before).to_json()
    assert [same[name] for name in ("added", "removed", "moved", "changed")] == [[], [], [], []]


def test_folders_of_graphs_are_paired_by_name(tmp_path):
    for side in ("old", "new"):
        for name in ("column_row.ir", "strategy_mismatch.ir"):
            (tmp_path / side).mkdir(exist_ok=True)
            (tmp_path / side / name).write_bytes((DATA / "ir" / name).read_bytes())
    document = compare(tmp_path / "old", tmp_path / "new").to_json()
    assert document["added"] == document["removed"] == []
    (tmp_path / "new" / "strategy_mismatch.ir").unlink()
    assert "1 file(s) have no partner" in compare(tmp_path / "old", tmp_path / "new").notes[0]


def test_losses_carry_the_verdict_and_the_step_times_of_the_logs(tmp_path):
    log = DATA / "traces/logs/meg_gpt2_base_n4_dp1_tp4_pp4-1809579.log"
    document = compare(log, log).to_json()
    assert (document["kind"], document["verdict"], document["max_relative"]) == ("losses", "aligned", 0.0)
    assert document["total"]["ratio"] == 1
    assert compare(log, log, kind="runs").kind == "runs"


def test_tables_of_losses_are_compared_with_logs(tmp_path):
    rows = [f"{step},{12 - step / 100}" for step in range(1, 201)]
    (tmp_path / "a.csv").write_text("step,loss\n" + "\n".join(rows))
    (tmp_path / "b.csv").write_text(
        "step,loss\n" + "\n".join(rows[:100]) + "\n" + "\n".join(f"{step},nan" for step in range(101, 201))
    )
    document = compare(tmp_path / "a.csv", tmp_path / "b.csv").to_json()
    assert (document["verdict"], document["first_divergence_step"]) == ("diverged", 101)
    assert document["total"] == {"a": None, "b": None, "delta": None, "ratio": None}
    assert compare(tmp_path / "a.csv", tmp_path / "b.csv").worse_than(1e9)


def test_what_does_not_go_together_is_refused_with_what_each_is():
    with pytest.raises(InputError, match="a plan and b is a graph dump"):
        compare(PLAN, DATA / "ir/column_row.ir")
    with pytest.raises(InputError, match="kind = 'graphs' does not fit"):
        compare(PLAN, PLAN, kind="graphs")
    with pytest.raises(InputError, match="cannot be compared"):
        compare(PLAN, 3)
    with pytest.raises(InputError, match="noise_ratio"):
        compare(PLAN, PLAN, noise_ratio=2)


def test_a_run_without_steps_is_not_measured():
    bare = Run(name="bare", kind="measured", format="test", tables={})
    with pytest.raises(NotMeasuredError, match="step times of bare"):
        compare(bare, bare)


def test_ranks_with_other_steps_are_compared_on_the_common_ones():
    run = run_of(steps_of(100_000_000), ranks=2)
    short = {name: frame[~((frame["rank"] == 1) & (frame["step"] > 7))] for name, frame in run.tables.items()}
    found = compare(run, replace(run, tables=short))
    assert found.beyond_noise is False
    assert any("4 step(s) that not all ranks recorded" in note for note in found.notes)


def test_what_was_odd_or_lost_when_a_side_was_read_stands_beside_its_figures():
    lost = Dropped("line of a step without a number", 2, "a.log", "steps")
    odd = "a.log skips 3 iteration(s), first in step 2; their time counts, and they learn nothing"
    a = replace(run_of(steps_of(10**9), name="a.log"), notes=(odd,), dropped=(lost,))
    b = run_of(steps_of(10**9, seed=1), name="b.log")
    for pair in ((a, b), (b, a), (a, read_config(PLAN))):
        told = compare(*pair, **({} if isinstance(pair[1], Run) else {"device": "Ascend-910B2"})).notes
        assert odd in told
        assert "a.log: 2 items could not be read." in told
    assert not any("could not be read" in note or "skips" in note for note in compare(b, b).notes)


@pytest.mark.parametrize("path", sorted((DATA / "traces" / "logs").rglob("*.log")), ids=lambda path: path.name)
def test_losses_are_compared_with_all_that_was_odd_in_their_logs(path):
    run = load(path)
    assert run.notes
    assert set(run.notes) <= set(compare(run, run, kind="losses").notes)


def test_losses_with_step_times_tell_which_steps_their_times_leave_out():
    run = load(next((DATA / "traces" / "logs").glob("meg*.log")))
    assert any("left out" in note for note in compare(run, run, kind="runs").notes)
    assert set(compare(run, run, kind="runs").notes) <= set(compare(run, run, kind="losses").notes)
