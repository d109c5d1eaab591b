"""Page 19 without a browser: the published figures, several statistics in one file, wrong ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfkit.core.errors import InputError
from perfkit.face.panels import dryrun, open_panel
from perfkit.face.panels.dryrun import NO_PLAN, PANEL, State
from perfkit.project import open_project, save
from perfkit.project.experiments import ExperimentLog
from perfkit.project.sample import demo


def answer(name: str, **changes: object):
    return dryrun.view(dryrun.compute(replace(State(log=dryrun._sample(name)), **changes)))


def test_the_log_of_the_guides_against_its_limit():
    text = answer("guide.log").text
    assert "48,874 MiB" in text
    assert "10,518 MiB below its limit of 59,392 MiB" in text


def test_gaps_and_headroom_of_the_simulated_log():
    text = answer("sim_level1.log").text
    assert "26,244 MiB, 9.63 % of it gaps" in text
    assert "33,148 MiB below" in text


def test_several_statistics_are_asked_for_and_not_guessed():
    asked = answer("recompute_before_after.log")
    assert "perfkit does not guess" in asked.text
    assert not any("headroom" in note or "leaves" in note for note in asked.notes)
    assert "from 260 MiB to 76 MiB: -70.8 %" in answer("recompute_before_after.log", meaning="before and after").text
    ranks = answer("recompute_before_after.log", meaning="ranks", ranks="0, 4").tables["peaks"].frame
    assert ranks["rank"].tolist() == ["rank 0", "rank 4"]


def test_the_sample_predicts_the_ranks_without_a_log_and_writes_the_commands():
    found = dryrun.view(dryrun.compute(dryrun.start()))
    assert found.tables["peaks"].frame["origin"].tolist() == ["logged", "predicted", "predicted", "predicted"]
    assert "RANK_SIZE=4 RANK_ID=2" in found.code[0].text
    assert "MS_KERNEL_LAUNCH_SKIP=all" in found.code[0].text
    older = dryrun.view(dryrun.compute(replace(dryrun.start(), version="2.4", more_ranks="2")))
    assert "ENABLE_CELL_REUSE=1" in older.code[0].text
    assert "RANK_ID=0" not in older.code[0].text


def test_a_plan_alone_is_predicted_against_a_limit():
    found = dryrun.view(dryrun.compute(State(plan="llama2-13b", limit_gib=58.0)))
    assert "is predicted to peak" in found.text


def test_a_lower_limit_names_what_frees_enough():
    found = dryrun.view(dryrun.compute(replace(dryrun.start(), limit_gib=54.0)))
    assert "It does not fit." in found.text
    steps = found.tables["steps"].frame
    assert steps["change"].iloc[0] == "recompute Silu and Mul"
    assert "yes" in steps["enough"].tolist()


def test_another_sample_brings_its_own_plan():
    view = open_panel(PANEL)
    view.wait()
    view.set({"log": dryrun._sample("guide.log")})
    view.wait()
    assert view.state.plan == NO_PLAN


@pytest.mark.parametrize("ranks", ["0, x", "99"])
def test_ranks_that_are_none_are_refused(ranks: str):
    with pytest.raises(InputError, match="rank"):
        dryrun.compute(replace(dryrun.start(), more_ranks=ranks))


def test_the_peak_becomes_the_prediction_of_the_open_round(tmp_path, monkeypatch):
    folder = demo(tmp_path / "d").folder
    monkeypatch.setenv("PERFKIT_PROJECT", str(folder))
    state = State(log=dryrun._sample("guide.log"))
    with pytest.raises(InputError, match="decided already"):
        dryrun.save_peak(state)
    number = ExperimentLog(folder).start("a dry run first")
    save(replace(open_project(folder), open_round=number))
    assert "48\u2009874 MiB" in dryrun.save_peak(state)
    (kept,) = ExperimentLog(folder).show("json")["rounds"][-1]["predictions"]
    assert (kept["metric"], kept["value"]) == ("peak_memory_bytes", 48_874 * 2**20)
