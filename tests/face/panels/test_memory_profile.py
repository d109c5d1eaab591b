"""Page 15 without a browser: real profile, memory tracker, reserved memory alone, a plan beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perfkit.core.errors import NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.face.panels import memory_profile, open_panel
from perfkit.face.panels.memory_profile import PANEL, State

PROFILE = str(data_folder() / "traces" / "torch_npu_2rank")
TRACKER = str(data_folder() / "traces" / "memory_tracker")
TIMELINE = str(Path(__file__).parents[2] / "data" / "traces" / "torch_memory_timeline")


def answer(**changes: object):
    return memory_profile.view(memory_profile.compute(replace(State(run=PROFILE), **changes)))


def test_the_real_profile_peaks_at_1_23_gib_with_a_sixth_not_in_use():
    found = answer()
    assert "allocated up to 1.23 GiB (PTA+GE); 1.49 GiB were reserved then, 17.4 % of it not in use" in found.text
    assert any("blocks explain 560 MiB of the peak" in note for note in found.notes)
    alive = found.tables["alive"].frame
    assert alive["name"].iloc[0] == "aten::mm"
    assert alive["abnormal"].iloc[0] == "over 10% of the peak"


def test_reserved_memory_alone_says_so():
    assert "What was allocated of it is not recorded." in answer(component="APP").text


def test_the_tracker_shows_owners_gaps_and_blocks_held_too_long():
    found = answer(run=TRACKER, by="kind")
    assert "allocated up to 46.0 MiB" in found.text
    assert any("win up to 512 KiB of gaps" in note for note in found.notes)
    assert found.tables["held"].frame["name"].iloc[0] == "Gelu_1"
    assert found.tables["held"].frame["held for"].iloc[0] == 18


def test_a_timeline_without_blocks_shows_its_categories():
    found = answer(run=TIMELINE)
    assert "2.87 GiB (total)" in found.text
    result = memory_profile.compute(State(run=TIMELINE))
    assert result.owners_by == "component"
    assert "total" not in result.owners
    assert any("Single blocks are not recorded" in note for note in found.notes)


def test_a_plan_far_below_the_peak_names_the_five_steps():
    small = memory_profile.compute(State(run=PROFILE, plan="llama2-7b"))
    assert any("measured is -96.9 %" in note for note in memory_profile.view(small).notes)
    late = replace(small, planned=replace(small.planned, used_bytes=10**9))
    assert any("pynative_synchronize=True" in note for note in memory_profile.view(late).notes)


def test_a_peak_without_a_course_leads_to_page_19():
    with pytest.raises(NotMeasuredError, match="page 19"):
        memory_profile.compute(State(run=str(data_folder() / "dryrun" / "guide.log")))


def test_another_rank_and_recording_keep_the_panel_alive():
    view = open_panel(PANEL, state=State(run=PROFILE))
    view.wait()
    view.set({"rank": 1})
    assert "Rank 1 allocated" in view.wait().text
    view.set({"run": TRACKER})
    assert "Rank 0 allocated up to 46.0 MiB" in view.wait().text
