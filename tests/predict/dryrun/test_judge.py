"""Judged: published figures against the limit, several statistics in one file, ranks without a log, and what frees enough."""

from __future__ import annotations

from typing import Any

import pytest

from perfkit import load
from perfkit.config.presets import config_beside, read_plan
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.units import GIB
from perfkit.predict import dryrun
from perfkit.predict.dryrun import Judged, judge

FOLDER = data_folder() / "dryrun"
TRAINED = FOLDER / "qwen2.5_7b" / "as_trained"


def judged(name: str, **how: Any) -> Judged:
    return judge(load(FOLDER / name), **how)


def test_the_log_of_the_guides_against_its_limit():
    text = judged("guide.log").told()[0]
    assert "peaks at 47.7 GiB" in text
    assert "10.3 GiB below its limit of 58.0 GiB" in text


def test_gaps_and_headroom_of_the_simulated_log():
    text = judged("sim_level1.log").told()[0]
    assert "25.6 GiB, 9.63 % of it gaps" in text
    assert "32.4 GiB below" in text


def test_several_statistics_are_asked_for_and_not_guessed():
    asked = judged("recompute_before_after.log")
    assert "perfkit does not guess" in asked.told()[0]
    assert not any("headroom" in note or "leaves" in note for note in asked.told()[1:])
    assert "from 260 MiB to 76.0 MiB: -70.8 %" in judged("recompute_before_after.log", meaning="before and after").told()[0]
    ranks = judged("recompute_before_after.log", meaning="ranks", ranks="0, 4").to_frame()
    assert ranks["rank"].tolist() == ["rank 0", "rank 4"]
    with pytest.raises(InputError, match="'x' is no rank"):
        judged("recompute_before_after.log", meaning="ranks", ranks="0, x")


def test_ranks_without_a_log_are_predicted_and_a_lower_limit_names_what_frees_enough():
    plan = read_plan(config_beside(str(TRAINED)))
    found = judge(load(TRAINED), plan)
    assert found.to_frame()["origin"].tolist() == ["logged", "predicted", "predicted", "predicted"]
    assert len(found.bars) == 4
    lower = judge(load(TRAINED), plan, limit_bytes=54 * GIB)
    assert "It does not fit." in lower.told()[0]
    steps = dryrun.steps_table(lower.advice)
    assert steps["change"].iloc[0] == "recompute Silu and Mul"
    assert "yes" in steps["enough"].tolist()
    assert dryrun.steps_table(None).empty


def test_a_plan_alone_is_predicted_and_nothing_at_all_is_refused():
    assert "is predicted to peak" in judge(None, read_plan("llama2-13b"), limit_bytes=58 * GIB).told()[0]
    with pytest.raises(InputError, match="neither a log nor a plan"):
        judge(None)


def test_what_the_logs_correct_is_said_in_words():
    plan = read_plan(config_beside(str(TRAINED)))
    corrected = judge(load(TRAINED), plan).likely
    assert corrected is not None
    assert "Before the correction" in dryrun.correction_told(corrected)
    assert "factor of static" in dryrun.correction_table(corrected)["correction"].tolist()
    alone = judge(None, plan).likely
    assert alone is not None
    assert "No log corrects" in dryrun.correction_told(alone)
