"""Case files that cannot be used say everything that is wrong with them."""

import io
import json

import pytest

from perfkit.core.errors import InputError
from perfkit.face import cli
from perfkit.predict.plans.balance.case_file import read_schedules
from tests.predict.plans.case_documents import CASES, document

GOOD = {"schedule": "1f1b", "num_stages": 2, "num_microbatches": 4, "fwd_ns": [[1, 2]], "bwd_ns": [[2, 4]]}


def write(tmp_path, *cases, name="perfkit.plans.schedules/1"):
    path = tmp_path / "case.json"
    path.write_text(json.dumps({"format": name, "cases": list(cases)}))
    return path


def test_every_problem_of_every_case_is_named_with_its_place(tmp_path):
    bad = [{**GOOD, "schedule": "pipedream"}, {**GOOD, "num_stages": 2.5, "fwd_ns": "x"}, {**GOOD, "num_microbatches": True}, 7]
    with pytest.raises(InputError) as error:
        read_schedules(write(tmp_path, GOOD, *bad))
    text = "\n".join(error.value.problems)
    for place in ("cases[1].schedule", "cases[2].num_stages", "cases[2].fwd_ns", "cases[3].num_microbatches", "cases[4] = 7"):
        assert place in text


def test_contradictions_between_fields_are_found_too(tmp_path):
    with pytest.raises(InputError, match=r"cases\[0\]: fwd_ns has rows of \[2\] entries; 1 rows of 3"):
        read_schedules(write(tmp_path, {**GOOD, "num_stages": 3}))


@pytest.mark.parametrize("text", ["", "[1", "nul", '{"format": "x"}', "[]", "\x00", "[" * 100_000])
def test_what_is_no_case_file_is_refused(tmp_path, text):
    path = tmp_path / "case.json"
    path.write_text(text)
    with pytest.raises(InputError):
        read_schedules(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            read_schedules(path)


def test_the_command_prints_the_keys_of_the_cases(capsys):
    (path,) = CASES.glob("d01_*.json")
    assert cli.main(["schedule", str(path), "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)
    assert answers == [case["expected"] for case in document("d01")["cases"]]


def test_the_command_reads_standard_input_and_prints_a_table(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({"format": "perfkit.plans.schedules/1", "cases": [GOOD]})))
    assert cli.main(["schedule", "-"]) == 0
    assert "1f1b, 2 stages x 1 chunks, 4 micro batches" in capsys.readouterr().out
