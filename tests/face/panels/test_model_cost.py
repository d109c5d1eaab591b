"""Page 02 without a browser: published counts, conventions, impossible speeds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perfkit.core.errors import InputError
from perfkit.face.panels import model_cost
from perfkit.face.panels.model_cost import State
from perfkit.project import create_project, open_project


@pytest.mark.parametrize(
    ("preset", "parameters", "gflop"),
    [
        ("llama2-7b", 6_738_415_616, 46.0849),
        ("llama2-13b", 13_015_864_320, 87.1760),
        ("llama2-70b", 68_976_648_192, 444.4914),
    ],
)
def test_presets_have_their_published_cost(preset, parameters, gflop):
    result = model_cost.compute(State(preset=preset))
    assert result.parameters.total == parameters
    assert (result.passes["forward"].total + result.passes["backward"].total) / 1e9 == pytest.approx(gflop, abs=5e-5)


def test_the_guides_13b_figure_in_every_convention():
    frame = (
        model_cost.view(model_cost.compute(State(preset="llama2-13b"))).whole().tables["conventions"].frame.set_index("convention")
    )
    assert frame["MFU"].to_dict() == {
        "full attention, with head": "59.40%",
        "full attention, without head": "58.73%",
        "causal half, with head": "55.97%",
        "causal half, without head": "55.30%",
    }


def test_the_guides_7b_figure_and_its_hfu():
    state = State(preset="llama2-7b", tokens_per_s_per_device=4695.0, num_recomputed_layers=32)
    result = model_cost.compute(state)
    assert result.mfu == pytest.approx(0.5754, abs=5e-5)
    assert result.hfu == pytest.approx(0.7640, abs=5e-5)
    assert "MFU 57.54%" in model_cost.view(result).whole().text
    assert "HFU 76.40%" in model_cost.view(result).whole().text


def test_the_guides_impossible_70b_speed_is_flagged():
    result = model_cost.compute(State(preset="llama2-70b", tokens_per_s_per_device=1974.0))
    assert result.mfu == pytest.approx(2.33, abs=0.01)
    assert model_cost.view(result).whole().notes[0].startswith("Impossible")


def test_choosing_another_preset_fills_the_sizes_and_keeps_the_rest():
    changed = replace(State(preset="llama2-13b", seq_length=8192), preset="llama2-70b")
    assert (changed.num_layers, changed.num_key_value_heads, changed.seq_length) == (80, 8, 8192)


def test_a_changed_size_stays_until_the_preset_changes():
    state = replace(State(preset="llama2-13b"), num_layers=20)
    result = model_cost.compute(state)
    assert result.model.num_layers == 20
    assert ", changed" in model_cost.view(result).whole().text


def test_doubling_the_sequence_doubles_attention_and_nothing_else():
    short, long = (model_cost.compute(State(preset="llama2-7b", seq_length=seq)).passes["forward"].parts for seq in (4096, 8192))
    for part, amount in short.items():
        assert long[part] == amount * (2 if part in {"layers/scores", "layers/values"} else 1)


def test_heads_that_do_not_divide_are_refused_with_their_numbers():
    with pytest.raises(InputError, match="num_attention_heads = 40 is not a multiple of num_key_value_heads = 7"):
        model_cost.compute(replace(State(preset="llama2-13b"), num_key_value_heads=7))


def test_every_figure_of_the_page_says_where_it_comes_from():
    answer = model_cost.view(model_cost.compute(State())).whole()
    assert all(figure.sources for figure in answer.charts.values())


def test_the_convention_is_kept_in_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))
    create_project(tmp_path, "made by a test")
    model_cost.save_convention(State(attention="causal", count_head=False, peak_tflops_per_s=313.0))
    project = open_project(tmp_path)
    assert (project.attention, project.count_head, project.peak_flops_per_s) == ("causal", False, 313e12)
    assert model_cost.start().attention == "causal"
