"""Schedules against published cases, closed forms and a run event by event."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.core.errors import InputError
from perfkit.predict.plans.balance.case_file import read_schedules
from perfkit.predict.plans.schedule._graph import Edge, Node, ScheduleError, graph_of, sort_graph
from perfkit.predict.plans.schedule.compile import compile_schedule
from perfkit.predict.plans.schedule.longest import makespans
from perfkit.predict.plans.schedule.order import INTERLEAVED, SPLIT, Op
from perfkit.predict.plans.schedule.schedule import ScheduleCase, simulate_schedule
from tests.predict.plans.case_documents import CASES, document
from tests.predict.plans.event_simulator import simulate

FILES = ("d01", "d02", "d03")


def expected_cases():
    for name in FILES:
        (path,) = CASES.glob(f"{name}_*.json")
        answers = [case["expected"] for case in document(name)["cases"]]
        for index, (case, answer) in enumerate(zip(read_schedules(path), answers, strict=True)):
            yield pytest.param(case, answer, id=f"{name}-{index}-{case.schedule}-{case.p2p_mode}")


@pytest.mark.parametrize(("case", "answer"), list(expected_cases()))
def test_every_field_of_a_case_is_reproduced_exactly(case, answer):
    found = simulate_schedule(case).to_dict()
    assert found == {
        key: pytest.approx(value, abs=1e-12, rel=0) if isinstance(value, float) else value for key, value in answer.items()
    }


@st.composite
def cases(
    draw, schedules=("gpipe", "1f1b", "zbh1", "vpp", "vpp_lm", "dualpipe"), modes=("none", "overlap", "sender", "rendezvous")
):
    schedule = draw(st.sampled_from(schedules))
    stages = draw(st.sampled_from([2, 4])) if schedule == "dualpipe" else draw(st.integers(1, 5))
    chunks = draw(st.integers(1, 3)) if schedule in INTERLEAVED else 1
    if schedule == "dualpipe":
        microbatches = 2 * draw(st.integers(stages, stages + 3))
    else:
        microbatches = draw(st.integers(stages if schedule in INTERLEAVED else 1, 9))
    mode = draw(st.sampled_from([mode for mode in modes if mode != "rendezvous" or schedule in ("gpipe", "1f1b")]))
    rows = st.tuples(*[st.tuples(*[st.integers(0, 50)] * stages)] * chunks)
    return ScheduleCase(
        schedule=schedule,
        num_stages=stages,
        num_chunks=chunks,
        num_microbatches=microbatches,
        fwd_ns=draw(rows),
        bwd_ns=draw(rows),
        wgrad_ns=draw(rows) if schedule in SPLIT else None,
        p2p_ns=draw(st.integers(0, 20)),
        p2p_mode=mode,
    )


@settings(max_examples=250, deadline=None)
@given(cases())
def test_the_makespan_is_that_of_a_run_event_by_event(case):
    assert simulate_schedule(case).makespan_ns == simulate(case)


@settings(max_examples=60, deadline=None)
@given(cases(), st.integers(2, 50), st.sampled_from((1, 200)))
def test_a_batch_gives_the_makespan_of_each_of_its_layouts(case, factor, times):
    table = np.array(case.durations_ns(), dtype=np.int64)
    found = makespans(case.dag, np.stack([table, factor * table, 0 * table] * times, axis=1))
    one = simulate_schedule(case).makespan_ns
    assert found.tolist() == [one, factor * one, 0] * times


@settings(max_examples=100, deadline=None)
@given(cases())
def test_the_critical_path_adds_up_to_the_makespan_and_is_connected(case):
    result = simulate_schedule(case)
    rows = result.frame()
    critical = rows[rows["critical"] & (rows["op"] != "transfer")]
    nodes, table = case.dag.nodes, case.durations_ns()
    worked = sum(table[row] for node in result.path if nodes[node].item for row in nodes[node].rows)
    assert int((critical["end_ns"] - critical["start_ns"]).sum()) == worked <= result.makespan_ns
    assert all(
        before in {edge.node for edge in nodes[after].after} for before, after in zip(result.path, result.path[1:], strict=False)
    )


@settings(max_examples=100, deadline=None)
@given(cases())
def test_operations_of_a_stage_never_overlap_and_work_plus_idle_is_the_makespan(case):
    result = simulate_schedule(case)
    for stage, rows in result.frame().groupby("stage"):
        assert (rows["start_ns"].to_numpy()[1:] >= rows["end_ns"].to_numpy()[:-1]).all()
        assert result.stage_busy_ns[int(stage)] + result.stage_idle_ns[int(stage)] == result.makespan_ns


@settings(max_examples=100, deadline=None)
@given(cases())
def test_every_forward_and_backward_of_every_micro_batch_runs_once_on_every_stage(case):
    held = 2 if case.schedule == "dualpipe" else case.num_chunks
    per_stage = case.num_chunks * case.num_microbatches
    for lane in case.dag.lanes:
        ops = [op for item in lane for op in item]
        assert len(set(ops)) == len(ops)
        for kind in "FBW" if case.schedule in SPLIT else "FB":
            assert sum(op.kind == kind for op in ops) == per_stage
        assert {op.chunk for op in ops} == set(range(held))


@settings(max_examples=60, deadline=None)
@given(cases(modes=("none",)), st.integers(0, 20))
def test_slower_transfers_never_shorten_a_step(case, hop_ns):
    times = [
        simulate_schedule(replace(case, p2p_ns=hop_ns, p2p_mode=mode)).makespan_ns
        for mode in ("none", "overlap", "sender", "rendezvous")
        if mode != "rendezvous" or case.schedule in ("gpipe", "1f1b")
    ]
    assert times[0] <= times[1] <= times[2]
    assert times[-1] >= times[1]
    assert simulate_schedule(replace(case, p2p_ns=0, p2p_mode="overlap")).makespan_ns == times[0]


@settings(max_examples=60, deadline=None)
@given(cases(schedules=("1f1b", "vpp"), modes=("none", "overlap")))
def test_a_longer_operation_never_shortens_a_step(case):
    longer = tuple(tuple(value + 7 for value in row) for row in case.fwd_ns)
    assert simulate_schedule(replace(case, fwd_ns=longer)).makespan_ns >= simulate_schedule(case).makespan_ns


def even(schedule, stages, microbatches, *, forward=10, backward=20, weight=None, chunks=1):
    rows = [((value,) * stages,) * chunks if value is not None else None for value in (forward, backward, weight)]
    return simulate_schedule(
        ScheduleCase(
            schedule=schedule,
            num_stages=stages,
            num_chunks=chunks,
            num_microbatches=microbatches,
            fwd_ns=rows[0],
            bwd_ns=rows[1],
            wgrad_ns=rows[2],
        )
    )


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (4, 8), (8, 8), (8, 3), (5, 32)])
def test_equal_stages_take_the_time_of_the_closed_form(schedule, stages, microbatches):
    # arXiv 1811.06965 and 2104.04473: the bubble is (p - 1) / m of the work.
    result = even(schedule, stages, microbatches)
    assert result.makespan_ns == (microbatches + stages - 1) * 30
    assert result.bubble_over_work == pytest.approx((stages - 1) / microbatches, abs=1e-12)


@pytest.mark.parametrize("schedule", ["vpp", "vpp_lm"])
@pytest.mark.parametrize(("stages", "microbatches", "chunks"), [(4, 8, 2), (4, 4, 3), (8, 16, 2), (2, 6, 4)])
def test_interleaving_divides_the_bubble_by_the_chunks(schedule, stages, microbatches, chunks):
    result = even(schedule, stages, microbatches, chunks=chunks)
    assert result.bubble_over_work == pytest.approx((stages - 1) / (microbatches * chunks), abs=1e-12)


@pytest.mark.parametrize(("stages", "microbatches"), [(4, 8), (6, 12), (8, 20)])
def test_the_bubble_of_zb_h1_is_a_third_of_that_of_1f1b(stages, microbatches):
    # arXiv 2401.10241, table 1: (p - 1) (F + B - W).
    result = even("zbh1", stages, microbatches, forward=10, backward=10, weight=10)
    assert set(result.stage_idle_ns) == {(stages - 1) * 10}


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 4), (4, 8), (4, 20), (8, 16), (16, 40)])
@pytest.mark.parametrize("weight", [3, 7, 10])
def test_the_bubble_of_dualpipe_is_the_published_one(stages, microbatches, weight):
    # deepseek-ai/DualPipe README: (PP / 2 - 1) (F&B + B - 3W), up to PP + 1 activations; exact for F = input gradient >= W.
    result = even("dualpipe", stages, microbatches, forward=10, backward=10, weight=weight)
    whole = 10 + weight
    assert set(result.stage_idle_ns) == {(stages // 2 - 1) * (10 + whole + whole - 3 * weight)}
    assert result.peak_inflight_chunks == (stages + 1,) * stages


def test_an_overlapped_pair_of_dualpipe_takes_the_time_that_is_given_for_it():
    case = even("dualpipe", 4, 16, forward=10, backward=10, weight=10).case
    slow, fast = (simulate_schedule(replace(case, pair_ns=(time,) * 4)) for time in (30, 20))
    assert slow.makespan_ns == simulate_schedule(case).makespan_ns
    pairs = int((fast.frame()["op"] == "FBW").sum()) // 4
    assert slow.stage_busy_ns[0] - fast.stage_busy_ns[0] == 10 * pairs > 0


def test_one_chunk_of_less_memory_interleaving_is_1f1b():
    plain = even("1f1b", 4, 8)
    assert even("vpp_lm", 4, 8).to_dict() == plain.to_dict()


def test_unequal_stages_do_not_follow_the_closed_form_of_the_slowest():
    case = ScheduleCase(schedule="1f1b", num_stages=2, num_microbatches=4, fwd_ns=((10, 1),), bwd_ns=((10, 1),))
    assert simulate_schedule(case).makespan_ns == 80  # sum + (m - 1) max would say 82


def test_a_circle_of_waiting_stages_is_an_error_that_names_them():
    first, second = ((Op("F", 0, chunk),) for chunk in (0, 1))
    nodes = [Node(first, (0,), (0,), (Edge(1, False),)), Node(second, (1,), (0,), (Edge(0, False),))]
    with pytest.raises(ScheduleError, match=r"stage 0 for F0\.0, stage 1 for F0\.1"):
        sort_graph(graph_of(nodes))


def test_all_problems_of_a_case_are_listed():
    with pytest.raises(InputError) as error:
        ScheduleCase(schedule="1f1b", num_stages=2, num_microbatches=4, fwd_ns=((10,),), bwd_ns=((-1, 10**13),), wgrad_ns=((1, 1),))
    assert len(error.value.problems) == 4


@pytest.mark.parametrize(
    ("schedule", "stages", "chunks", "microbatches", "words"),
    [
        ("vpp", 4, 2, 3, "needs at least num_stages"),
        ("1f1b", 4, 2, 8, "has one chunk"),
        ("dualpipe", 3, 1, 8, "even number of stages"),
        ("dualpipe", 4, 1, 6, "at least 8"),
        ("pipedream", 4, 1, 6, "must be one of"),
        ("1f1b", 1000, 1, 10_000, "more than 1000000 operations"),
        ("1f1b", 0, 1, 10, "must be positive"),
    ],
)
def test_a_schedule_that_does_not_exist_says_why(schedule, stages, chunks, microbatches, words):
    with pytest.raises(InputError, match=words):
        compile_schedule(schedule, stages, chunks, microbatches)


def test_blocking_transfers_are_refused_where_they_are_not_defined():
    with pytest.raises(InputError, match="not for vpp"):
        compile_schedule("vpp", 2, 2, 4, "rendezvous")
