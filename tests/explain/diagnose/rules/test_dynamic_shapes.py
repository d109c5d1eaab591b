"""Shapes that change from step to step, and several shapes that every step has."""

import pytest

from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules.dynamic_shapes import RULE
from perfkit.record.format import Sink
from tests.explain.diagnose import made
from tests.explain.diagnose.made import Training, launched, run_of, stays_healthy


def judged(shapes_of_step, steps=5):
    sink = Sink()
    for step in range(1, steps + 1):
        shapes = shapes_of_step(step)
        ops = ["MatMul"] * len(shapes)
        starts = [step * 10_000_000 + 1_000_000 * at for at in range(len(ops))]
        sink.add("kernels", rank=0, step=step, name=ops, type=ops, kind="computing", input_shapes=shapes, start_ns=starts,
                 duration_ns=500_000)  # fmt: skip
        sink.add("steps", rank=0, step=step, duration_ns=10_000_000, computing_ns=500_000 * len(ops), free_ns=0)
    return diagnose(run_of(sink), only=[RULE])


def test_several_shapes_of_one_operator_in_every_step_are_healthy():
    result = judged(lambda step: ["4096,4096", "4096,1024", "8192,4096", "128,128"])
    assert result.findings == ()
    assert result.healthy[0].evidence["most_shapes_of_an_operator"] == 4


def test_a_sequence_of_another_length_in_every_step_is_named():
    (found,) = judged(lambda step: ["4096,4096", f"{512 + 8 * step},4096"]).findings
    assert found.subject["operators"] == ("MatMul",)
    assert found.evidence["changing_shapes_share_of_computing"] == pytest.approx(0.5)


def test_two_steps_tell_nothing_and_neither_do_kernels_without_shapes():
    assert judged(lambda step: [f"{step},1"], steps=2).not_measured
    assert diagnose(Training().run(), only=[RULE]).not_measured


def test_shapes_that_only_the_host_states_count_too():
    run = Training(ranks=1).run()
    steps = run.frame("kernels").query("kind == 'computing'")["step"]
    assert stays_healthy(RULE, launched(run, ["4,4096"] * len(steps)))["changing_shapes_share_of_computing"] == 0
    assert made.judged(RULE, launched(run, [f"4,{4096 + step}" for step in steps])).findings
