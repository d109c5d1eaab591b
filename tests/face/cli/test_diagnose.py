"""`perfkit diagnose`: a document that programs read, and text that people read."""

import json

from perfkit.core.resources import data_folder
from perfkit.explain.diagnose import collecting
from perfkit.face import cli

CLUSTER = data_folder() / "traces" / "cluster_16card"


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
