"""Pipelines whose stages all wait longer than the schedule needs, and those that only wait for a stage with more work."""

from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules.pipeline_bubble import RULE
from perfkit.record.format import Sink
from tests.explain.diagnose.made import MS, Training, run_of

MICRO_BATCHES = 8
"""Two stages then have a bubble of 1/8 of their work."""


def judged(run):
    return diagnose(run, only=[RULE])


def waiting(bubbles_ms):
    """Two stages of two ranks: a step of 100 ms, of which each stage waits so long."""
    sink = Sink()
    for rank in range(4):
        for step in (1, 2, 3):
            bubble = bubbles_ms[rank // 2] * MS
            sink.add("steps", rank=rank, step=step, pipeline_stage=rank // 2, duration_ns=100 * MS, computing_ns=100 * MS - bubble,
                     exposed_communication_ns=0, free_ns=0, bubble_ns=bubble)  # fmt: skip
            for micro in range(MICRO_BATCHES):
                sink.add("collectives", rank=rank, step=step, name="hcom_receive_" if rank < 2 else "hcom_send_",
                         operation="receive" if rank < 2 else "send", group=f"pp{rank % 2}", group_size=2,
                         start_ns=step * 100 * MS + micro * 10 * MS, duration_ns=MS, bytes=2**20)  # fmt: skip
    return run_of(sink)


def test_the_bubble_that_the_schedule_needs_is_healthy_with_its_numbers():
    result = judged(waiting([12, 11]))
    assert result.findings == ()
    assert result.healthy[0].evidence["expected_bubble_over_work"] == 1 / MICRO_BATCHES


def test_a_stage_that_waits_for_a_longer_one_is_not_the_schedules_fault():
    assert judged(waiting([40, 10])).findings == ()


def test_waiting_of_all_stages_beyond_the_schedule_costs_what_it_is_too_long():
    (found,) = judged(waiting([32, 30])).findings
    assert found.subject["stages"] == (0, 1)
    assert found.cost_ns == round(30 * MS - 70 * MS / MICRO_BATCHES)


def test_one_stage_is_not_measured():
    assert judged(Training().run()).not_measured[0].missing == ("at least two pipeline stages",)
