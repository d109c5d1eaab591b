from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import perfkit
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.predict.estimate import stage_breakdowns
from perfkit.project import create_project, open_project, sample, sample_paths
from perfkit.project.experiments import ExperimentLog
from perfkit.project.sample import demo, predictions, round_plans

REPORTED = [1860, 2136, 2189, 2210, 2353, 2562]


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PERFKIT_READ_ONLY", raising=False)
    monkeypatch.delenv("PERFKIT_PROJECT", raising=False)


@pytest.fixture(scope="module")
def case() -> dict:
    return tomllib.loads((data_folder() / "case13b" / "rounds.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return demo(tmp_path_factory.mktemp("demo") / "d").folder


def _config(number: int) -> dict:
    return yaml.safe_load((data_folder() / "case13b" / f"round{number}.yaml").read_text(encoding="utf-8"))


def _contents(folder: Path) -> dict[str, bytes]:
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if "perfkit.sqlite" not in name}


def _dump(folder: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(folder / "perfkit.sqlite")) as connection:
        return list(connection.iterdump())


def test_the_ladder_of_the_guide_is_reproduced(written: Path):
    ladder = ExperimentLog(written).ladder()
    assert ladder["value"].tolist() == REPORTED
    gains_percent = [round(100 * gain, 2) for gain in ladder["gain_ratio"].tolist()[1:]]
    assert gains_percent == [14.84, 2.48, 0.96, 6.47, 8.88]
    assert set(ladder["kind"]) == {"reported"}
    assert set(ladder["verdict"]) == {"keep"}
    assert set(ladder["accuracy"]) == {"not_checked"}


def test_the_total_gain_is_37_7_percent_and_round_5_the_best(written: Path):
    document = ExperimentLog(written).show("json")
    assert document["total_gain_ratio"] == pytest.approx(0.3774, abs=5e-5)
    assert document["best_round"] == 5
    assert document["goal_met"] is True
    assert document["rounds"][5]["state"] == "done"


def test_the_predictions_are_those_of_the_estimate(written: Path):
    ladder = ExperimentLog(written).ladder()
    device = catalog.hardware_named("Ascend-910B2")
    plans = [
        replace(perfkit.read_config(written / "rounds" / f"{number:02d}" / "config.yaml"), hardware=device) for number in range(6)
    ]
    expected = [perfkit.estimate(plan).tokens_per_s_per_device for plan in plans]
    assert ladder["prediction"].tolist()[1:] == pytest.approx(expected[1:])
    assert ladder["prediction"].isna().tolist() == [True] + [False] * 5
    assert ladder["error_ratio"].tolist()[1] == pytest.approx(-0.057, abs=0.02)  # counting layers alone was at -14.3 %
    assert ladder["error_ratio"][1:].abs().max() < 0.08
    assert (ladder["prediction_low"][1:] < ladder["prediction"][1:]).all()
    assert (ladder["prediction_high"][1:] > ladder["prediction"][1:]).all()


def test_round_3_is_within_the_noise_and_the_others_are_not(written: Path):
    assert ExperimentLog(written).ladder()["beyond_noise"].tolist()[1:] == [True, True, False, True, True]


def test_the_stages_of_a_round_each_take_its_estimated_step():
    for plan, predicted in zip(round_plans(), predictions(), strict=True):
        stages = stage_breakdowns(plan)
        assert len(stages) == plan.parallel.pipeline_parallel_size
        assert [stage.total for stage in stages] == pytest.approx([predicted.step_time_s] * len(stages))
        assert any(stage.parts == pytest.approx(predicted.breakdown.parts) for stage in stages)


def test_the_stage_that_computes_most_again_is_the_one_of_the_published_lists():
    again = [[stage.amount("computing/recompute") for stage in stage_breakdowns(plan)] for plan in round_plans()]
    assert again[1][0] == pytest.approx(again[1][1])  # all layers of both
    assert again[3][0] > 5 * again[3][1]  # the twenty patterns on stage 0 alone
    assert max(map(sum, again[2:])) < sum(again[1])


@pytest.mark.parametrize(
    ("number", "devices", "changes"),
    [
        (1, 16, {"runner_config.batch_size", "parallel_config.pipeline_stage", "parallel_config.micro_batch_num"}),
        (5, 16, {"recompute_config.recompute", "context.max_device_memory"}),
    ],
)
def test_only_the_keys_of_a_round_differ_from_the_round_before(written: Path, number: int, devices: int, changes: set[str]):
    log = ExperimentLog(written)
    assert {row["key"] for row in log.diff(number - 1, number)} == changes
    assert log.show("json")["rounds"][number]["configs"][0]["devices"] == devices


def test_the_recompute_settings_are_those_of_the_case():
    selective, per_stage, fused, final = (_config(number)["recompute_config"] for number in (2, 3, 4, 5))
    assert len(selective["select_recompute"]) == 20
    assert list(per_stage["select_recompute"]) == selective["select_recompute"]
    assert sorted(map(tuple, per_stage["select_recompute"].values())) == [(20, 0)] * 17 + [(20, 8)] * 3
    assert (fused["recompute"], final["recompute"]) == ([13, 5], [4, 0])
    assert len(final["select_recompute"]) == 4
    assert _config(0)["recompute_config"]["recompute"] is True


def test_every_round_has_a_global_batch_of_1024_from_round_1_on():
    for number in range(1, 6):
        config = _config(number)
        parallel = config["parallel_config"]
        assert config["runner_config"]["batch_size"] * parallel["data_parallel"] * parallel["micro_batch_num"] == 1024
        assert config["model"]["model_config"]["seq_length"] == 4096


def test_the_project_opens_with_goal_limits_and_what_to_look_at(written: Path):
    project = open_project(written)
    assert (project.goal_value, project.peak_flops_per_s) == (2562.0, 376e12)
    assert project.usable_limit_bytes == 59392 * 2**20
    assert project.open_round == 5
    assert project.open_config is not None
    assert project.open_config.read_bytes() == (data_folder() / "case13b" / "round5.yaml").read_bytes()
    assert project.warnings == ()


def test_the_bundled_profile_and_log_are_copied_and_opened(written: Path):
    paths = sample_paths(open_project(written))
    assert set(paths) == {"profile", "log"}
    assert open_project(written).open_run == paths["profile"]
    assert "ascend_pt" in " ".join(path.name for path in paths["profile"].iterdir())
    assert paths["log"].read_bytes() == (data_folder() / sample.SAMPLES["log"]).read_bytes()


def test_a_second_call_changes_nothing_and_two_demos_are_equal(written: Path, tmp_path: Path):
    before = _contents(written), _dump(written)
    assert demo(written) == open_project(written)
    assert (_contents(written), _dump(written)) == before
    other = demo(tmp_path / "other").folder
    assert (_contents(other), _dump(other)) == before


def test_a_demo_that_was_changed_by_hand_is_left_as_it_is(tmp_path: Path):
    folder = demo(tmp_path).folder
    text = (folder / "perfkit.toml").read_text(encoding="utf-8").replace("2562.0", "3000.0")
    (folder / "perfkit.toml").write_text(text, encoding="utf-8")
    assert demo(folder).goal_value == 3000.0


def test_a_folder_with_other_files_is_refused_untouched(tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match=r"is not empty \(thesis.txt\)"):
        demo(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_project_of_its_own_is_refused_untouched(tmp_path: Path):
    create_project(tmp_path, "my work")
    with pytest.raises(InputError, match="'my work'"):
        demo(tmp_path)
    assert not (tmp_path / "perfkit.sqlite").exists()
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="cannot be used as a folder"):
        demo(tmp_path / "file")


def test_a_call_that_fails_halfway_leaves_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(sample, "_write_rounds", fail)
        with pytest.raises(InputError, match="No space left"):
            demo(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert demo(tmp_path).open_round == 5


def test_a_missing_sample_is_said_and_the_rounds_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shutil.copytree(data_folder() / "case13b", tmp_path / "data" / "case13b")
    monkeypatch.setattr(sample, "data_folder", lambda: tmp_path / "data")
    project = demo(tmp_path / "d")
    assert project.open_run is None
    assert len(project.warnings) == 2
    assert len(ExperimentLog(project.folder).ladder()) == 6


def test_read_only_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERFKIT_READ_ONLY", "1")
    with pytest.raises(InputError, match="PERFKIT_READ_ONLY"):
        demo(tmp_path)


def test_the_public_name_is_the_function_however_often_it_is_used():
    assert perfkit.demo is demo
    assert perfkit.demo is demo
    assert perfkit.ExperimentLog is ExperimentLog


@pytest.mark.parametrize("number", range(6))
def test_every_configuration_of_the_case_reads_without_unknown_keys(number: int):
    plan = perfkit.read_config(data_folder() / "case13b" / f"round{number}.yaml")
    assert plan.num_devices == (8 if number == 0 else 16)
    assert plan.workload.global_batch_size == (16 if number == 0 else 1024)
    assert plan.document.unknown == ()


def test_the_opened_profile_is_the_one_whose_step_is_136_581_ms(written: Path):
    run = perfkit.load(open_project(written).open_run)
    assert run.steps()["duration_ns"].tolist()[0] == pytest.approx(136_581_000, rel=1e-6)
    assert run.ranks == (0, 1)
