"""Page 04 without a browser: the published models, what switches do, plans that cannot be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.units import GIB
from perfkit.face.charts.memory import stage_rows
from perfkit.face.charts.spec import split
from perfkit.face.panels import memory_plan, open_panel
from perfkit.face.panels.memory_plan import PANEL, State
from perfkit.project.sample import demo

CASE = data_folder() / "case13b"


def test_the_leaves_on_the_page_sum_to_the_peak():
    result = memory_plan.compute(State())
    parts = memory_plan.view(result).whole().tables["parts"].frame
    assert parts["peak_bytes"].sum() == result.estimate.peak.total
    rows = stage_rows(result.estimate.stages, 1)["stages"]
    for index, stage in enumerate(result.estimate.stages):
        assert sum(row["gib"] for row in rows if row["stage"] == f"stage {index}") == pytest.approx(stage.total / GIB)


@pytest.mark.parametrize("round_", range(6))
def test_every_round_of_the_13b_case_fits_as_it_did(round_):
    result = memory_plan.compute(replace(State(preset=str(CASE / f"round{round_}.yaml")), limit_gib=58.0))
    assert result.settings.framework == "mindspore"
    assert result.estimate.fits(result.limit_bytes)
    assert "less than the limit of 58.0 GiB" in memory_plan.view(result).whole().text


def test_without_recomputation_the_first_round_would_not_have_fitted():
    state = replace(State(preset=str(CASE / "round0.yaml")), recompute="none")
    result = memory_plan.compute(state)
    answer = memory_plan.view(result).whole()
    assert not result.estimate.fits(result.limit_bytes)
    assert "It does not fit." in answer.text
    assert answer.notes[0].startswith("One switch is enough")
    assert "recompute every layer" in answer.notes[0] or "Silu and Mul" in answer.notes[0]


def test_with_room_left_less_recomputation_comes_first():
    answer = memory_plan.view(memory_plan.compute(State(preset=str(CASE / "round1.yaml")))).whole()
    assert "recompute fewer layers" in answer.notes[0] or "give up recomputation" in answer.notes[0]


def test_every_switch_is_the_peak_of_its_own_plan():
    result = memory_plan.compute(State(preset="llama2-7b"))
    names = {found.name for found in result.switches}
    assert {"recompute every layer", "recompute Silu and Mul", "share gradients too", "tensor parallel 2"} <= names
    peaks = [found.estimate.peak.total for found in result.switches if found.estimate]
    assert peaks == sorted(peaks)
    for found in result.switches:
        if found.plan:
            assert found.plan.num_devices == result.plan.num_devices
            assert found.plan.workload.global_batch_size == result.plan.workload.global_batch_size


def test_a_switch_that_cannot_be_says_why():
    state = State(preset="llama2-7b", filled="llama2-7b", data=2, tensor=32, global_batch_size=64)
    impossible = [found for found in memory_plan.compute(state).switches if found.why_not]
    assert [found.name for found in impossible] == ["tensor parallel 64"]
    assert "num_attention_heads = 32 is not divisible by tensor_parallel_size = 64" in impossible[0].why_not
    table = memory_plan.view(memory_plan.compute(state)).whole().tables["switches"].frame
    assert table.iloc[-1]["price"].startswith("impossible: ")


def test_an_impossible_plan_names_all_reasons():
    with pytest.raises(InputError) as error:
        memory_plan.compute(State(preset="llama2-13b", filled="llama2-13b", tensor=16, pipeline=64, global_batch_size=100, data=8))
    text = str(error.value)
    assert "num_attention_heads = 40 is not divisible by tensor_parallel_size = 16; nearest is 10 or 20" in text
    assert "64 pipeline chunks for 40 layers" in text
    assert "nearest is 96 or 104" in text


def test_a_sequence_must_divide_over_those_that_share_it():
    with pytest.raises(InputError, match="seq_length = 4096 is not divisible by 3"):
        memory_plan.compute(State(preset="llama2-13b", filled="llama2-13b", context_size=3))


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v3", "llama2-70b", "gpt2-124m", "llama3-405b"])
def test_published_models_can_be_shown(name):
    if name not in catalog.models():
        pytest.skip(f"{name} is not in the catalogue")
    answer = memory_plan.view(memory_plan.compute(State(preset=name))).whole()
    assert "devices" in answer.text
    assert all(len(table.frame) for table in answer.tables.values())


def test_the_figures_keep_their_structure_when_a_size_changes():
    first, second = (
        memory_plan.view(
            memory_plan.compute(State(preset="llama2-13b", filled="llama2-13b", data=8, global_batch_size=64, pipeline=p))
        ).whole()
        for p in (2, 4)
    )
    for name in first.charts:
        assert split(first.charts[name].chart).digest == split(second.charts[name].chart).digest


def test_the_panel_answers_in_the_page():
    view = open_panel(PANEL, name="memory-plan", state=State(preset="llama2-7b"))
    assert "llama2-7b on 16 devices" in view.wait().text
    view.set({"recompute": "all layers"})
    assert view.wait().text != ""
    assert view.state.recompute == "all layers"


def test_the_page_opens_against_the_usable_limit_of_the_project(tmp_path, monkeypatch):
    demo(tmp_path / "demo")
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path / "demo"))
    state = memory_plan.start()
    assert state.limit_gib == 57.2  # of its open configuration; the project's own is 58
    assert replace(state, device="A100-40GB-SXM").limit_gib == 40.0, "another device brings its own limit"
