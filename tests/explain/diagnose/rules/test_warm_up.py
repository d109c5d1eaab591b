"""A recording that begins with warm-up."""

from perfkit.explain.diagnose.rules.warm_up import RULE
from perfkit.record.format import Sink
from tests.explain.diagnose.made import MS, Training, healthy, judged, lacks, run_of, stays_healthy


def test_a_long_first_step_is_named_and_the_others_are_judged():
    run = Training(lead_us={rank: lambda step: 30_000.0 * (step == 1) for rank in range(4)}).run()
    (found,) = judged(RULE, run).findings
    assert found.subject["steps"] == (1,)
    assert found.severity == "low"
    assert judged(RULE, run).notes == ("step 1 is warm-up and was left out",)


def test_too_few_steps_besides_make_it_worse():
    run = Training(steps=3, lead_us={rank: lambda step: 30_000.0 * (step == 1) for rank in range(4)}).run()
    assert judged(RULE, run).findings[0].severity == "medium"


def test_equal_steps_are_fine_and_a_log_always_begins_with_one():
    assert stays_healthy(RULE, healthy())["first_over_usual"] < 1.1
    sink = Sink()
    sink.add("steps", rank=0, step=[1, 2, 3, 4], duration_ns=[900 * MS, 100 * MS, 100 * MS, 100 * MS])
    assert lacks(RULE, run_of(sink)) == "a recording of kernels or collectives"
