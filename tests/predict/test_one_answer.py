"""One plan, one answer: rows, plans and strategies of a search give the same time and memory, and no free word changes it."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from perfkit.config.dialects import read_text, write_config
from perfkit.config.dialects.table import row_of
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.plan_columns import FIELDS, Coded, PlanColumns
from perfkit.core.resources import data_folder
from perfkit.predict.estimate import NO_SCHEDULE, estimate, estimate_table, estimates
from perfkit.predict.plans.schedule import order
from perfkit.predict.plans.search.search import search_plans
from perfkit.predict.unstated import read_table
from tests.predict.random_plans import adapted_plans, random_plans

TABLES = ("step_time.csv", "step_time_new.csv", "memory.csv")
FREE = ("note", "source", "source_path", "recompute_detail", "split", "family", "site", "exclude_reason")
WORDS = "MindSpore, deepspeed, FSDP, PURE; 1x1 Gb/s per node; Omni-Path; expert tensor parallel 4; transformer-impl local; rope"


def reference(name: str) -> pd.DataFrame:
    return pd.read_csv(data_folder() / "reference" / name)


@pytest.fixture(scope="module")
def plans():
    return [*random_plans(700), *adapted_plans(120)]


@pytest.mark.parametrize("name", TABLES)
def test_a_row_and_its_plan_have_the_same_columns(name):
    table = read_table(reference(name))
    columns = PlanColumns.of([table.plans.plan(row) for row in range(len(table.rows))])
    for field in FIELDS:
        found, again = getattr(table.plans, field), getattr(columns, field)
        if isinstance(found, Coded):
            assert [found[row] for row in range(len(found))] == [again[row] for row in range(len(found))], field
        else:
            np.testing.assert_array_equal(found, again, err_msg=field)


@pytest.mark.parametrize("name", TABLES)
def test_a_row_is_predicted_as_its_plan_is(name):
    frame = reference(name).drop(columns=["memory_kind", "memory_scope"], errors="ignore")
    found, table = estimate_table(frame), read_table(frame)
    priced = [place for place, row in enumerate(table.rows) if not np.isnan(found["step_time_s"].iloc[row])]
    alone = estimates([table.plans.plan(place) for place in priced])
    rows = found.iloc[table.rows[priced]]
    np.testing.assert_allclose(rows["step_time_s"], [one.step_time_s for one in alone], rtol=1e-9)
    np.testing.assert_allclose(rows["peak_memory_bytes"], [one.peak_memory_bytes for one in alone], rtol=1e-6)
    np.testing.assert_allclose(rows["hfu"], [one.hfu for one in alone], rtol=1e-9)
    np.testing.assert_allclose(rows["step_time_low_s"], [one.interval_s[0] for one in alone], rtol=1e-9)


def test_plans_written_as_a_table_read_and_are_predicted_as_they_are(plans):
    frame = pd.read_csv(io.StringIO(pd.DataFrame(map(row_of, plans)).to_csv(index=False)))
    table = read_table(frame)
    assert [table.plans.plan(row) for row in range(len(table.rows))] == plans
    found, alone = estimate_table(frame), estimates(plans)
    np.testing.assert_allclose(found["step_time_s"], [one.step_time_s for one in alone], rtol=1e-9)
    np.testing.assert_allclose(found["peak_memory_bytes"], [one.peak_memory_bytes for one in alone], rtol=1e-6)


def test_one_plan_alone_is_predicted_as_among_others(plans):
    many = estimates(plans[:200])
    for plan, among in zip(plans[:200], many, strict=True):
        alone = estimate(plan)
        assert alone.step_time_s == pytest.approx(among.step_time_s, rel=1e-12)
        assert alone.memory == among.memory


@pytest.mark.parametrize("name", TABLES)
def test_words_of_free_text_change_nothing(name):
    frame = reference(name)
    blank, other = ({column: text for column in FREE if column in frame} for text in ("", WORDS))
    found = estimate_table(frame)
    pd.testing.assert_frame_equal(found, estimate_table(frame.assign(**blank)))
    pd.testing.assert_frame_equal(found, estimate_table(frame.assign(**other, model=WORDS)))


@pytest.mark.parametrize("device", ["Ascend-910B2", "A100-80GB-SXM"])
def test_a_strategy_of_a_search_is_predicted_as_its_plan_and_its_row(device):
    drawn = random_plans(1)[0]
    dense = {"model": catalog.model("llama2-7b"), "parallel": replace(drawn.parallel, expert_parallel_size=1)}
    base = replace(drawn, **dense, hardware=catalog.hardware_named(device))
    base = replace(base, workload=replace(base.workload, seq_length=4096, micro_batch_size=1, global_batch_size=64))
    ranked = search_plans(base, devices=16, top=12).plans
    rows = estimate_table(pd.DataFrame([row_of(found.plan) for found in ranked]))
    assert len(ranked) >= 8
    for found, (_, row) in zip(ranked, rows.iterrows(), strict=True):
        alone = estimate(found.plan)
        assert found.estimate.step_time_s == pytest.approx(alone.step_time_s, rel=1e-9)
        assert found.estimate.peak_memory_bytes == alone.peak_memory_bytes
        assert row["step_time_s"] == pytest.approx(alone.step_time_s, rel=1e-9)
        assert row["peak_memory_bytes"] == pytest.approx(alone.peak_memory_bytes, rel=1e-6)


@pytest.mark.parametrize("zero", [2, 3])
def test_shared_parameters_of_a_row_need_what_their_plan_needs(zero):
    row = {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn_hidden": 14336, "vocab": 128256, "seq_len": 8192}
    row |= {"accelerator": "A100-80GB-SXM", "n_devices": 64, "dp": 64, "zero_stage": zero, "micro_batch": 1, "global_batch": 64}
    row["recompute"] = "none"
    shared, whole = (estimate_table(pd.DataFrame([{**row, "zero_stage": stage}])).iloc[0] for stage in (zero, 0))
    plan = read_table(pd.DataFrame([row])).plans.plan(0)
    assert shared["peak_memory_bytes"] == pytest.approx(estimate(plan).peak_memory_bytes)
    assert shared["peak_memory_bytes"] < 0.5 * whole["peak_memory_bytes"]


@pytest.mark.parametrize("framework", ["megatron", "fsdp", "mindspore"])
def test_the_program_that_is_stated_decides_the_time_as_it_decides_the_memory(framework):
    row = {
        "layers": 32,
        "hidden": 4096,
        "heads": 32,
        "ffn_hidden": 11008,
        "vocab": 32000,
        "seq_len": 4096,
        "dp": 16,
        "tp": 1,
        "pp": 1,
    }
    row |= {"accelerator": "A100-80GB-SXM", "zero_stage": 3, "global_batch": 64, "micro_batch": 1}
    usual, stated = (estimate_table(pd.DataFrame([{**row, "framework": name}])) for name in ("", framework))
    assert (usual["step_time_s"].equals(stated["step_time_s"])) == (framework == "fsdp")
    plan = read_table(pd.DataFrame([{**row, "framework": framework}])).plans.plan(0)
    assert estimate(plan).step_time_s == pytest.approx(stated["step_time_s"].item(), rel=1e-12)


def test_a_table_of_one_row_is_a_configuration():
    plan = random_plans(5)[4]
    written = write_config(plan, dialect="table")
    assert written.lost == ()
    again = read_text(written.text, "plan.csv")
    assert replace(again, document=None) == plan
    changed = replace(again, workload=replace(again.workload, seq_length=2 * again.workload.seq_length))
    assert replace(read_text(changed.write().text, "plan.csv"), document=None) == replace(changed, document=None)


def test_a_table_of_several_rows_is_no_configuration():
    text = pd.DataFrame(map(row_of, random_plans(2))).to_csv(index=False)
    with pytest.raises(InputError, match="2 rows"):
        read_text(text, "plans.csv")


def test_a_plan_that_no_schedule_runs_is_told_through_every_door(plans):
    """What the exact schedule refuses has a predicted time, which then is that of no step."""
    refused, drawn = 0, plans[:300]
    notes = estimate_table(pd.DataFrame(map(row_of, drawn)), memory=False)["note"]
    for plan, found, noted in zip(drawn, estimates(drawn), notes, strict=True):
        try:
            order.lane_table("vpp" if chunks_of(plan) > 1 else "1f1b", stages_of(plan), chunks_of(plan), plan.num_micro_batches)
            possible = True
        except InputError:
            possible = False
            refused += 1
        assert (NO_SCHEDULE in found.warnings, NO_SCHEDULE in noted) == (not possible, not possible)
    assert refused > 5


def chunks_of(plan):
    return plan.parallel.virtual_pipeline_parallel_size if stages_of(plan) > 1 else 1


def stages_of(plan):
    return plan.parallel.pipeline_parallel_size
