"""Export and import of the log: everything is there, equal logs give equal bytes, hostile text stays text."""

from __future__ import annotations

import re

import pytest

from perfkit.core.errors import InputError
from perfkit.core.units import format_change
from perfkit.project.experiments import ExperimentLog, Measurement
from perfkit.project.sample import demo


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    return ExperimentLog(demo(tmp_path_factory.mktemp("demo") / "d").folder)


def test_markdown_has_goal_ladder_difference_prediction_decision_and_hashes(sample, tmp_path):
    text = sample.export(tmp_path / "log.md").read_text(encoding="utf-8")
    assert "# Llama2-13B, six rounds" in text
    assert "| 5 | Recompute as little as fits |" in text
    first, last = (format_change(sample.ladder()["error_ratio"].tolist()[number]) for number in (1, 5))
    assert last in text
    assert "| parallel_config.pipeline_stage | 1 | 2 |" in text
    assert f"Error of the prediction: {first}." in text
    assert len(re.findall(r"\b[0-9a-f]{64}\b", text)) == 6


def test_equal_logs_give_equal_bytes(sample, tmp_path):
    other = ExperimentLog(demo(tmp_path / "other").folder)
    for form in ("md", "html"):
        a, b = sample.export(tmp_path / f"a.{form}", form), other.export(tmp_path / f"b.{form}", form)
        assert a.read_bytes() == b.read_bytes()


def test_the_page_requests_nothing(sample, tmp_path):
    page = sample.export(tmp_path / "log.html", "html").read_text(encoding="utf-8")
    assert not re.search(r"(src|href)\s*=|@import|url\(|<script", page)


def test_hostile_titles_and_notes_stay_text(tmp_path):
    log = ExperimentLog(tmp_path)
    log.start("<img src=x onerror=alert(1)> | `x`\n# heading", "a hypothesis that is long enough")
    log.add_run(0, [Measurement(metric="mfu", value=0.5, source="<script>a|b</script>")])
    page = log.export(tmp_path / "log.html", "html").read_text(encoding="utf-8")
    assert "<img" not in page
    assert "<script" not in page
    text = log.export(tmp_path / "log.md").read_text(encoding="utf-8")
    assert "<img" not in text
    assert "\n# heading" not in text
    rows = [line for line in text.splitlines() if line.startswith("| 0 |")]
    assert len(rows) == 1
    assert len(re.split(r"(?<!\\)\|", rows[0])) == 11


def test_earlier_rounds_are_imported_closed_and_kept(tmp_path):
    table = tmp_path / "rounds.csv"
    table.write_text(
        "number,metric,value,note\n0,tokens_per_s_per_device,1860,start\n2,tokens_per_s_per_device,2136,pp 2\n2,mfu,0.49,\n"
    )
    log = ExperimentLog(tmp_path)
    assert log.import_(table) == [0, 2]
    rounds = log.show("json")["rounds"]
    assert [(row["number"], row["value"], row["verdict"], row["kind"], row["parent"]) for row in rounds] == [
        (0, 1860.0, "keep", "reported", None),
        (2, 2136.0, "keep", "reported", 0),
    ]
    assert rounds[1]["gain_ratio"] == pytest.approx(2136 / 1860 - 1)
    assert log.start("the next one") == 3


def test_every_wrong_line_is_listed_and_nothing_is_taken(tmp_path):
    table = tmp_path / "rounds.csv"
    table.write_text("number,metric,value\n-1,mfu,0.4\n1,speed,2\n2,mfu,fast\n3,mfu,0.4\n3,mfu,0.5\n")
    log = ExperimentLog(tmp_path)
    with pytest.raises(InputError) as raised:
        log.import_(table)
    assert [problem[:6] for problem in raised.value.problems] == ["line 2", "line 3", "line 4", "line 6"]
    assert log.show("json")["rounds"] == []


def test_numbers_that_are_taken_are_refused_together(sample, tmp_path):
    table = tmp_path / "rounds.csv"
    table.write_text("number,metric,value\n1,mfu,0.4\n5,mfu,0.4\n7,mfu,0.4\n")
    with pytest.raises(InputError) as raised:
        sample.import_(table)
    assert len(raised.value.problems) == 2


def test_a_file_that_is_replaced_survives_a_failed_export(tmp_path):
    log = ExperimentLog(tmp_path)
    with pytest.raises(InputError, match="cannot be written"):
        log.export(tmp_path / "nowhere" / "log.md")
    with pytest.raises(InputError, match="'md' or 'html'"):
        log.export(tmp_path / "log.pdf", "pdf")


FINDING = {"rule": "slow-rank", "severity": "high", "subject": {"ranks": [3]}, "evidence": {"ratio": 1.2}, "cost_ns": 5_000}


def test_findings_are_kept_once_and_answered_with_a_reason(tmp_path):
    log = ExperimentLog(tmp_path)
    number = log.start("a round")
    run = log.add_run(number, [Measurement(metric="mfu", value=0.5, source="x")])
    cheaper = {**FINDING, "rule": "jitter", "cost_ns": None}
    ids = log.add_findings(run, [cheaper, FINDING])
    assert log.add_findings(run, [FINDING]) == ids[1:]
    assert [(row["rule"], row["status"]) for row in log.findings(number)] == [("slow-rank", "open"), ("jitter", "open")]
    assert log.missing(number)["analyse"]
    with pytest.raises(InputError, match="say why"):
        log.answer_finding(ids[0], "dismissed")
    log.answer_finding(ids[0], "dismissed", "expected during warm-up")
    assert log.findings()[1]["reason"] == "expected during warm-up"
    assert log.missing(number)["analyse"] == []


def test_a_finding_that_does_not_exist_is_refused_with_every_reason(tmp_path):
    log = ExperimentLog(tmp_path)
    log.start("a round")
    with pytest.raises(InputError) as raised:
        log.answer_finding(99, "ignored")
    assert len(raised.value.problems) == 2
