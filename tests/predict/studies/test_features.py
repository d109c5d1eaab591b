"""What a feature does is the difference of two predictions of whole plans, and what cannot be used says why."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from perfkit.config.presets import published_plan
from perfkit.core import catalog
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.workload import Workload
from perfkit.predict.changes import changed_plan
from perfkit.predict.estimate import estimate
from perfkit.predict.studies.features import FEATURES, features_table, features_told, parallel_features


def by_name(frame: pd.DataFrame) -> dict[str, dict]:
    return {row["feature"]: row for row in frame.to_dict("records")}


@pytest.fixture(scope="module")
def effects(plan):
    return by_name(parallel_features(plan))


def test_the_first_row_is_the_plan_itself(plan, effects):
    known = estimate(plan)
    assert effects["as planned"]["step_time_s"] == known.step_time_s
    assert effects["as planned"]["peak_memory_bytes"] == known.peak_memory_bytes


def test_every_feature_has_a_row_with_an_effect_or_a_reason(effects):
    assert set(effects) == {"as planned", *(feature.name for feature in FEATURES)}
    for name, row in effects.items():
        assert bool(row["why_not"]) == pd.isna(row["peak_memory_bytes"]), name


def test_two_stages_halve_the_static_memory_of_a_device(plan):
    """The guides' check: dp 8 to dp 8 pp 2, embedding and head apart."""
    one = replace(plan, parallel=replace(plan.parallel, pipeline_parallel_size=1))
    rows = by_name(parallel_features(one, more_devices=True))
    assert rows["pipeline parallel"]["num_devices"] == 16
    ratio = rows["pipeline parallel"]["static_bytes"] / rows["as planned"]["static_bytes"]
    assert ratio == pytest.approx(0.5, abs=0.02)


def test_devices_stay_unless_they_are_added(plan):
    rows = parallel_features(plan)
    kept = rows[~rows["feature"].isin(["data parallel"])].dropna(subset=["num_devices"])
    assert set(kept["num_devices"]) == {16}


def test_optimizer_parallel_over_part_of_the_replicas_lies_between_none_and_all(plan):
    rows = by_name(parallel_features(plan))
    none, part, whole = (rows[name]["static_bytes"] for name in ("optimizer parallel", "partly sharded optimizer", "as planned"))
    assert whole < part < none


def test_more_micro_batches_shrink_the_bubble(plan, effects):
    assert effects["gradient accumulation"]["bubble_ratio"] < effects["as planned"]["bubble_ratio"]


def test_every_feature_that_can_be_used_has_a_time_of_its_own(effects):
    planned = effects["as planned"]["step_time_s"]
    for name, row in effects.items():
        assert bool(row["why_not"]) == pd.isna(row["step_time_s"]), name
    assert effects["sequence pipeline"]["step_time_s"] != planned


def test_a_model_with_experts_can_double_its_expert_groups():
    plan = Plan(
        model=catalog.model("mixtral-8x7b"),
        workload=Workload(seq_length=4096, micro_batch_size=1, global_batch_size=256),
        parallel=ParallelPlan(data_parallel_size=8, tensor_parallel_size=4, pipeline_parallel_size=2, sequence_parallel=True),
        hardware=catalog.hardware_named("A100-80GB-SXM"),
    )
    rows = by_name(parallel_features(plan))
    assert rows["expert parallel"]["change"] == "expert_parallel_size 1 -> 2"
    assert rows["expert parallel"]["static_bytes"] < rows["as planned"]["static_bytes"]
    assert rows["sequence parallel"]["change"] == "switched off"
    assert rows["sequence parallel"]["peak_memory_bytes"] > rows["as planned"]["peak_memory_bytes"]


def test_an_odd_group_cannot_give_half_of_its_devices(plan):
    odd = replace(plan, parallel=replace(plan.parallel, data_parallel_size=1, optimizer_shard_size=1))
    assert "cannot give half" in by_name(parallel_features(odd))["tensor parallel"]["why_not"]


def test_features_are_told_and_shown_against_the_plan_as_it_is():
    found = parallel_features(changed_plan(published_plan("llama2-13b"), device="Ascend-910B2", recompute="all layers"))
    shown = features_table(found).set_index("feature")
    assert shown.loc["expert parallel", "change"] == "the model has no experts"
    assert shown.loc["gradient accumulation", "tokens_per_s_per_device_change_ratio"] > 0
    assert shown.loc["as planned", "peak_memory_bytes_change_ratio"] == 0
    sentence, *notes = features_told(found)
    assert "least memory with" in sentence
    assert any("cannot be used" in note for note in notes)
