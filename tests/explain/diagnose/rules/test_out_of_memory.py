"""Out of memory, as logs say it: with rank, file and line."""

from __future__ import annotations

import pytest

from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules import out_of_memory
from tests.explain.diagnose.made import with_incidents


@pytest.mark.parametrize("kind", ["out_of_memory", "host_memory"])
def test_a_line_of_a_log_is_a_finding_with_its_rank_and_place(kind: str):
    (finding,) = diagnose(with_incidents((3, kind, "EI0002", 17)), only=[out_of_memory.RULE]).findings
    assert (finding.rule, finding.severity) == (out_of_memory.RULE.name, "high")
    assert (finding.subject["ranks"], finding.subject["places"]) == ((3,), ("worker.log:17",))
    assert "worker.log, line 17" in finding.title


def test_other_incidents_are_none_of_it_and_a_run_without_any_is_not_measured():
    other = diagnose(with_incidents((0, "other", None, 1)), only=[out_of_memory.RULE])
    assert (other.findings, [entry.rule for entry in other.healthy]) == ((), [out_of_memory.RULE.name])
    bare = diagnose(with_incidents(), only=[out_of_memory.RULE])
    assert [entry.rule for entry in bare.not_measured] == [out_of_memory.RULE.name]
