"""The command `ask`: every question of a run, as a table, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pandas as pd
import pytest

from perfkit.core.questions import Questions
from perfkit.core.run import Run
from perfkit.face.cli import main
from perfkit.face.cli._answers import print_answer
from perfkit.face.cli._questions import questions
from perfkit.record.load import load

DLRM = Path(__file__).parents[2] / "data" / "traces" / "dlrm_8xV100"


@pytest.fixture(scope="module")
def dlrm() -> Run:
    return load(DLRM, cache=False)


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["ask", str(DLRM), *words]) == 0
    return capsys.readouterr().out


def test_every_question_that_answers_with_a_table_can_be_asked():
    assert set(questions()) == {name for name in vars(Questions) if not name.startswith("_")} - {"export_chrome"}


@pytest.mark.parametrize(("question", "options"), [("kernels", ["--by", "kind"]), ("waiting", []), ("idle", ["--rank", "3"])])
def test_json_and_csv_are_the_rows_of_the_frame(capsys, dlrm, question, options):
    document = json.loads(asked(capsys, question, *options, "--json"))
    given = {option.removeprefix("--"): _value(value) for option, value in zip(options[::2], options[1::2], strict=True)}
    wanted = getattr(dlrm, question)(**given)
    assert (document["question"], document["rows_found"]) == (question, len(wanted))
    assert list(document["rows"][0]) == list(wanted.columns)
    for row, expected in zip(document["rows"], wanted.to_dict("records"), strict=True):
        assert all(row[name] is None if pd.isna(value) else row[name] == value for name, value in expected.items())
    rows = list(csv.DictReader(io.StringIO(asked(capsys, question, *options, "--csv", "--top", "2"))))
    assert [list(row) for row in rows] == [list(wanted.columns)] * 2


def _value(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def test_a_table_has_units_and_says_how_many_rows_there_are(capsys):
    text = asked(capsys, "kernels", "--by", "kind")
    assert "48.5 ms" in text
    assert "84.3 %" in text
    assert text.endswith("3 of 3 rows\n")


def test_what_cannot_be_answered_says_what_can(capsys):
    assert main(["ask", str(DLRM), "kernels", "--rank", "99"]) == 2
    assert "ranks found: 0, 1, 2" in capsys.readouterr().err
    assert main(["ask", str(DLRM), "frequency"]) == 2
    assert "To collect it" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["ask", str(DLRM), "kernel"])
    assert "invalid choice: 'kernel'" in capsys.readouterr().err


def test_a_table_in_csv_runs_nothing_in_a_spreadsheet():
    out = io.StringIO()
    answer = pd.DataFrame({"name": ['=HYPERLINK("http://x")', "-5"], "count": [-1, 2]})
    print_answer(answer, out, run="r", question="kernels", form="csv", top=None)
    assert [row["name"] for row in csv.DictReader(io.StringIO(out.getvalue()))] == ['\'=HYPERLINK("http://x")', "-5"]


def test_a_number_that_is_none_is_a_word_in_json_and_what_is_absent_null():
    out = io.StringIO()
    frame = pd.DataFrame({"rate": pd.Series([float("inf"), None, 1.5], dtype=object)})
    print_answer(frame, out, run="r", question="copies", form="json", top=None)
    assert [row["rate"] for row in json.loads(out.getvalue(), parse_constant=pytest.fail)["rows"]] == ["inf", None, 1.5]
