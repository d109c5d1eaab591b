"""A speed belongs to the configuration that it was measured with."""

from __future__ import annotations

import shutil

import pytest

from perfkit.core.resources import data_folder
from perfkit.explain.compare import compare
from perfkit.explain.compare.told import comparison_told
from perfkit.project.experiments import ExperimentLog, Measurement
from perfkit.project.measured import compared_told, measured_speed, speed_told
from perfkit.project.sample import demo


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return demo(tmp_path_factory.mktemp("measured") / "demo").folder


@pytest.fixture(autouse=True)
def _open(project, monkeypatch):
    monkeypatch.setenv("PERFKIT_PROJECT", str(project))


def test_a_round_has_its_own_speed_also_by_a_copy_of_its_file(project, tmp_path):
    copy = shutil.copy(project / "rounds" / "03" / "config.yaml", tmp_path / "own.yaml")
    for config in (project / "rounds" / "03" / "config.yaml", copy):
        assert measured_speed(str(config)).value == 2210
        assert speed_told(str(config), 2210, as_configured=True) == "The speed is that of round 3."
        assert speed_told(str(config), 2210, as_configured=False) == "The speed is that of round 3. The sizes above are others."
        assert speed_told(str(config), 2211, as_configured=True) == ""


def test_a_speed_is_of_the_configuration_that_ran_and_not_of_the_one_that_was_planned(project, tmp_path, monkeypatch):
    own = shutil.copytree(project, tmp_path / "own")
    monkeypatch.setenv("PERFKIT_PROJECT", str(own))
    planned, as_run = tmp_path / "planned.yaml", own / "rounds" / "04" / "config.yaml"
    planned.write_text((own / "rounds" / "05" / "config.yaml").read_text(encoding="utf-8") + "\n", encoding="utf-8")
    log = ExperimentLog(own)
    number = log.start("Another try", "what was planned was not what ran")
    log.attach(number, planned, "config")
    log.attach(number, as_run, "as_run")
    log.predict(number, "tokens_per_s_per_device", 2600.0, method="typed")
    log.add_run(number, [Measurement(metric="tokens_per_s_per_device", value=2000.0, source="typed")])
    assert measured_speed(str(planned)).value is None
    assert measured_speed(str(as_run)).value == 2000.0


def test_what_nobody_ran_has_no_speed(project, tmp_path):
    changed = tmp_path / "own.yaml"
    changed.write_text((project / "rounds" / "03" / "config.yaml").read_text(encoding="utf-8") + "\n", encoding="utf-8")
    for config in (changed, tmp_path / "none.yaml", data_folder() / "case13b" / "rounds.toml"):
        assert measured_speed(str(config)).state == "absent"
    assert measured_speed("").value is None


def test_a_published_model_has_the_fastest_speed_that_can_be_true():
    assert (measured_speed("llama2-13b").value, measured_speed("llama2-7b").value) == (2562, 4695)
    assert measured_speed("llama2-70b").value is None, "the guides print 1974, an MFU of 233 %"


def test_a_change_that_rounds_measured_is_told_before_what_is_predicted(project):
    before, after = (str(project / "rounds" / number / "config.yaml") for number in ("04", "05"))
    found = compare(before, after, device="Ascend-910B2")
    first, rounds, predicted, *_, table = compared_told(found, before, after)
    assert table["change_ratio"].iloc[-1] == pytest.approx(2562 / 2353 - 1)
    assert first.startswith(
        "It helped: 2\u2009353 tokens/s/device before, 2\u2009562 tokens/s/device after (+8.88 %); predicted: +"
    )
    assert rounds == "The speeds are those of rounds 4 and 5."
    assert predicted.startswith("A step is predicted to be ")
    back = compare(after, before, device="Ascend-910B2")
    assert compared_told(back, after, before)[0].startswith("It did not help: 2\u2009562 tokens/s/device before")


def test_what_no_round_measured_is_told_as_predicted(project, tmp_path):
    before, after = (project / "rounds" / number / "config.yaml" for number in ("04", "05"))
    other = tmp_path / "own.yaml"
    other.write_text(after.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    found = compare(before, other, device="Ascend-910B2")
    assert compared_told(found, str(before), str(other)) == comparison_told(found)
    same = compare(before, before, device="Ascend-910B2")
    assert compared_told(same, str(before), str(before)) == comparison_told(same)
