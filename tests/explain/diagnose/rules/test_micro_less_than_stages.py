"""Pipelines that fewer micro batches pass than there are stages, and those with enough."""

from dataclasses import replace
from functools import cache

import pytest

from perfkit.core.run import Fact
from perfkit.core.source import Source
from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.rules.micro_less_than_stages import RULE
from perfkit.predict.simulate import simulate
from perfkit.record.format import Sink
from tests.explain.diagnose.made import MS, Training, run_of, summaries
from tests.predict.simulate.plans import plan_of


@cache
def pipeline(micro_batches, stages, chunks=1, size=1):
    """A simulated run of which nothing is known but what was recorded; `size` is that of a micro batch."""
    plan = plan_of("llama2-7b", micro_batches * size, micro=size, pp=stages, vp=chunks)
    return replace(simulate(plan, steps=3), plan=None)


def judged(run):
    return diagnose(run, only=[RULE])


@pytest.mark.parametrize("stages", [2, 4])
def test_fewer_micro_batches_than_stages_cost_what_a_step_of_as_many_takes_less(stages):
    """The same batch in as many micro batches as stages takes as much less as the finding says, but for smaller products."""
    for few in range(1, stages):
        changed, repaired = pipeline(few, stages, size=stages), pipeline(stages, stages, size=few)
        (found,) = judged(changed).findings
        assert found.subject["stages"] == tuple(range(stages))
        won = changed.steps()["duration_ns"].mean() - repaired.steps()["duration_ns"].mean()
        assert won <= found.cost_ns <= 1.3 * won


@pytest.mark.parametrize("micro_batches", [2, 3, 8])
def test_as_many_are_enough(micro_batches):
    result = judged(pipeline(micro_batches, 2))
    assert result.findings == ()
    assert result.healthy[0].evidence == {"num_micro_batches": micro_batches, "num_stages": 2}


@pytest.mark.parametrize(("micro_batches", "stages", "chunks"), [(4, 2, 2), (8, 4, 2), (8, 2, 4), (2, 4, 1)])
def test_micro_batches_are_counted_by_receives_of_as_many_chunks_as_the_run_states(micro_batches, stages, chunks):
    run = pipeline(micro_batches, stages, chunks)
    stated = Fact(value=chunks, source=Source("measured", "log", ""))
    run = replace(run, facts={**run.facts, "virtual_pipeline_parallel_size": stated})
    assert Case(run).num_micro_batches == micro_batches


def test_what_ranks_of_a_stage_pass_among_themselves_is_no_micro_batch():
    """Rings of attention send and receive at once, hundreds of times a step."""
    run = replace(simulate(plan_of("llama2-7b", 4, pp=2, cp=2), steps=3), plan=None)
    calls = Case(run).members["operation"].value_counts()
    assert calls["send_receive"] > 10 * calls["receive"]
    assert Case(run).num_micro_batches == 4


def passing(*calls, step=1, chunks=None):
    """Two stages of a rank each, whose last one makes these calls."""
    sink = Sink()
    for rank in (0, 1):
        sink.add("steps", rank=rank, step=step, pipeline_stage=rank, duration_ns=100 * MS, computing_ns=50 * MS)
        sink.add("collectives", rank=rank, step=step, name="p2p", group="pp", group_size=2, duration_ns=MS,
                 operation=list(calls) if rank else [{"send": "receive", "receive": "send"}.get(call, call) for call in calls],
                 start_ns=[at * 2 * MS for at in range(len(calls))])  # fmt: skip
    stated = Fact(value=chunks, source=Source("measured", "log", ""))
    return replace(run_of(sink), facts={} if chunks is None else {"virtual_pipeline_parallel_size": stated})


BOTH = "send_receive"


@pytest.mark.parametrize("micro_batches", [1, 2, 5])
def test_calls_that_send_and_receive_at_once_are_counted_with_and_without_plain_ones(micro_batches):
    """One forward and one backward in turn: the first call of the last stage only receives, its last one only sends."""
    plain = passing(*["receive", "send"] * micro_batches)
    named = passing("receive", *[BOTH] * (micro_batches - 1), "send")
    alike = passing(*[BOTH] * (micro_batches + 1))
    assert [Case(run).num_micro_batches for run in (plain, named, alike)] == [micro_batches] * 3


def test_calls_of_several_chunks_that_hold_several_messages_are_not_counted():
    assert Case(passing(*[BOTH] * 9, chunks=2)).num_micro_batches is None


def test_a_run_that_lacks_stages_or_receives_is_not_measured():
    assert judged(Training().run()).not_measured[0].missing == ("at least two pipeline stages",)
    result = judged(summaries({0: 100, 1: 100}, stages={0: 0, 1: 1}))
    assert result.not_measured[0].missing == ("the number of micro batches",)
