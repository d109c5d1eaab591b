"""Pages 01, 06, 10 and 21 in this order tell one cycle: on the sample project, and on a job of one's own by changing one cell."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from perfkit.core.resources import data_folder
from perfkit.core.units import NS_PER_MS, NS_PER_S
from perfkit.face.cli import main
from perfkit.project import create_project, open_project
from perfkit.project.experiments import ExperimentLog
from perfkit.project.sample import demo
from tests.page_cells import run_page

DEVICE = ("--device", "Ascend-910B2")
LINE = (
    " iteration {step:8d}/      20 | consumed samples: 40 | elapsed time per iteration (ms): {ms} | learning rate: 1.500E-04 | "
    "global batch size:    16 | lm loss: {loss} | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)


def asked(*words: str | Path) -> Any:
    """What the command line prints as JSON."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main([*map(str, words), "--json"]) == 0
    return json.loads(out.getvalue())


def durations_ns(run: Any) -> dict[int, list[int]]:
    return {one["rank"]: [step["duration_ns"] for step in one["steps"]] for one in run["ranks"]}


def test_on_the_sample_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    project = demo(tmp_path / "demo")
    monkeypatch.setenv("PERFKIT_PROJECT", str(project.folder))
    first = run_page("01_baseline")
    (steps,) = durations_ns(asked("summary", first["open_log"].path)).values()
    assert first["log"]["duration_ns"].tolist() == steps
    assert min(steps) <= first["baseline"].step_time.value <= max(steps)

    planned = run_page("06_pipeline_balance")
    predicted = asked("estimate", planned["open_plan"].path, *DEVICE)
    assert planned["how_long_a_step"].value[0].step_time_s == pytest.approx(predicted["step_time_s"], rel=1e-9)

    recorded = run_page("10_load_run")
    told = asked("summary", recorded["open_run"].path)
    assert recorded["run"].frame("steps").groupby("rank")["duration_ns"].apply(list).to_dict() == durations_ns(told)

    compared = run_page("21_compare")
    places = compared["open_a"].path, compared["open_b"].path
    assert compared["comparison"].to_json()["total"] == asked("compare", *places, *DEVICE)["total"]
    assert Path(places[1]).read_bytes() == Path(planned["open_plan"].path).read_bytes(), "what page 06 plans is the newer side here"
    assert compared["comparison"].to_json()["total"]["b"] == pytest.approx(predicted["step_time_s"], rel=1e-9)
    rounds = ExperimentLog(project.folder, read_only=True).show("json")["rounds"]
    assert compared["what_the_round_has_to_show"].wait().text.startswith(f"All {len(rounds)} rounds are decided")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A job of one's own: its log and recording, and configuration and recording after everything recomputed is kept instead."""
    folder = tmp_path_factory.mktemp("job")
    found = {"log": folder / "train.log"}
    configuration = yaml.safe_load((data_folder() / "case13b" / "round1.yaml").read_text(encoding="utf-8"))
    configuration["parallel_config"] |= {"data_parallel": 2, "micro_batch_num": 8}
    configuration["model"]["model_config"]["num_layers"] = 8
    for name, recompute in (("old", True), ("new", False)):
        configuration["recompute_config"]["recompute"] = recompute
        found[f"{name}_plan"], found[name] = folder / f"{name}.yaml", folder / name
        found[f"{name}_plan"].write_text(yaml.safe_dump(configuration), encoding="utf-8")
        asked("simulate", found[f"{name}_plan"], *DEVICE, "--no-cost", "--steps", "4", "--out", found[name])
    step_ms = durations_ns(asked("summary", found["old"]))[0][-1] / NS_PER_MS
    found["log"].write_text("".join(LINE.format(step=step, ms=step_ms, loss=9 - step / 10) for step in range(1, 21)))
    return found


def test_on_a_job_of_ones_own_by_changing_one_cell(job: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    project = create_project(tmp_path / "own", "own", goal_metric="step_time_ns")
    monkeypatch.setenv("PERFKIT_PROJECT", str(project.folder))
    log = ExperimentLog(project.folder)
    log.set_project("own", goal_metric="step_time_ns")
    log.start("as it is", "the job before anything is changed")

    first = run_page("01_baseline", path=job["log"])
    assert "Saved to round 0" in first["baseline_of_the_project"].press().wait().text
    before_ns = first["baseline"].step_time.value
    assert before_ns == pytest.approx(asked("summary", job["old"])["ranks"][0]["steps"][-1]["duration_ns"], abs=NS_PER_MS)
    log.record_accuracy(0, "not_checked", note="nothing was changed yet")
    log.decide(0, "keep", "it is what the others are measured against", confirmation="not checked")
    log.start("keep all activations", "nothing is computed twice, and memory is free")

    planned = run_page("06_pipeline_balance", path=job["new_plan"])
    predicted_s = asked("estimate", job["new_plan"], *DEVICE)["step_time_s"]
    assert planned["how_long_a_step"].value[0].step_time_s == pytest.approx(predicted_s, rel=1e-9)
    assert "Round 1 now predicts" in planned["what_the_round_predicts"].press().wait().text
    assert predicted_s * NS_PER_S < before_ns

    recorded = run_page("10_load_run", path=job["new"])
    assert open_project(project.folder).open_run == job["new"]
    assert recorded["run"].frame("steps").groupby("rank")["duration_ns"].apply(list).to_dict() == durations_ns(
        asked("summary", job["new"])
    )

    compared = run_page("21_compare", old_path=job["old"], path=job["new"])
    total = compared["comparison"].to_json()["total"]
    assert total == asked("compare", job["old"], job["new"])["total"]
    assert total["a"] == pytest.approx(before_ns, rel=0.02), "the old side is the step with which page 01 began"
    assert total["b"] == pytest.approx(predicted_s * NS_PER_S, rel=0.02), "the new side is what page 06 predicted"
    assert compared["what_the_round_has_to_show"].wait().text.startswith("Round 1 (keep all activations) waits for its decision")
    decision = compared["decision_of_the_round"]
    decision.set(verdict="revert", reason="the losses were not compared yet")
    assert decision.press().wait().text == "Round 1 is decided: revert."
