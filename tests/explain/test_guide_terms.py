"""The guides' terms say what the recording tells; that they sum to every step of every sample, the tests of the ledger hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfkit.core.errors import InputError
from perfkit.explain.guide_terms import UNTOLD, guide_terms
from perfkit.face.cli import main
from perfkit.record.load import load

TRACES = Path(__file__).resolve().parents[1] / "data/traces"
ASCEND = next(path for path in sorted(TRACES.rglob("*")) if path.name.startswith("ascend") and path.is_dir())


def test_a_group_that_no_guide_has_is_refused():
    run = load(ASCEND, cache=False)
    with pytest.raises(InputError, match="guide, pynative"):
        guide_terms(run, "other")


def test_a_recording_of_device_and_host_tells_forward_and_backward():
    run = load(ASCEND, cache=False)
    rank, step = (int(value) for value in run.steps()[["rank", "step"]].iloc[0])
    terms = guide_terms(run, steps=[step])
    found = terms[terms["rank"] == rank].set_index("term")["ns"]
    assert found["forward and backward"] > 0
    assert found[UNTOLD] < found.sum()


def test_the_command_prints_terms_and_their_sum(capsys):
    assert main(["summary", str(ASCEND), "--group", "guide"]) == 0
    assert "communication not hidden" in capsys.readouterr().out
    assert main(["summary", str(ASCEND), "--group", "pynative", "--json"]) == 0
    for rank in json.loads(capsys.readouterr().out)["ranks"]:
        for step in rank["steps"]:
            assert sum(step["terms_ns"].values()) == step["duration_ns"]
