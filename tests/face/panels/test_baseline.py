"""Page 01 without a browser: the published log, its denominators, and what it saves."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.face.panels import baseline
from perfkit.face.widgets.status import NothingYet
from perfkit.predict.cost.utilization import tokens_per_s_per_device
from perfkit.project import create_project
from perfkit.project.experiments import ExperimentLog
from perfkit.record.load import load

LOG = data_folder() / "traces" / "logs" / "llama2_13b_8card_worker_0.log"
STATE = baseline.State(log=str(LOG))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))
    return create_project(tmp_path, "made by a test", peak_flops_per_s=376e12)


def test_the_published_log_gives_its_published_figures():
    result = baseline.compute(STATE)
    assert result.found.log["duration_ns"].tolist() == [ms * 1_000_000 for ms in (103_328, 1752, 1754, 1756, 1758)]
    assert result.found.suggested_warmup == 1
    assert result.found.statistics.median_ns == 1_755_000_000
    assert result.found.flops_per_s_per_device.value == pytest.approx(170.421e12)
    assert result.found.mfu.value == pytest.approx(170.421 / 376, rel=1e-6)
    assert baseline.compute(replace(STATE, peak_tflops_per_s=313.0)).found.mfu.value == pytest.approx(0.5445, rel=1e-3)


def test_keeping_the_compile_step_is_possible_and_warned_about():
    result = baseline.compute(replace(STATE, suggest=False, num_warmup=0))
    assert result.found.statistics.median_ns == 1_756_000_000
    notes = baseline.view(result).whole().notes
    assert any("59 times the median" in note for note in notes)
    assert "Suggested warm-up: 1 steps." in notes


def test_what_nothing_states_is_not_known_and_never_zero():
    result = baseline.compute(STATE)
    figures = baseline.view(result).whole().tables["figures"].frame.set_index("quantity")
    assert figures.loc["devices", "value"] == "not known"
    assert "not measured" in figures.loc["throughput", "value"].tolist()
    assert result.found.tokens_per_s_per_device.state == "absent"


def test_entered_sizes_divide_by_all_devices():
    state = replace(STATE, num_devices=8, global_batch_size=8, seq_length=4096, model="llama2-13b")
    result = baseline.compute(state)
    assert result.found.tokens_per_s_per_device.value == pytest.approx(tokens_per_s_per_device(8, 4096, 1.755, 8))
    assert result.found.mfu.value == pytest.approx(87.176e9 * result.found.tokens_per_s_per_device.value / 376e12, rel=1e-4)
    assert f"{result.found.mfu.value * 100:.1f}" in baseline.view(result).whole().text


def test_an_impossible_mfu_is_flagged():
    result = baseline.compute(replace(STATE, num_devices=8, global_batch_size=64, seq_length=4096, model="llama2-13b"))
    assert result.found.mfu.state == "impossible"
    assert result.found.mfu.value > 1
    assert any("impossible" in note for note in baseline.view(result).whole().notes)


def test_a_configuration_gives_what_the_log_leaves_out():
    config = sorted((data_folder() / "case13b").glob("round0.yaml"))[0]
    result = baseline.compute(replace(STATE, config=str(config)))
    assert result.found.sizes["num_devices"].value == 8
    assert result.found.sizes["num_devices"].source == "round0.yaml"
    assert result.plan is not None


def test_a_profile_is_no_log_and_the_page_says_where_to_go():
    with pytest.raises(NotMeasuredError, match="page 11"):
        baseline.compute(replace(STATE, log=str(data_folder() / "traces" / "torch_npu_2rank")))


def test_no_log_is_an_empty_page():
    with pytest.raises(NothingYet):
        baseline.compute(baseline.State(log=""))


def test_saving_writes_round_0_with_its_source(project):
    assert "round 0" in baseline.save_baseline(STATE)
    round_0 = ExperimentLog(project.folder).show("json")["rounds"][0]
    metrics = {item["metric"]: item for run in round_0["runs"] for item in run["measurements"]}
    assert metrics["step_time_ns"]["value"] == 1_755_000_000
    assert metrics["step_time_ns"]["n"] == 4
    assert [run["kind"] for run in round_0["runs"]] == ["reported"], "a bundled sample is never a measurement of the user's project"


def test_a_log_of_the_user_is_saved_as_measured(project, tmp_path: Path):
    own = tmp_path / "own.log"
    own.write_bytes(LOG.read_bytes())
    baseline.save_baseline(replace(STATE, log=str(own)))
    runs = ExperimentLog(project.folder).show("json")["rounds"][0]["runs"]
    assert [run["kind"] for run in runs] == ["measured"]


def test_too_few_steps_are_no_baseline(project):
    with pytest.raises(InputError, match="needs 3 or more"):
        baseline.save_baseline(replace(STATE, suggest=False, num_warmup=4))


def test_megatron_logs_work_on_the_same_page():
    path = next((data_folder() / "traces" / "logs").glob("meg*.log"))
    result = baseline.compute(baseline.State(log=str(path)))
    assert result.found.sizes["num_devices"].value == load(path).facts["num_devices"].value
    assert result.found.tokens_per_s_per_device.known is not None


@pytest.mark.parametrize("log", sorted((data_folder() / "traces" / "logs").glob("*.log")), ids=lambda path: path.name)
@pytest.mark.parametrize("known", list(itertools.product((False, True), repeat=3)), ids=str)
def test_an_origin_names_only_what_is_known_and_a_need_only_what_is_not(log, known):
    entered = {
        name: size
        for name, size, there in zip(("num_devices", "global_batch_size", "seq_length"), (8, 8, 4096), known, strict=True)
        if there
    }
    result = baseline.compute(replace(STATE, log=str(log), **entered))
    words = {"num_devices": "devices", "global_batch_size": "global batch", "seq_length": "sequence length"}
    for shown in (result.found.samples_per_s_per_device, result.found.tokens_per_s_per_device):
        rate, origin = shown.value, shown.source
        for name, size in result.found.sizes.items():
            if words[name] in origin.removesuffix("; by the log's own count of devices"):
                assert (size.value is None) == (rate is None), (origin, result.found.sizes)
        assert origin.startswith("needs") == (rate is None)
