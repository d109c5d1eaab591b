"""A device by the figures of its data sheet: what it predicts, how sure it is, and every wrong figure at once."""

from __future__ import annotations

import json

import pytest

from perfkit.core import catalog
from perfkit.face.cli import main

FIGURES = ["tflops=320", "memory_gib=64", "memory_tb_s=1.6", "link_gb_s=196", "network_gb_s=25"]


def estimated(capsys: pytest.CaptureFixture[str], plan: str, *more: str) -> dict[str, float]:
    assert main(["estimate", plan, "--json", *more]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def plan(tmp_path):
    """A table of one configuration that names no device."""
    path = tmp_path / "plan.csv"
    path.write_text("layers,hidden,heads,ffn_hidden,vocab,seq_len,n_devices,tp,global_batch\n24,2048,16,8192,50304,2048,16,2,64\n")
    return str(path)


def test_a_data_sheet_predicts_and_its_interval_is_as_wide_as_devices_differ(plan, capsys):
    found = estimated(capsys, plan, "--device", "Unheard-X1", "--assume-roofline", *FIGURES)
    known = estimated(capsys, plan, "--device", "A100-80GB-SXM")
    assert 0.5 < found["step_time_s"] / known["step_time_s"] < 2.0
    assert found["step_time_high_s"] / found["step_time_low_s"] > known["step_time_high_s"] / known["step_time_low_s"]
    faster = [figure.replace("tflops=320", "tflops=640") for figure in FIGURES]
    twice = estimated(capsys, plan, "--device", "Unheard-X1", "--assume-roofline", *faster)
    assert 0.5 * found["step_time_s"] < twice["step_time_s"] < found["step_time_s"]


def test_a_device_without_entry_is_answered_with_the_nearest_and_with_the_figures_that_would_do(plan, capsys):
    assert main(["estimate", plan, "--device", "H101-90GB"]) == 2
    told = capsys.readouterr().err
    assert "H100-80GB-SXM" in told
    assert "--assume-roofline tflops=" in told


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        (["tflops=320"], ["memory_gib is not stated", "memory_tb_s is not stated"]),
        (
            ["tflops=fast", "memory_gib=-1", "speed=3"],
            ["tflops = 'fast'", "memory_gib = '-1'", "'speed=3' is none", "memory_tb_s is not"],
        ),
    ],
)
def test_every_wrong_figure_is_told_at_once(plan, capsys, figures, words):
    assert main(["estimate", plan, "--device", "Unheard-X1", "--assume-roofline", *figures]) == 2
    told = capsys.readouterr().err
    assert all(word in told for word in words)


def test_figures_of_a_known_device_and_of_none_are_refused(plan, capsys):
    assert main(["estimate", plan, "--device", "A100-80GB-SXM", "--assume-roofline", *FIGURES]) == 2
    assert "A100-80GB-SXM is known" in capsys.readouterr().err
    assert main(["estimate", plan, "--assume-roofline", *FIGURES]) == 2
    assert "of which device" in capsys.readouterr().err
    assert "Unheard-X1" not in catalog.hardware()
