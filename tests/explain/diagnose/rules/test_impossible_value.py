"""Figures that cannot be right, and those that are only high."""

from dataclasses import replace

import pytest

from perfkit.core.run import Fact
from perfkit.core.source import Source
from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules.impossible_value import RULE
from perfkit.record.format import Sink
from tests.explain.diagnose.made import Training, run_of, summaries

HEALTHY = Training(steps=3).run()


def judged(run):
    return diagnose(run, only=[RULE])


def logged(flops_per_s, device="A100-80GB-SXM"):
    sink = Sink()
    sink.add("log", rank=0, step=1, line=1, num_steps=1, duration_ns=10**9, flops_per_s_per_device=flops_per_s)
    return replace(run_of(sink), facts={"device_name": Fact(value=device, source=Source("measured", "made"))})


def test_a_plain_run_is_healthy_with_its_numbers():
    result = judged(HEALTHY)
    assert result.findings == ()
    assert result.healthy[0].evidence["negative_parts"] == 0


def test_a_step_shorter_than_its_computing_is_named():
    (found,) = judged(summaries({0: 300, 1: 100}, step_ms=200)).findings
    assert "steps_shorter_than_computing" in found.subject["figures"]
    assert found.severity == "high"


@pytest.mark.parametrize(("rate", "impossible"), [(180e12, False), (700e12, True)])
def test_more_operations_than_the_device_can_do_are_impossible(rate, impossible):
    assert bool(judged(logged(rate)).findings) == impossible


def test_an_unknown_device_has_no_peak():
    assert judged(logged(700e12, "no such device")).findings == ()


def test_without_steps_and_log_nothing_is_measured():
    assert judged(run_of(Sink())).not_measured


def test_how_much_of_the_peak_is_used_is_told_in_percent():
    (found,) = judged(logged(624e12)).findings
    assert "200 %" in found.title
