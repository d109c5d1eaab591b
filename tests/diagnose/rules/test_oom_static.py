"""Memory that does not fit because of what stays; and a run that fits."""

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
    (found,) = judged(45, 20).findings
    assert (found.rule, found.severity) == ("oom-static", "high")
    assert found.evidence["peak_bytes"] == 65 * GIB


def test_what_fits_is_healthy_for_both():
    result = judged(20, 30)
    assert (result.findings, [entry.rule for entry in result.healthy]) == ((), ["oom-static", "oom-dynamic"])


def test_without_a_statistic_nothing_is_measured():
    assert len(diagnose(run_of(Sink()), only=RULES).not_measured) == 2
