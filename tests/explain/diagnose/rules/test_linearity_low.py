"""How much of the throughput is kept when a job grows."""

from dataclasses import replace

import pytest

from perfkit.core.run import Fact
from perfkit.core.source import Source
from perfkit.explain.diagnose.rules.linearity_low import RULE
from perfkit.record.format import Sink
from tests.explain.diagnose.made import judged, run_of


def job(devices, batch, step_s, **facts):
    sink = Sink()
    sink.add("steps", rank=0, step=[1, 2, 3], duration_ns=round(step_s * 1e9))
    told = {"num_devices": devices, "global_batch_size": batch, **facts}
    return replace(run_of(sink), facts={name: Fact(value=value, source=Source("measured", "log")) for name, value in told.items()})


def test_the_guides_example_keeps_almost_ninety_percent():
    # 4,695 tokens/s on one device, 270,000 on 64: 89.9 %.
    one, many = job(1, 1, 4096 / 4695, seq_length=4096), job(64, 64, 64 * 4096 / 270_000, seq_length=4096)
    result = judged(RULE, many, one)
    assert result.findings == ()
    assert result.healthy[0].evidence["linearity"] == pytest.approx(270_000 / (64 * 4695))


def test_less_than_eighty_percent_is_named_for_weak_and_strong_scaling():
    for batch, step_s in ((16, 1.5), (1, 1.5 / 16)):
        (found,) = judged(RULE, job(16, batch, step_s), job(1, 1, 1.0)).findings
        assert found.evidence["linearity"] == pytest.approx(1 / 1.5)
        assert found.evidence["batch_over_baseline"] == batch
        assert found.severity == "medium"


def test_more_than_its_share_means_that_the_runs_do_not_fit_together():
    (found,) = judged(RULE, job(16, 16, 0.5), job(1, 1, 1.0)).findings
    assert found.severity == "high"
    assert "do not fit" in found.title


def test_without_a_smaller_run_it_is_not_measured():
    for baseline in (None, job(16, 16, 1.0), job(32, 32, 1.0)):
        assert judged(RULE, job(16, 16, 1.0), baseline).not_measured
