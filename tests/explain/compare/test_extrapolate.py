"""A short profile and the whole plan: what the recording says is true of the whole, and what it cannot say is refused or named."""

from __future__ import annotations

import json
from dataclasses import replace

import pandas as pd
import pytest

from perfkit.config.dialects import read_config, write_config
from perfkit.config.dialects.table import read_table
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.relaid import relaid
from perfkit.explain.compare.extrapolate import INTERVAL, extrapolate
from perfkit.face import cli
from perfkit.predict.calibration import calibration
from perfkit.predict.estimate import estimate
from perfkit.predict.simulate import simulate
from perfkit.record.run_folder import write_run
from tests.explain.compare.test_compare import measured_as_planned, run_of

WHOLE = replace(read_config(data_folder() / "configs" / "llama2_13b.toml"), recompute=RecomputePlan(), document=None)


def scaled_down(layers: int, batch: int):
    model = replace(WHOLE.model, num_layers=layers)
    small = replace(
        WHOLE, parallel=replace(WHOLE.parallel, layers_per_stage=None), workload=replace(WHOLE.workload, global_batch_size=batch)
    )
    sizes = {"data_parallel_size": 2, "pipeline_parallel_size": 1, "optimizer_shard_size": 2}
    return relaid(replace(small, model=model), **sizes)


SMALL = scaled_down(4, 8)


@pytest.mark.parametrize("path", ["compute", "memory", "communication"])
def test_a_cluster_that_is_slower_in_one_way_is_predicted_by_its_short_profile(path):
    start = calibration("default")
    slower = start.with_values({f"common.{path}": start.value(f"common.{path}") * (0.7 if path == "memory" else 1.4)})
    if path == "compute":
        slower = slower.with_values({"stack.mindspore.compute": start.value("stack.mindspore.compute") * 1.4})
    run = simulate(SMALL, calibration=slower, steps=2)
    found = extrapolate(run, SMALL, WHOLE)
    truth = estimate(WHOLE, calibration=slower).step_time_s
    before, after = (abs(one.step_time_s / truth - 1) for one in (found.plain, found.estimate))
    assert after < 0.04
    assert after <= before + 1e-6
    assert found.estimate.interval_s == pytest.approx([bound * found.estimate.step_time_s for bound in INTERVAL])


def test_a_run_as_planned_changes_nothing():
    found = extrapolate(measured_as_planned(SMALL, {}), SMALL, WHOLE)
    assert found.estimate.step_time_s == pytest.approx(found.plain.step_time_s, rel=1e-3)
    assert found.estimate.memory == found.plain.memory
    assert found.estimate.breakdown.total == pytest.approx(found.estimate.step_time_s)


def test_waiting_for_the_host_comes_again_for_every_layer_and_micro_batch():
    found = extrapolate(measured_as_planned(SMALL, {"free": 8_000_000}), SMALL, WHOLE)
    passes = [plan.model.num_layers / plan.parallel.pipeline_parallel_size * plan.num_micro_batches for plan in (SMALL, WHOLE)]
    more = found.estimate.step_time_s - found.plain.step_time_s
    assert more == pytest.approx(0.009 * passes[1] / passes[0] - 0.001, rel=0.12)


def test_what_the_recording_cannot_say_is_named():
    found = extrapolate(simulate(SMALL, steps=2), SMALL, WHOLE)
    assert found.not_recorded == ("communication/exposed/pp",)
    assert found.told()[0].startswith("The profiled step takes")


def test_plans_that_are_not_of_one_stack_are_refused_with_all_reasons():
    other = replace(SMALL, workload=replace(SMALL.workload, dtype="float16"), hardware=None)
    with pytest.raises(InputError) as refused:
        extrapolate(
            measured_as_planned(SMALL, {}),
            SMALL,
            replace(WHOLE, workload=replace(WHOLE.workload, dtype="float16"), hardware=other.hardware),
        )
    assert any("dtype" in problem for problem in refused.value.problems)
    assert any("hardware" in problem for problem in refused.value.problems)


def test_measured_steps_of_few_devices_predict_those_of_many():
    """Every family of the TPU rows: the smallest job stands for a profile of which only the step is known."""
    table = read_table(pd.read_csv(data_folder() / "reference" / "step_time_new.csv"))
    frame = pd.read_csv(data_folder() / "reference" / "step_time_new.csv").iloc[table.rows].reset_index(drop=True)
    rows = frame[frame["source"] == "tpu-recipes"]
    before, after, inside = [], [], []
    for _, family in rows.groupby(["model", "accelerator", "precision"]):
        first, *others = family.sort_values("n_devices").index
        step = run_of([{"step": round(1e9 * frame["step_time_s"][first])}])
        for other in others:
            truth = frame["step_time_s"][other]
            found = extrapolate(step, table.plans.plan(first), table.plans.plan(other))
            before.append(abs(found.plain.step_time_s / truth - 1))
            after.append(abs(found.estimate.step_time_s / truth - 1))
            inside.append(found.estimate.interval_s[0] <= truth <= found.estimate.interval_s[1])
    assert len(after) > 8
    assert sum(after) / len(after) < 0.05
    assert sum(after) < 0.7 * sum(before)
    assert sum(inside) / len(inside) >= 0.75


def test_the_command_says_what_the_profile_changes(tmp_path, capsys):
    slower = calibration("default").with_values({"stack.mindspore.compute": 1.25})
    write_run(simulate(SMALL, calibration=slower, steps=2), tmp_path / "profile")
    small, whole = tmp_path / "small.toml", tmp_path / "whole.toml"
    for path, plan in ((small, SMALL), (whole, WHOLE)):
        path.write_text(write_config(plan, dialect="perfkit").text, encoding="utf-8")
    call = ["estimate", str(whole), "--profile", str(tmp_path / "profile"), "--profiled-plan", str(small)]
    assert cli.main([*call, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["step_time_s"] == pytest.approx(estimate(WHOLE, calibration=slower).step_time_s, rel=0.03)
    assert told["profile"]["without_it_s"] == pytest.approx(estimate(WHOLE).step_time_s, rel=1e-6)
    assert cli.main(call) == 0
    assert "So the whole plan takes" in capsys.readouterr().out
    assert cli.main(call[:-2]) == 2
    assert "--profiled-plan" in capsys.readouterr().err
