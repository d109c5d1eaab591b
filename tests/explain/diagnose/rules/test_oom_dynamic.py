"""Memory that does not fit because of what comes and goes."""

from perfkit.explain.diagnose import diagnose
from perfkit.record.format import Sink
from tests.explain.diagnose.made import GIB, OUT_OF_MEMORY, judged_memory, run_of


def test_the_larger_part_is_the_cause():
    (found,) = judged_memory(20, 45).findings
    assert (found.rule, found.severity) == ("oom-dynamic", "high")
    assert found.evidence["peak_bytes"] == 65 * GIB


def test_a_request_that_failed_counts_although_the_peak_was_below():
    assert [found.rule for found in judged_memory(20, 36, requested=4 * GIB).findings] == ["oom-dynamic"]


def test_what_fits_is_quiet():
    assert judged_memory(30, 20).findings == ()


def test_without_a_statistic_nothing_is_measured():
    assert len(diagnose(run_of(Sink()), only=OUT_OF_MEMORY).not_measured) == 2
