"""Collectives that timed out, as logs say it: with rank, file and line."""

from __future__ import annotations

import pytest

from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules import collective_timeout
from tests.explain.diagnose.made import with_incidents


@pytest.mark.parametrize("kind", ["collective_timeout"])
def test_a_line_of_a_log_is_a_finding_with_its_rank_and_place(kind: str):
    (finding,) = diagnose(with_incidents((3, kind, "EI0002", 17)), only=[collective_timeout.RULE]).findings
    assert (finding.rule, finding.severity) == (collective_timeout.RULE.name, "high")
    assert (finding.subject["ranks"], finding.subject["places"]) == ((3,), ("worker.log:17",))
    assert "worker.log, line 17" in finding.title


def test_other_incidents_are_none_of_it_and_a_run_without_any_is_not_measured():
    other = diagnose(with_incidents((0, "other", None, 1)), only=[collective_timeout.RULE])
    assert (other.findings, [entry.rule for entry in other.healthy]) == ((), [collective_timeout.RULE.name])
    bare = diagnose(with_incidents(), only=[collective_timeout.RULE])
    assert [entry.rule for entry in bare.not_measured] == [collective_timeout.RULE.name]


def test_many_ranks_that_tell_the_same_are_one_finding():
    run = with_incidents(*((rank, "collective_timeout", None, None) for rank in range(9)))
    (finding,) = diagnose(run, only=[collective_timeout.RULE]).findings
    assert finding.subject["ranks"] == tuple(range(9))
    assert finding.title.startswith("Ranks 0, 1, 2, 3, 4, 5 and 3 more")
