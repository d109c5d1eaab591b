"""A report in words and as rows: the sample that loses time, the repaired one, a typed environment, levels, hostile text."""

from __future__ import annotations

import pytest

from perfkit.config.lint import LintReport, all_checks, check_named, check_table, lint, lint_environment
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder

SLOW, TUNED = (data_folder() / "code" / name for name in ("train_slow.py", "train_tuned.py"))


def test_the_sample_that_loses_time_has_more_than_a_dozen_kinds_and_the_repaired_one_none():
    report = lint(SLOW)
    assert report.to_frame()["rule"].nunique() > 12
    assert "First: train_slow.py:9" in report.told()[0]
    assert lint(TUNED).told() == ("Nothing was found in 1 file.",)
    assert lint(TUNED).to_frame().empty


def test_levels_that_are_not_shown_are_counted():
    report = lint(SLOW)
    fewer = report.at_least("warning")
    assert set(fewer.to_frame()["level"]) == {"warning"}
    assert len(fewer.problems) + fewer.num_hidden == len(report.problems)
    assert any("are not shown" in note for note in fewer.told())
    assert report.at_least("information").to_dict() == report.to_dict()


def test_a_typed_environment_is_checked_too_and_two_reports_are_one():
    typed = lint_environment('MS_ALLOC_CONF="enable_vmm:True" OMP_NUM_THREADS=1 export MS_ALLOC_CONF=memory_tracker:True')
    assert set(typed.to_frame()["rule"]) == {"alloc-conf-overwritten", "omp-threads-one"}
    both = lint(SLOW).joined(typed)
    assert len(both.problems) == len(lint(SLOW).problems) + len(typed.problems)
    assert sum(both.checked.values()) == 2
    assert lint_environment(" ") == LintReport(problems=())
    assert lint_environment(" ").told() == ("There is nothing here that can be checked.",)


def test_every_check_stands_in_the_table_with_what_it_found_and_has_an_example():
    table = check_table(lint(SLOW))
    assert len(table) == len(all_checks())
    assert table["found"].sum() == len([one for one in lint(SLOW).problems if check_named(one.rule)])
    check = check_named("bprop-keeps-all")
    assert "used_bprop_inputs" not in check.bad
    assert "used_bprop_inputs = [2]" in check.good
    assert check_named("syntax-error") is None


def test_what_is_left_out_says_why(tmp_path):
    report = LintReport(problems=(), skipped=(("a.py", "too large"),), failed=(("rule", "b.py", "ZeroDivisionError"),))
    assert report.left_out()["file"].tolist() == ["a.py", "b.py"]
    assert "a bug of perfkit" in report.left_out()["reason"].iloc[1]
    with pytest.raises(InputError, match="does not exist"):
        lint(tmp_path / "nowhere.py")


def test_hostile_text_of_a_file_stays_a_cell(tmp_path):
    file = tmp_path / "<img src=x onerror=alert(1)>.py"
    file.write_text('import os\nimport mindspore\nos.environ["MS_<script>"] = "1"\n')
    assert "<script>" in lint(file).to_frame()["what"].iloc[0]
