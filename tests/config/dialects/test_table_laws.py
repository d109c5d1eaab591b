"""Laws of a table of plans: a row says one thing or is refused, what it leaves open is told, and an edit reads as it was meant."""

from __future__ import annotations

import io
from dataclasses import replace
from itertools import product

import pandas as pd
import pytest

from perfkit.config.dialects import read_text
from perfkit.config.dialects.table import PlanTable, read_table, row_of
from perfkit.config.dialects.table_file import read_frame
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.software import OVERLAPS
from perfkit.predict.estimate import estimate, estimate_table
from tests.predict.random_plans import random_plans

ROW = {
    "layers": 8,
    "hidden": 1024,
    "heads": 8,
    "ffn_hidden": 4096,
    "vocab": 32000,
    "seq_len": 1024,
    "tp": 1,
    "pp": 2,
    "dp": 4,
    "accelerator": "A100-80GB-SXM",
}
DEVICES = ("A100-80GB-SXM", "Ascend-910B2")
DEEP = ("[" * 100_000, '{"a":' * 50_000, "[1,0,0,0]", "²", "9" * 5000, "1e9", "[[1]]", "true", "[true]", "{}", "[[]]")


def table(**cells: object) -> PlanTable:
    return read_table(pd.DataFrame([{**ROW, **cells}]))


@pytest.mark.parametrize("shape", [{}, {"layers": 1, "pp": 4}, {"layers_per_stage": "[6,2]"}], ids=["even", "too few", "by hand"])
@pytest.mark.parametrize("column", ["full_layers", "communication", "swapped_layers", "operators", "layers_per_stage"])
def test_no_text_of_counts_is_more_than_a_problem_of_its_row(column, shape):
    frame = pd.DataFrame([{**ROW, **shape, column: text} for text in (*DEEP, "")])
    found = read_table(frame)
    assert len(found.problems) + len(found.plans) == len(frame)
    assert {0, 1} <= set(found.problems)


SWITCH = ("", 0, 1)


@pytest.mark.parametrize("device", DEVICES)
def test_a_word_for_what_is_recomputed_and_the_switches_beside_it_agree_or_are_refused(device):
    rows = list(product(("", "none", "selective", "full"), SWITCH, SWITCH, ("", "2"), ("", '{"feed_forward.mul": "1"}')))
    names = ("recompute", "all_layers", "attention_core", "full_layers", "operators")
    frame = pd.DataFrame([{**ROW, "accelerator": device, **dict(zip(names, cells, strict=True))} for cells in rows]).astype(str)
    found = read_table(frame)
    assert 10 < len(found.rows) < len(rows)
    for place, row in enumerate(found.rows.tolist()):
        word, every, core, layers, _ = rows[row]
        recompute = found.plans.plan(place).recompute
        assert every == "" or recompute.all_layers == bool(every), rows[row]
        assert core == "" or recompute.attention_core == bool(core), rows[row]
        nothing = recompute == RecomputePlan() or not any((recompute.all_layers, recompute.attention_core, recompute.all_counts))
        assert (word != "none") or nothing, rows[row]
        assert word != "full" or recompute.all_layers or layers, rows[row]
        assert word != "selective" or not (recompute.all_layers or nothing), rows[row]


@pytest.mark.parametrize("release", ["1.10", "2.10", "1.1", "0.7"])
@pytest.mark.parametrize("column", ["software_release", "Release"])
def test_a_release_in_a_file_stays_as_it_is_written(column, release):
    text = pd.DataFrame([{**ROW, column: release}, {**ROW, column: ""}]).to_csv(index=False)
    assert [read_table(read_frame("a.csv", text)).plans.release[row] for row in (0, 1)] == [release, ""]


@pytest.mark.parametrize(
    ("cells", "level", "told"),
    [
        ({"optimizer_shard_level": 3}, 3, ["optimizer_weight_shard_size = 4"]),
        ({"framework": "fsdp"}, 3, ["zero = 3, which fsdp shares", "optimizer_weight_shard_size = 4"]),
        ({"framework": "fsdp", "optimizer_shard_level": 2}, 2, ["optimizer_weight_shard_size = 4"]),
        ({"zero_stage": 1}, 1, []),
        ({"sharding": "fsdp"}, 3, []),
        ({}, 0, ["zero = 0"]),
        ({"dp": ""}, 0, ["dp = 1"]),
        ({"dp": "", "n_devices": 8}, 0, ["zero = 0"]),
    ],
    ids=str,
)
def test_what_replicas_share_is_stated_or_told(cells, level, told):
    found = table(**cells)
    parallel = found.plans.plan(0).parallel
    shared = parallel.optimizer_shard_level if parallel.optimizer_shard_size > 1 else 0
    assert shared == level
    assert [note for note in found.assumed[0] if note.startswith(("zero", "optimizer_weight", "dp"))] == told


@pytest.mark.parametrize("cells", [{"sharding": "fsdp"}, {"zero_stage": 2}])
def test_a_word_for_sharing_contradicts_a_group_of_one(cells):
    (problem,) = table(**cells, optimizer_shard_size=1).problems[0]
    assert "contradicts optimizer_shard_size = 1; nearest is optimizer_shard_size = 4" in problem


def test_what_a_plan_assumes_of_its_program_is_in_the_note_of_its_row():
    plans = random_plans(60)
    notes = estimate_table(pd.DataFrame(map(row_of, plans)), memory=False)["note"]
    for plan, note in zip(plans, notes, strict=True):
        wanted = [one for one in estimate(plan).assumed if one.field in ("framework", "release", "parameter_dtype", *OVERLAPS)]
        assert wanted
        for one in wanted:
            assert f"{one.field} = {'as usual' if one.value is None else one.value}" in note


EDITS = [
    *({f"{name}_parallel_size": 2} for name in ("tensor", "context", "data")),
    {"tensor_parallel_size": 2, "data_parallel_size": 2},
    {"pipeline_parallel_size": 1},
]


@pytest.mark.parametrize("cells", [{"n_devices": 8}, {"n_devices": 8, "dp": ""}, {"recompute": "selective"}, {}], ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_a_row_is_rewritten_for_any_other_split_and_recomputation(cells, device):
    text = pd.DataFrame([{**ROW, "global_batch": 64, "accelerator": device, **cells}]).to_csv(index=False)
    plan = read_text(text, "plan.csv")
    changed = [replace(plan, parallel=replace(plan.parallel, **sizes), recompute=RecomputePlan()) for sizes in EDITS]
    changed += [replace(plan, recompute=kind) for kind in (RecomputePlan(all_layers=True), RecomputePlan(full_layers=((1, 1),)))]
    for one in changed:
        assert plain(read_text(one.write().text, "plan.csv")) == plain(one)


def plain(plan: Plan) -> Plan:
    return replace(plan, document=None)


def test_a_frame_of_numbers_and_a_file_of_them_read_alike():
    frame = pd.DataFrame([{**ROW, "accelerator": name} for name in DEVICES])
    again = pd.read_csv(io.StringIO(frame.to_csv(index=False)))
    assert [read_table(one).plans.plan(1) for one in (frame, again)] == [read_table(frame).plans.plan(1)] * 2
