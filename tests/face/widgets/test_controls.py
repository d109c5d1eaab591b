"""Controls: what is accepted, what is clamped, and what a folder shows."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.core.errors import InputError
from perfkit.face.widgets._files import list_folder
from perfkit.face.widgets.control import Choice, Number, PathPicker, Slider, Text, Toggle, describe


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_slider_never_leaves_its_limits_and_tells_when_it_moved_a_value(value):
    accepted, note = Slider("x", low=1, high=64).accept(value, None)
    assert 1 <= accepted <= 64
    assert isinstance(accepted, int)
    assert bool(note) == (accepted != value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "many"])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(InputError, match="is no finite number"):
        Number("x").accept(value, None)


def test_a_logarithmic_slider_has_both_ends_and_rising_whole_positions():
    positions = Slider("x", low=128, high=1_048_576, scale="log").describe(None)["values"]
    assert (positions[0], positions[-1]) == (128, 1_048_576)
    assert positions == sorted(set(positions))
    assert all(isinstance(position, int) for position in positions)


def test_a_slider_with_values_takes_the_nearest():
    control = Slider("x", low=1, high=40, values=lambda state: [n for n in range(1, 41) if state["heads"] % n == 0])
    assert control.accept(7, {"heads": 40})[0] == 8
    assert control.accept(8, {"heads": 40}) == (8, "")


def test_options_may_have_labels_and_groups_and_come_from_the_address_as_text():
    control = Choice("x", options=(("one", 1, "few"), 2))
    assert control.describe(None)["options"] == [
        {"label": "one", "value": 1, "group": "few"},
        {"label": "2", "value": 2, "group": ""},
    ]
    assert control.accept("2", None) == (2, "")


def test_a_choice_without_options_has_no_value():
    assert Choice("x", options=()).accept("a", None) == (None, "")


def test_several_choices_keep_those_that_exist():
    assert Choice("x", options=(1, 2, 3), multiple=True).accept([3, 9], None) == ((3,), "1 of the chosen values no longer exist")


def test_text_is_cut_and_toggles_are_truth():
    assert Text("x", max_length=3).accept("abcd", None) == ("abc", "cut to 3 characters")
    assert Toggle("x").accept(1, None) == (True, "")


def test_a_control_names_its_configuration_key_and_hides_where_it_does_not_apply():
    control = Number("pipeline_stage", key="parallel_config.pipeline_stage", visible=lambda state: state["shown"])
    drawn = describe(control, {"shown": False}, 1, "")
    assert drawn["label"] == "Pipeline stage"
    assert "parallel_config.pipeline_stage" in drawn["hint"]
    assert drawn["hidden"] is True


def test_a_folder_lists_folders_first_and_no_hidden_entry(tmp_path):
    for name in ("b.json", "A.json", ".hidden"):
        (tmp_path / name).write_text("")
    (tmp_path / "runs").mkdir()
    listing = PathPicker("run").browse(str(tmp_path))
    assert [entry["name"] for entry in listing["entries"]] == ["runs", "A.json", "b.json"]
    assert listing["parent"] == str(tmp_path.parent)
    assert list_folder(str(tmp_path / "b.json"))["folder"] == str(tmp_path)
    assert list_folder(str(tmp_path / "gone"))["folder"] == str(tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="names are text there")
def test_a_name_that_is_no_utf8_can_be_sent(tmp_path):
    (tmp_path / os.fsdecode(b"a\xff.json")).write_text("")
    (entry,) = list_folder(str(tmp_path))["entries"]
    assert entry["name"].encode("utf-8")


def test_an_emptied_field_is_empty_or_says_that_it_needs_a_number():
    assert Number("x", low=1, high=9, empty=0).accept(None, None) == (0, "")
    assert Number("x", low=1, high=9, empty=0).accept("", None) == (0, "")
    with pytest.raises(InputError, match="it needs a number"):
        Number("x", low=1, high=9).accept(None, None)
    assert PathPicker("x").accept(None, None) == ("", "")
