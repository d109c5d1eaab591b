"""A plan against its limit: the leaves sum to the peak, a switch is the peak of its own plan, what cannot be says why."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from perfkit.config.presets import read_plan
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.texts._paths import words_of_paths
from perfkit.core.units import GIB, format_bytes, format_ratio
from perfkit.face.charts.memory import stage_rows
from perfkit.predict.changes import changed_plan
from perfkit.predict.memory.fit import MemoryFit, activations_told, memory_fit, static_told, switch_table, switches_told
from perfkit.predict.memory.memory import peak_memory

CASE = data_folder() / "case13b"
DEVICE = "Ascend-910B2"


def fit_of(preset: str, **changes: object) -> MemoryFit:
    return memory_fit(changed_plan(read_plan(preset), **{"device": DEVICE, **changes}))


@pytest.mark.parametrize("name", ["llama2-13b", "mixtral-8x7b", "deepseek-v3", "gpt2-124m", "llama3-405b"])
def test_the_leaves_sum_to_the_peak_and_every_model_has_its_tables(name):
    if name not in catalog.models():
        pytest.skip(f"{name} is not in the catalogue")
    fit = fit_of(name)
    assert fit.to_frame()["peak_bytes"].sum() == fit.estimate.peak.total
    rows = stage_rows(fit.estimate.stages, fit.limit_bytes)["stages"]
    for index, stage in enumerate(fit.estimate.stages):
        assert sum(row["gib"] for row in rows if row["stage"] == f"stage {index}") == pytest.approx(stage.total / GIB)
    assert "devices" in fit.told()[0]
    held = pd.DataFrame([row for row in rows if row["stage"] == f"stage {fit.estimate.fullest_stage}"])
    largest = held.loc[held["gib"].idxmax()]
    words, gib, share = words_of_paths(largest["part"]), format_bytes(round(largest["gib"] * GIB)), format_ratio(largest["share"])
    assert words_of_paths(fit.told()[1]) == f"The largest part is {words}: {gib}, {share} of the peak."
    assert min(len(fit.static_table()), len(fit.layer_table())) > 0
    assert fit.static_table()["exact_bytes"].sum() == pytest.approx(fit.estimate.peak.amount("static"), rel=1e-9)
    assert static_told(fit).endswith("(X09).")
    assert activations_told(fit).endswith("(X10).")


@pytest.mark.parametrize("number", range(6))
def test_every_round_of_the_13b_case_fits_as_it_did(number):
    fit = fit_of(str(CASE / f"round{number}.yaml"), limit_gib=58.0)
    assert fit.estimate.settings.framework == "mindspore"
    assert fit.fits
    assert "less than the limit of 58.0 GiB" in fit.told()[0]


def test_without_recomputation_the_first_round_would_not_have_fitted():
    fit = fit_of(str(CASE / "round0.yaml"), recompute="none")
    assert not fit.fits
    assert "It does not fit." in fit.told()[0]
    most, told = switches_told(fit, fit.switches())
    assert most.startswith("“recompute every layer” frees most: ")
    assert most.endswith("Its price: one more forward pass (a third more computing).")
    assert told.startswith("One switch is enough")
    assert "recompute every layer" in told or "Silu and Mul" in told


def test_with_room_left_less_recomputation_comes_first():
    fit = fit_of(str(CASE / "round1.yaml"))
    _, told = switches_told(fit, fit.switches())
    assert "recompute fewer layers" in told or "give up recomputation" in told


def test_every_switch_is_the_peak_of_its_own_plan():
    fit = fit_of("llama2-7b")
    found = fit.switches()
    assert {"recompute every layer", "recompute Silu and Mul", "share gradients too", "tensor parallel 2"} <= {
        one.name for one in found
    }
    peaks = [one.estimate.peak.total for one in found if one.estimate]
    assert peaks == sorted(peaks)
    for one in found:
        if one.plan and one.estimate:
            assert one.estimate.peak.total == peak_memory(one.plan, settings=fit.estimate.settings).peak.total
            assert one.plan.num_devices == fit.plan.num_devices
            assert one.plan.workload.global_batch_size == fit.plan.workload.global_batch_size


def test_a_switch_that_cannot_be_says_why():
    fit = fit_of("llama2-7b", data_parallel_size=2, pipeline_parallel_size=1, tensor_parallel_size=32, global_batch_size=64)
    found = fit.switches()
    impossible = [one for one in found if one.why_not]
    assert [one.name for one in impossible] == ["tensor parallel 64"]
    assert "num_attention_heads = 32 is not divisible by tensor_parallel_size = 64" in impossible[0].why_not
    assert switch_table(fit, found).iloc[-1]["price"].startswith("impossible: ")


def test_an_impossible_plan_names_all_reasons():
    with pytest.raises(InputError) as error:
        fit_of("llama2-13b", tensor_parallel_size=16, pipeline_parallel_size=64, global_batch_size=100, data_parallel_size=8)
    text = str(error.value)
    assert "num_attention_heads = 40 is not divisible by tensor_parallel_size = 16; nearest is 10 or 20" in text
    assert "64 pipeline chunks for 40 layers" in text
    assert "nearest is 96 or 104" in text


def test_a_plan_without_a_device_or_a_limit_has_nothing_to_fit_into():
    with pytest.raises(InputError, match="neither a limit nor a device"):
        memory_fit(read_plan("llama2-7b"))


@pytest.mark.parametrize(
    ("used", "told"), [(0.89, "a larger micro batch"), (0.91, "every change is shown")], ids=["11 % left", "9 % left"]
)
def test_a_tenth_of_the_limit_is_room_for_more(used, told):
    fit = fit_of("gpt2-124m", recompute="none")
    most, found = switches_told(replace(fit, limit_bytes=round(fit.estimate.peak.total / used)), ())
    assert most == "No switch that is possible here frees memory."
    assert told in found
