"""Memory that does not fit because of what stays; and a run that fits."""

from perfkit.explain.diagnose import diagnose
from perfkit.record.format import Sink
from tests.explain.diagnose.made import GIB, OUT_OF_MEMORY, judged_memory, run_of


def test_the_larger_part_is_the_cause():
    (found,) = judged_memory(45, 20).findings
    assert (found.rule, found.severity) == ("oom-static", "high")
    assert found.evidence["peak_bytes"] == 65 * GIB


def test_what_fits_is_healthy_for_both():
    result = judged_memory(20, 30)
    assert (result.findings, [entry.rule for entry in result.healthy]) == ((), ["oom-static", "oom-dynamic"])


def test_without_a_statistic_nothing_is_measured():
    assert len(diagnose(run_of(Sink()), only=OUT_OF_MEMORY).not_measured) == 2
