"""More is computed than in the baseline: more kernels cost what they take, and equal ones that are slower are no more work."""

import pytest

from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules.more_work import RULE
from tests.explain.diagnose.made import Training, judged, lacks, summaries


def test_more_layers_than_in_the_baseline_cost_what_they_take():
    now, then = Training(noise=0.0, layers=6).run(), Training(noise=0.0, layers=4).run()
    (found,) = judged(RULE, now, then).findings
    lost = now.steps()["duration_ns"].mean() - then.steps()["duration_ns"].mean()
    assert found.cost_ns == pytest.approx(lost, rel=0.02)
    assert found.subject["ranks"] == (0, 1, 2, 3)
    assert found.evidence["kernels_a_step"] > found.evidence["baseline_kernels_a_step"]


def test_fewer_or_slower_kernels_are_no_more_work():
    usual = Training(noise=0.0).run()
    for now in (Training(noise=0.0, layers=3), Training(noise=0.0, slow={"MatMul": 1.5})):
        (healthy,) = judged(RULE, now.run(), usual).healthy
        assert healthy.evidence["more_ns"] == 0.0


def test_what_is_computed_again_for_the_backward_pass_is_told_as_such_and_not_twice():
    found = {one.rule: one for one in diagnose(Training(noise=0.0, recompute=True).run(), Training(noise=0.0).run()).findings}
    assert RULE.name in found["recompute-cost"].next
    assert RULE.name not in found


def test_without_a_baseline_and_without_its_kernels_nothing_is_judged():
    assert "earlier run" in lacks(RULE, Training().run())
    found = judged(RULE, Training().run(), summaries({0: 100, 1: 100}))
    assert [entry.rule for entry in found.not_measured] == [RULE.name]
