"""Errors of devices, as logs say it: with rank, file and line."""

from __future__ import annotations

import pytest

from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules import device_error
from tests.explain.diagnose.made import with_incidents


@pytest.mark.parametrize("kind", ["memory_error", "device_error"])
def test_a_line_of_a_log_is_a_finding_with_its_rank_and_place(kind: str):
    (finding,) = diagnose(with_incidents((3, kind, "EI0002", 17)), only=[device_error.RULE]).findings
    assert (finding.rule, finding.severity) == (device_error.RULE.name, "high")
    assert (finding.subject["ranks"], finding.subject["places"]) == ((3,), ("worker.log:17",))
    assert "worker.log, line 17" in finding.title


def test_other_incidents_are_none_of_it_and_a_run_without_any_is_not_measured():
    other = diagnose(with_incidents((0, "other", None, 1)), only=[device_error.RULE])
    assert (other.findings, [entry.rule for entry in other.healthy]) == ((), [device_error.RULE.name])
    bare = diagnose(with_incidents(), only=[device_error.RULE])
    assert [entry.rule for entry in bare.not_measured] == [device_error.RULE.name]
