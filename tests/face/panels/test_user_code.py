"""Page 23 without a browser: the sample that loses time, the repaired one, a typed environment, hostile text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.face.panels import user_code
from perfkit.face.panels.user_code import State
from perfkit.face.widgets.status import NothingYet

SLOW = State(path=str(data_folder() / "code" / "train_slow.py"))


def test_the_sample_that_loses_time_has_more_than_a_dozen_kinds_and_the_repaired_one_none():
    answer = user_code.view(user_code.compute(SLOW))
    assert answer.tables["problems"].frame["rule"].nunique() > 12
    assert "First: train_slow.py:9" in answer.text
    repaired = user_code.view(user_code.compute(State(path=str(data_folder() / "code" / "train_tuned.py"))))
    assert repaired.text == "Nothing was found in 1 file."
    assert repaired.charts == {}


def test_a_row_opens_the_example_of_its_rule():
    state = user_code.choose_rule(SLOW, "problems", {"rule": "bprop-keeps-all"})
    bad, good = user_code.view(user_code.compute(state)).code
    assert "used_bprop_inputs" not in bad.text
    assert "used_bprop_inputs = [2]" in good.text


def test_levels_that_are_not_shown_are_counted():
    answer = user_code.view(user_code.compute(replace(SLOW, shown="errors and warnings")))
    assert set(answer.tables["problems"].frame["level"]) == {"warning"}
    assert any("are not shown" in note for note in answer.notes)


def test_a_typed_environment_is_checked_too():
    state = State(environment='MS_ALLOC_CONF="enable_vmm:True" OMP_NUM_THREADS=1 export MS_ALLOC_CONF=memory_tracker:True')
    rules = set(user_code.view(user_code.compute(state)).tables["problems"].frame["rule"])
    assert rules == {"alloc-conf-overwritten", "omp-threads-one"}


def test_nothing_and_what_does_not_exist_are_said():
    with pytest.raises(NothingYet):
        user_code.compute(State())
    with pytest.raises(InputError, match="does not exist"):
        user_code.compute(State(path="/nowhere/at/all.py"))


def test_hostile_text_of_a_file_stays_a_cell(tmp_path):
    file = tmp_path / "<img src=x onerror=alert(1)>.py"
    file.write_text('import os\nimport mindspore\nos.environ["MS_<script>"] = "1"\n')
    frame = user_code.view(user_code.compute(State(path=str(file)))).tables["problems"].frame
    assert "<script>" in frame["what"].iloc[0]
