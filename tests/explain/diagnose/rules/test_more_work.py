"""More is computed than in the baseline: more kernels cost what they take, and equal ones that are slower are no more work."""

import pytest

from perfkit.core.run import Run
from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules.more_work import RULE
from perfkit.record.format import Sink
from tests.explain.diagnose.made import MS, Training, judged, lacks, run_of, summaries


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


def of_kernels(counts: dict[int, dict[str, int]], *, factor: float = 1.0, shapes: str | None = None) -> Run:
    """Four steps of each rank, of so many kernels of a millisecond of each operator, which take `factor` times as long."""
    sink, length = Sink(), round(factor * MS)
    longest = length * max(sum(own.values()) for own in counts.values())
    for rank, own in counts.items():
        names = [name for name, count in own.items() for _ in range(count)]
        for step in range(4):
            sink.add(
                "kernels",
                rank=rank,
                step=step,
                name=names,
                type=names,
                kind="computing",
                stream="0",
                start_ns=[step * longest + at * length for at in range(len(names))],
                duration_ns=length,
                input_shapes=shapes,
            )
            busy = len(names) * length
            sink.add(
                "steps",
                rank=rank,
                step=step,
                duration_ns=longest,
                computing_ns=busy,
                communication_ns=longest - busy,
                overlapped_ns=0,
                exposed_communication_ns=longest - busy,
                free_ns=0,
            )
    return run_of(sink)


@pytest.mark.parametrize("shapes", [(None, "4,4"), ("4,4", None), ("4,4;", "[4, 4]")])
def test_shapes_that_are_not_recorded_alike_make_no_work_of_slower_kernels(shapes: tuple[str | None, str | None]):
    now, then = (of_kernels({0: {"A": 50}}, factor=each, shapes=shape) for each, shape in zip((1.5, 1.0), shapes, strict=True))
    (healthy,) = judged(RULE, now, then).healthy
    assert healthy.evidence["more_ns"] == 0.0


def test_ranks_that_run_less_of_an_operator_hide_no_rank_that_runs_more():
    now, then = (
        of_kernels({0: {"A": 60, "B": 50}, 1: {"A": 10, "B": 10}}),
        of_kernels({0: {"A": 20, "B": 50}, 1: {"A": 60, "B": 10}}),
    )
    (found,) = judged(RULE, now, then).findings
    assert (found.subject["ranks"], found.subject["operators"][0]) == ((0,), "A")
    assert found.cost_ns == pytest.approx(40 * MS)


def test_runs_without_a_rank_in_common_are_not_compared():
    found = judged(RULE, of_kernels({2: {"A": 80}, 3: {"A": 80}}), of_kernels({0: {"A": 50}, 1: {"A": 50}}))
    assert [entry.rule for entry in found.not_measured] == [RULE.name]


def test_without_a_baseline_and_without_its_kernels_nothing_is_judged():
    assert "earlier run" in lacks(RULE, Training().run())
    found = judged(RULE, Training().run(), summaries({0: 100, 1: 100}))
    assert [entry.rule for entry in found.not_measured] == [RULE.name]
