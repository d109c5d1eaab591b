"""The panels that ask studies of a plan: what they say is what the studies give."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfkit.core.errors import InputError
from perfkit.face.panels import growth, parallel_features
from perfkit.predict.studies.features import FEATURES


def test_every_feature_stands_in_the_table_with_its_effect_or_reason():
    answer = parallel_features.view(
        parallel_features.compute(parallel_features.State(preset="llama2-13b", recompute="all layers"))
    ).whole()
    frame = answer.tables["features"].frame.set_index("feature")
    assert len(frame) == len(FEATURES) + 1
    assert frame.loc["expert parallel", "change"] == "the model has no experts"
    assert frame.loc["sequence pipeline", "speed of a device"][0] in "+-"
    assert frame.loc["gradient accumulation", "speed of a device"].startswith("+")


def test_added_devices_change_the_answer():
    state = parallel_features.State(preset="llama2-13b", recompute="all layers")
    kept, added = (parallel_features.compute(replace(state, more_devices=more)).effects for more in (False, True))
    assert set(added["num_devices"].dropna()) > set(kept["num_devices"].dropna())


def test_growth_is_said_in_a_sentence():
    answer = growth.view(growth.compute(growth.State(preset="llama2-13b", recompute="all layers"))).whole()
    assert "From 8 to 16\u2009384 devices" in answer.text
    stays = growth.view(
        growth.compute(growth.State(preset="llama2-13b", recompute="all layers", batch="stays", global_batch_size=1024))
    ).whole()
    assert "falls below 80 %" in stays.text


@pytest.mark.parametrize("panel", [parallel_features, growth])
def test_an_impossible_plan_is_answered_with_all_reasons(panel):
    state = panel.PANEL.start()
    with pytest.raises(InputError) as raised:
        panel.compute(replace(state, preset="llama2-13b", tensor=3, pipeline=64))
    assert len(raised.value.problems) >= 2
