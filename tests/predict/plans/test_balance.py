"""Balance against stated optima, against enumeration, and in its promises about bounds."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.core.errors import InputError
from perfkit.face import cli
from perfkit.predict.plans.balance import _solve
from perfkit.predict.plans.balance._cuts import deciding_cuts
from perfkit.predict.plans.balance._evaluator import Evaluator
from perfkit.predict.plans.balance._milp import StoppedError
from perfkit.predict.plans.balance._options import OptionTable
from perfkit.predict.plans.balance._schedule_model import ScheduleModel
from perfkit.predict.plans.balance._search import layout_of
from perfkit.predict.plans.balance.balance import balance, layout_peaks_bytes, schedule_case
from perfkit.predict.plans.balance.case_file import read_problem
from perfkit.predict.plans.balance.problem import (
    EndPart,
    Kind,
    LayerType,
    PipelineProblem,
    kind_counts,
    layers_of,
    layout_from_kind_counts,
    layout_problems,
)
from perfkit.predict.plans.schedule.schedule import simulate_schedule
from tests.predict.plans.case_documents import CASES, document

OPTIMAL = ("d05", "d06", "d07", "d08", "d09", "d10", "d21")
QUICK = ("d05", "d08", "d09", "d10", "d21")


def path_of(name):
    (path,) = CASES.glob(f"{name}_*.json")
    return path


@pytest.mark.parametrize("name", OPTIMAL)
def test_the_stated_layout_has_the_stated_makespan_and_peaks(name):
    problem, answer = read_problem(path_of(name)), document(name)["expected"]
    layout = layout_from_kind_counts(problem, answer["one_layout"]["kind_counts"])
    assert layout_problems(problem, layout) == []
    assert layers_of(layout) == answer["one_layout"]["layers"]
    assert simulate_schedule(schedule_case(problem, layout)).makespan_ns == answer["makespan_ns"]
    assert list(layout_peaks_bytes(problem, layout)) == answer["peak_bytes"]


def public_layout(name):
    """The layout of the public tool, whose inclusive lists are taken apart into disjoint kinds."""
    data = document(name)
    problem, public = read_problem(path_of(name)), data.get("public_layout") or data["layout"]
    layers = np.array(public.get("layers", 0))
    if "offset" in public:
        offset = np.atleast_2d(public["offset"])
        base = public.get("base_layers_per_chunk", problem.num_layers // offset.size)
        layers = offset + base
    full = np.atleast_2d(public["recompute"])
    select = np.atleast_2d(public.get("select_recompute", full))
    comm = np.atleast_2d(public.get("select_comm_recompute", full))
    both = np.minimum(select, comm)
    found = {
        "full": full,
        "both": both - full,
        "select": select - both,
        "comm": comm - both,
        "none": np.atleast_2d(layers) - np.maximum(select, comm),
    }
    return problem, layout_from_kind_counts(problem, {problem.body[0].name: found}), data


@pytest.mark.parametrize("name", ["d06", "d08", "d15"])
def test_a_published_layout_of_the_public_tool_simulates_to_its_published_figure(name):
    problem, layout, data = public_layout(name)
    public = data["public_layout"]
    assert simulate_schedule(schedule_case(problem, layout)).makespan_ns == public["makespan_ns"]
    assert list(layout_peaks_bytes(problem, layout)) == public["peak_bytes"]


def test_the_published_layout_with_three_chunks_is_equal_to_the_last_digit(tmp_path):
    path = tmp_path / "case.json"
    path.write_text(json.dumps({**document("d04"), "format": "perfkit.plans.plan/1"}))
    problem = read_problem(path)
    data = document("d04")
    lists = {name: np.array(data["layout"][name]) for name in ("recompute", "select_recompute", "select_comm_recompute")}
    # This file's lists are disjoint, as the tool's simulator takes them: full, select, comm.
    answer = data["expected"]
    layers = np.array(data["layout"]["offset"]) + data["layout"]["base_layers_per_chunk"]
    full, select, comm = lists.values()
    both = np.minimum(select, comm) - np.minimum(full, np.minimum(select, comm))
    counts = {
        "full": full,
        "both": both,
        "select": select - both - full,
        "comm": comm - both - full,
        "none": layers - np.maximum(select, comm),
    }
    layout = layout_from_kind_counts(problem, {"LLamaDecodeLayer": {kind: np.maximum(rows, 0) for kind, rows in counts.items()}})
    assert simulate_schedule(schedule_case(problem, layout)).makespan_ns == answer["makespan_ns"]
    assert list(layout_peaks_bytes(problem, layout)) == answer["peak_bytes"]
    assert [list(row) for row in schedule_case(problem, layout).fwd_ns] == answer["stage_fwd_ns"]


@pytest.mark.parametrize("name", QUICK)
def test_the_optimum_is_found_and_proven(name):
    answer, result = document(name)["expected"], balance(path_of(name), time_limit_s=60)
    assert (result.status, result.makespan_ns, result.bound_ns, result.gap) == (
        "optimal",
        answer["makespan_ns"],
        answer["bound_ns"],
        0,
    )
    limit = result.problem.memory_limit_bytes
    assert layout_problems(result.problem, result.layout) == []
    assert max(result.peak_bytes) <= limit
    assert list(result.peak_bytes) == list(layout_peaks_bytes(result.problem, result.layout))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["d06", "d07"])
def test_the_public_tools_own_examples_are_solved_to_a_proven_optimum(name):
    answer, result = document(name)["expected"], balance(path_of(name), time_limit_s=300)
    assert (result.status, result.makespan_ns) == ("optimal", answer["makespan_ns"])
    public = document(name).get("public_layout")
    assert public is None or result.makespan_ns <= public["makespan_ns"]


@pytest.mark.slow
def test_three_chunks_a_stage_beat_the_best_known_layout_and_the_bound_holds():
    answer, result = document("d15")["expected"], balance(path_of("d15"), time_limit_s=20)
    assert result.makespan_ns <= document("d15")["public_layout"]["makespan_ns"]
    assert max(result.peak_bytes) <= result.problem.memory_limit_bytes
    assert answer["proven_bound_ns"] < result.bound_ns <= answer["best_known_ns"]
    assert result.makespan_ns < answer["best_known_ns"]
    assert result.gap < 0.07


def test_a_limit_that_nothing_fits_gives_the_smallest_one_that_works():
    result = balance(path_of("d11"))
    assert (result.status, result.smallest_feasible_limit_mib) == (
        "infeasible",
        document("d11")["expected"]["smallest_feasible_limit_mib"],
    )
    enough = balance(replace(result.problem, memory_limit_bytes=1700 * 2**20))
    assert enough.status == "optimal"
    assert balance(replace(result.problem, memory_limit_bytes=1700 * 2**20 - 1)).status == "infeasible"
    assert enough.peak_bytes[result.binding_stage] == 1700 * 2**20


def layouts(problem):
    """Every layout there is: each layer in turn goes to a position at or after that of the one before it, in any kind."""
    positions = problem.num_chunks * problem.num_stages
    types = [index for index, part in enumerate(problem.body) for _ in range(part.count)]
    for places in itertools.combinations_with_replacement(range(positions), len(types)):
        held = np.zeros((len(problem.body), positions), dtype=np.int64)
        for index, place in zip(types, places, strict=True):
            held[index, place] += 1
        if held.sum(axis=0).min() < problem.min_layers_per_chunk:
            continue
        rows = [
            [row for row, variety in enumerate(problem.varieties) if variety.type == index] for index in range(len(problem.body))
        ]
        cells = [(index, place) for index, place in np.argwhere(held).tolist()]
        mixes = [list(compositions(int(held[cell]), len(rows[cell[0]]))) for cell in cells]
        for chosen in itertools.product(*mixes):
            layout = np.zeros((len(problem.varieties), positions), dtype=np.int64)
            for (index, place), mix in zip(cells, chosen, strict=True):
                layout[rows[index], place] = mix
            yield layout.reshape(-1, problem.num_chunks, problem.num_stages)


def compositions(total, parts):
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in compositions(total - first, parts - 1):
            yield (first, *rest)


@pytest.mark.parametrize(("name", "count"), [("d05", 355), ("d09", 292)])
def test_the_optimum_is_the_best_of_all_layouts(name, count):
    problem = read_problem(path_of(name))
    evaluator = Evaluator(problem)
    every = np.stack(list(layouts(problem)))
    fitting = every[evaluator.fits(every)]
    assert len(fitting) == count == document(name)["expected"]["feasible_layouts"]
    assert int(evaluator.makespans_ns(fitting).min()) == balance(problem).makespan_ns


@st.composite
def problems(draw):
    schedule = draw(st.sampled_from(["gpipe", "1f1b", "zbh1", "vpp", "vpp_lm"]))
    stages = draw(st.integers(1, 3))
    chunks = draw(st.integers(1, 2)) if schedule.startswith("vpp") and stages < 3 else 1
    least = draw(st.integers(0, 1))
    times, sizes = st.integers(0, 40), st.integers(0, 30)
    mode = draw(
        st.sampled_from(["none", "overlap", "sender", "rendezvous"] if schedule in ("gpipe", "1f1b") else ["none", "overlap"])
    )

    def kind(extra):
        return Kind(bwd_ns=draw(times) + extra, act_bytes=draw(sizes), wgrad_ns=draw(times) if schedule == "zbh1" else 0)

    def layer(name, count):
        kinds = {
            word: kind(5 * place)
            for place, word in enumerate(draw(st.sampled_from([("none",), ("none", "full"), ("none", "select", "comm")])))
        }
        return LayerType(name=name, count=count, fwd_ns=draw(times), param_bytes=draw(sizes), kinds=kinds)

    body = [layer("dense", draw(st.integers(max(1, stages * chunks * least), 5)))]
    if draw(st.booleans()) and chunks == 1 and stages < 3:
        body.append(layer("moe", draw(st.integers(1, 2))))
    end = st.none() | st.builds(EndPart, fwd_ns=times, bwd_ns=times, param_bytes=sizes, act_bytes=sizes)
    return PipelineProblem(
        schedule=schedule,
        num_stages=stages,
        num_chunks=chunks,
        num_microbatches=draw(st.integers(stages, 5)),
        body=tuple(body),
        head=draw(end),
        tail=draw(end),
        memory_limit_bytes=draw(st.none() | st.integers(0, 500)),
        const_bytes=draw(st.integers(-10, 30)),
        p2p_ns=draw(times),
        p2p_mode=mode,
        min_layers_per_chunk=least,
    )


@settings(max_examples=70, deadline=None)
@given(problems())
def test_random_small_problems_are_solved_as_by_enumeration(problem):
    evaluator = Evaluator(problem)
    every = np.stack(list(itertools.islice(layouts(problem), 20_000)))
    fitting = every[evaluator.fits(every)]
    result = balance(problem, time_limit_s=20)
    if not len(fitting):
        assert result.status == "infeasible"
        assert result.smallest_feasible_limit_mib == -(-int(evaluator.peaks_bytes(every).max(axis=1).min()) // 2**20)
    else:
        assert (result.status, result.makespan_ns) == ("optimal", int(evaluator.makespans_ns(fitting).min()))


def test_a_schedule_of_many_operations_is_solved_with_paths_to_the_same_optimum(monkeypatch):
    monkeypatch.setattr(_solve, "FEW_OPERATIONS", 0)
    result = balance(path_of("d09"))
    assert (result.status, result.makespan_ns) == ("optimal", document("d09")["expected"]["makespan_ns"])
    assert result.num_cuts > 0


@pytest.mark.parametrize("mode", ["none", "overlap", "sender"])
def test_the_relaxation_with_all_operations_is_as_long_as_the_simulation_of_the_only_layout_left(mode):
    evaluator = Evaluator(replace(read_problem(path_of("d09")), p2p_ns=700, p2p_mode=mode))
    options = OptionTable(evaluator).all_stages(10**9)
    model = ScheduleModel(evaluator, options, 1000.0)
    root = model.relaxed([np.ones(len(part), bool) for part in options], None, 1e12, lambda: True)
    chosen = [part.counts.sum(axis=(1, 2)).tolist().index(6 // len(options)) for part in options]
    only = [np.arange(len(part)) == index for part, index in zip(options, chosen, strict=True)]
    found = model.relaxed(only, root.basis, 1e12, lambda: True)
    makespan_ns = int(evaluator.makespans_ns(layout_of(options, chosen)[None])[0])
    assert found.value_ns == pytest.approx(makespan_ns, rel=1e-9)
    assert root.value_ns <= makespan_ns
    assert model.relaxed(only, root.basis, makespan_ns * 0.99, lambda: True) is None
    with pytest.raises(StoppedError):
        model.relaxed([np.ones(len(part), bool) for part in options], None, 1e12, lambda: False)
    assert model.relaxed(only, None, 1e12, lambda: True) is not None


@settings(max_examples=60, deadline=None)
@given(problems(), st.randoms(use_true_random=False))
def test_a_cut_of_one_layout_is_a_lower_bound_of_every_other(problem, random):
    evaluator = Evaluator(problem)
    every = list(itertools.islice(layouts(problem), 500))
    one, other = random.choice(every), random.choice(every)
    times = evaluator.chunk_times_ns(np.stack([one, other]))
    makespan = evaluator.makespans_ns(np.stack([one, other]))
    longest = 0.0
    for length, cut in deciding_cuts(evaluator, times[0].astype(float)):
        assert int((cut.counts * times[0]).sum()) + cut.comm_ns == length
        assert int((cut.counts * times[1]).sum()) + cut.comm_ns <= makespan[1]
        longest = max(longest, length)
    assert longest == makespan[0] or problem.p2p_mode == "sender"


@settings(max_examples=40, deadline=None)
@given(problems(), st.randoms(use_true_random=False))
def test_memory_peaks_are_those_of_replaying_the_operations(problem, random):
    evaluator = Evaluator(problem)
    layout = random.choice(list(itertools.islice(layouts(problem), 500)))
    acts = np.tensordot(layout, evaluator.act_bytes, (0, 0)) + evaluator.fixed["act_bytes"]
    static = (np.tensordot(layout, evaluator.param_bytes, (0, 0)) + evaluator.fixed["param_bytes"]).sum(axis=0)
    release = "W" if problem.schedule == "zbh1" else "B"
    for stage, lane in enumerate(evaluator.dag.lanes):
        live = peak = 0
        for (op,) in lane:
            live += int(acts[op.chunk, stage]) * ((op.kind == "F") - (op.kind == release))
            peak = max(peak, live)
        assert layout_peaks_bytes(problem, layout)[stage] == problem.const_bytes + int(static[stage]) + peak


def test_a_larger_limit_never_makes_the_best_step_longer():
    problem = read_problem(path_of("d10"))
    limits = [problem.memory_limit_bytes + step * 2**29 for step in (-1, 0, 2, 6)]
    found = [balance(replace(problem, memory_limit_bytes=limit)).makespan_ns for limit in limits]
    assert found == sorted(found, reverse=True)


def test_a_cancelled_solve_returns_its_best_layout_with_a_bound_and_a_gap():
    seen = []

    def stop(now):
        seen.append(now)
        return len(seen) < 2

    result = balance(path_of("d15"), time_limit_s=60, progress=stop)
    assert result.status == "time_limit"
    assert max(result.peak_bytes) <= result.problem.memory_limit_bytes
    assert 0 < result.bound_ns <= document("d15")["expected"]["best_known_ns"]
    assert result.gap == (result.makespan_ns - result.bound_ns) / result.makespan_ns > 0


def test_a_layout_to_start_from_is_never_made_worse(monkeypatch):
    problem, layout, data = public_layout("d15")
    result = balance(problem, time_limit_s=0.0, start=layout)
    assert result.makespan_ns <= data["public_layout"]["makespan_ns"]
    # A machine so busy that the search for the leanest layout has only a layout that does not fit.
    too_fat = np.zeros_like(layout)
    too_fat[:, 0, 0] = layout.sum(axis=(1, 2))
    assert not Evaluator(problem).fits(too_fat[None])[0]
    monkeypatch.setattr("perfkit.predict.plans.balance.balance.least_peak_layout", lambda evaluator, limit_s: (too_fat, False))
    result = balance(problem, time_limit_s=0.0, start=layout)
    assert result.makespan_ns <= data["public_layout"]["makespan_ns"]


def test_a_type_whose_layers_are_recomputed_is_named_in_the_counts():
    problem = read_problem(path_of("d10"))
    layout = layout_from_kind_counts(problem, document("d10")["expected"]["one_layout"]["kind_counts"])
    assert kind_counts(problem, layout) == document("d10")["expected"]["one_layout"]["kind_counts"]


def test_all_problems_of_a_case_are_listed(tmp_path):
    case = document("d05")
    case["problem"].update(schedule="dualpipe", num_stages="two", memory_limit_bytes=-1)
    case["problem"]["body"][0]["kinds"]["half"] = {"bwd_ns": 1.5, "act_bytes": 1}
    path = tmp_path / "case.json"
    path.write_text(json.dumps(case))
    with pytest.raises(InputError) as error:
        read_problem(path)
    text = "\n".join(error.value.problems)
    for place in ("problem.schedule", "problem.num_stages", "problem.memory_limit_bytes", "'half'", "kinds.half.bwd_ns"):
        assert place in text


def test_too_few_layers_for_the_chunks_is_an_error_with_the_numbers():
    with pytest.raises(InputError, match="6 layers are too few for 8 chunks"):
        replace(read_problem(path_of("d05")), num_stages=8)


def test_the_command_prints_the_document_and_the_table(capsys):
    assert cli.main(["balance", str(path_of("d05")), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["status"], found["makespan_ns"], found["layers"]) == ("optimal", 528000, [[3, 3]])
    assert set(found) >= {"bound_ns", "gap", "kind_counts", "peak_bytes", "schedule", "why"}
    assert cli.main(["balance", str(path_of("d05"))]) == 0
    assert "no layout is faster" in capsys.readouterr().out
    assert cli.main(["balance", str(path_of("d11")), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["smallest_feasible_limit_mib"], found["binding_stage"]) == (1700, 3)


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_a_time_limit_that_is_none_is_refused(seconds):
    with pytest.raises(InputError, match="time_limit_s"):
        balance(path_of("d05"), time_limit_s=seconds)
