"""Memory that does not fit because of what comes and goes."""

from perfkit.diagnose import diagnose
from perfkit.diagnose.rules import oom_dynamic, oom_static
from perfkit.trace._format import Sink
from tests.diagnose.made import run_of

GIB = 2**30
RULES = (oom_static.RULE, oom_dynamic.RULE)


def judged(static, dynamic, requested=None):
    sink = Sink()
    sink.add("memory_reports", rank=0, block=0, file="rank_0.log", line=1, device_bytes=64 * GIB, budget_bytes=58 * GIB,
             actual_peak_bytes=(static + dynamic) * GIB, static_bytes=static * GIB, dynamic_bytes=dynamic * GIB,
             requested_bytes=requested)  # fmt: skip
    return diagnose(run_of(sink), only=RULES)


def test_the_larger_part_is_the_cause():
    (found,) = judged(20, 45).findings
    assert (found.rule, found.severity) == ("oom-dynamic", "high")
    assert found.evidence["peak_bytes"] == 65 * GIB


def test_a_request_that_failed_counts_although_the_peak_was_below():
    assert [found.rule for found in judged(20, 36, requested=4 * GIB).findings] == ["oom-dynamic"]


def test_what_fits_is_quiet():
    assert judged(30, 20).findings == ()


def test_without_a_statistic_nothing_is_measured():
    assert len(diagnose(run_of(Sink()), only=RULES).not_measured) == 2
