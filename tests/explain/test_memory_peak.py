"""Memory at its peak: a real profile, a memory tracker, reserved memory alone, a plan beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perfkit import load
from perfkit.config.presets import read_plan
from perfkit.core.errors import NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.explain import memory_peak as peaks
from perfkit.explain.memory_use import curve as memory_curve

PROFILE = load(data_folder() / "traces" / "torch_npu_2rank")
TRACKER = load(data_folder() / "traces" / "memory_tracker")
OWN = Path(__file__).parents[1] / "data" / "traces"
TIMELINE = OWN / "torch_memory_timeline"


def test_the_real_profile_peaks_at_1_23_gib_with_a_sixth_not_in_use():
    curve = memory_curve(PROFILE, 0)
    text = peaks.curve_told(PROFILE, 0, curve)[0]
    assert (
        "allocated up to 1.23 GiB (PTA+GE), 234 MiB of it by aten::_foreach_add; 1.49 GiB were reserved then, 17.4 % of it unused"
        in text
    )
    assert "above the limit" in peaks.curve_told(PROFILE, 0, curve, limit_bytes=2**30)[1]
    assert any("blocks explain 560 MiB of the 1.23 GiB at the peak" in note for note in peaks.blocks_told(PROFILE, 0, curve))
    assert "APP reserved 2.06 GiB; page 00 tells the most" in peaks.blocks_told(PROFILE, 0, curve)[0]
    assert not any("page 00" in note for note in peaks.blocks_told(PROFILE, 0, memory_curve(PROFILE, 0, "APP")))
    alive = peaks.alive_at_peak(PROFILE, 0)
    assert alive["name"].iloc[0] == "aten::mm"
    assert alive["abnormal"].iloc[0] == "over 10 % of the peak"


def test_reserved_memory_alone_says_so():
    assert "What was allocated of it is not recorded." in peaks.curve_told(PROFILE, 0, memory_curve(PROFILE, 0, "APP"))[0]


def test_the_tracker_shows_owners_gaps_and_blocks_held_too_long():
    curve = memory_curve(TRACKER, 0)
    assert "allocated up to 46.0 MiB" in peaks.curve_told(TRACKER, 0, curve)[0]
    assert any("win up to 512 KiB of gaps" in note for note in peaks.blocks_told(TRACKER, 0, curve))
    held = peaks.held_too_long(TRACKER, 0)
    assert (held["name"].iloc[0], held["held for"].iloc[0]) == ("Gelu_1", 18)


@pytest.mark.parametrize("by", ["name", "owner", "kind", "pool"])
def test_owners_sum_to_the_peak_of_the_blocks_however_they_are_grouped(by: str):
    assert sum(peaks.owners_of_peak(TRACKER, 0, by)[1].values()) == sum(peaks.owners_of_peak(TRACKER, 0)[1].values())


def test_a_timeline_without_blocks_shows_its_categories():
    run = load(TIMELINE)
    curve = memory_curve(run, 0)
    assert "2.87 GiB (total)" in peaks.curve_told(run, 0, curve)[0]
    title, owners = peaks.owners_of_peak(run, 0)
    assert "component" in title
    assert "total" not in owners
    assert any("Single blocks are not recorded" in note for note in peaks.blocks_told(run, 0, curve))
    for table in (peaks.alive_at_peak(run, 0), peaks.lived_long(run, 0, 0.5), peaks.held_too_long(run, 0)):
        assert table.empty


def test_owners_are_told_with_their_noun_and_components_as_components():
    assert peaks.owners_told(*peaks.owners_of_peak(TRACKER, 0)) == "GeluGrad_1 owns most, 8.00 MiB, of 8 owners."
    told = peaks.owners_told(*peaks.owners_of_peak(load(TIMELINE), 0))
    assert told == "Of 8 components activation allocated most at a time, 2.56 GiB."
    title, owners = peaks.owners_of_peak(load(OWN / "kineto_h100"), 0)
    assert list(owners) == ["device 0"]
    assert not peaks.owners_told(title, owners)
    assert not peaks.owners_told(title, {})


def test_blocks_without_a_name_are_told_as_such():
    run = load(OWN / "memscope")
    rank = run.ranks[0]
    assert peaks.owners_told(*peaks.owners_of_peak(run, rank)) == "What has no name owns the whole peak, 93.3 MiB."
    assert peaks.long_told(peaks.lived_long(run, rank, 0.5)).startswith(
        "The largest long-lived block has no name: 18.0 MiB, alive for"
    )


def test_blocks_that_live_longer_are_fewer():
    shares = [len(peaks.lived_long(PROFILE, 0, share)) for share in (0.1, 0.5, 1.0)]
    assert shares == sorted(shares, reverse=True)
    assert "50.0 % of step" in peaks.lived_long(PROFILE, 0, 0.5).attrs["title"]


def test_a_plan_far_below_the_peak_names_the_five_steps():
    curve, planned = memory_curve(PROFILE, 0), peaks.planned_memory(PROFILE, 0, read_plan("llama2-7b"))
    assert "measured is -96.9 %" in peaks.against_plan_told(curve, planned)
    late = peaks.against_plan_told(curve, replace(planned, used_bytes=10**9))
    assert "pynative_synchronize=True" in late


def test_a_peak_without_a_course_leads_to_page_19():
    with pytest.raises(NotMeasuredError, match="page 19"):
        peaks.rank_choices(load(data_folder() / "dryrun" / "guide.log"))
    assert peaks.rank_choices(PROFILE) == [("rank 0", 0), ("rank 1", 1)]
    assert peaks.component_choices(PROFILE, 0)[0] == ("the largest", "")
    assert peaks.memory_figures(PROFILE, 0, memory_curve(PROFILE, 0))["value"].iloc[0] == "1.23 GiB"
