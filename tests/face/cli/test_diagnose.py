"""`perfkit diagnose`: a document that programs read, and text that people read."""

import io
import json
from pathlib import Path

import pytest

from perfkit.core.resources import data_folder
from perfkit.explain.diagnose import collecting, diagnose, to_dict
from perfkit.face import cli
from perfkit.face.cli._findings import print_diagnosis
from perfkit.record.load import load
from tests.english import is_english

CLUSTER = data_folder() / "traces" / "cluster_16card"
RECORDED = (
    CLUSTER,
    data_folder() / "traces" / "torch_npu_2rank",
    *sorted((Path(__file__).parents[2] / "data/traces").glob("torch_npu_*")),
)


def test_the_document_has_findings_healthy_rules_and_what_was_not_measured(capsys):
    assert cli.main(["diagnose", str(CLUSTER), "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    document = json.loads(captured.out)
    assert {"findings", "healthy", "not_measured", "failed"} <= set(document)
    assert document["failed"] == []
    assert "slow-rank" in [entry["rule"] for entry in document["healthy"]], "rank 8 computes most, and is not slow"


def test_the_text_names_what_is_healthy_and_how_to_collect_the_rest(capsys):
    assert cli.main(["diagnose", str(CLUSTER), "--baseline", str(CLUSTER)]) == 0
    text = capsys.readouterr().out
    assert "healthy:" in text
    told = [line for line in text.split("not measured:")[1].splitlines() if "To collect:" in line]
    assert len(told) <= sum(name.endswith("_BY") for name in vars(collecting)) + 1, "one line a recording, and the step trace's own"


def test_a_run_that_is_none_is_an_input_error(tmp_path, capsys):
    assert cli.main(["diagnose", str(tmp_path)]) == 2
    assert "perfkit:" in capsys.readouterr().err


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_a_diagnosis_is_printed_in_chinese(path, monkeypatch):
    document = to_dict(diagnose(load(path)))
    monkeypatch.setenv("PERFKIT_LANGUAGE", "zh")
    out = io.StringIO()
    print_diagnosis(document, out)
    lines = out.getvalue().splitlines()
    assert len(lines) > 20
    assert [line for line in lines if is_english(line)] == []


def test_a_kept_document_does_not_bring_english_back(capsys, monkeypatch):
    cli.main(["diagnose", str(CLUSTER)])
    capsys.readouterr()
    monkeypatch.setenv("PERFKIT_LANGUAGE", "zh")
    cli.main(["diagnose", str(CLUSTER)])
    assert [line for line in capsys.readouterr().out.splitlines() if is_english(line)] == []
