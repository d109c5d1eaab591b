"""The ledger: whole ns by cause that sum exactly to every step, of every sample, measured and simulated."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from perfkit.core.breakdown import Breakdown
from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.run import Run
from perfkit.core.spec.plan import Plan
from perfkit.explain.diagnose import diagnose
from perfkit.explain.guide_terms import TERMS, terms_of
from perfkit.explain.ledger import Ledger, causes, ledger
from perfkit.explain.ledger._head import of_head
from perfkit.explain.ledger._paint import layer, paint, shared
from perfkit.explain.ledger._pipeline import told_apart
from perfkit.predict.simulate import simulate
from perfkit.record.events.graph import causal_graph
from perfkit.record.load import load
from tests.explain.diagnose.made import Training, summaries
from tests.predict.simulate.plans import plan_of

TRACES = Path(__file__).resolve().parents[2] / "data/traces"
FOLDERS = [folder for folder in TRACES.iterdir() if folder.is_dir()]


def _samples(folder: Path) -> list[Path]:
    """What can be opened of a folder: each of its parts, and the whole unless it holds nothing but folders of other recordings."""
    parts = [path for path in folder.iterdir() if "PROV" not in path.name]
    others = all(path.is_dir() and not re.search("rank|_ascend_|level", path.name) for path in parts)
    return parts if others else [folder, *parts]


SAMPLES = sorted(path for folder in FOLDERS for path in _samples(folder))
DETAILED = (
    "hta/critical_path",
    "hta/ns_resolution_trace",
    "kineto_h100/recompute.json.gz",
    "kineto_tb_samples/resnet50_num_workers_0",
    "kineto_tb_samples/resnet50_num_workers_4",
    "tracelens/h100",
    "tracelens/mi210",
    "tracelens/mi300",
    "tracelens/torch_compile_triton",
    "param/linear_kineto.json.gz",
    "param/resnet_kineto.json.gz",
    "ascend_trace_view/single_npu",
    "torch_npu_db/level1",
    "dlrm_8xV100",
)
"""Recordings of device and host of all ranks of the job."""


def dense_plan(data: int, tensor: int = 1, pipeline: int = 1) -> Plan:
    plan = plan_of("gpt-7.5b", 8 * data, dp=data, tp=tensor, pp=pipeline)
    return replace(plan, model=replace(plan.model, num_layers=8))


@cache
def _read(path: Path) -> tuple[Run, Ledger] | None:
    try:
        run = load(path)
    except InputError:
        return None
    return run, ledger(run)


def _sums(found: Ledger) -> pd.Series:
    return found.entries.groupby(["rank", "step"])["ns"].sum()


def _assert_sound(run: Run, found: Ledger) -> None:
    steps = run.steps().drop_duplicates(["rank", "step"], keep="last")
    steps = steps[steps["duration_ns"] > 0].set_index(["rank", "step"])["duration_ns"]
    pd.testing.assert_series_equal(_sums(found), steps.sort_index(), check_names=False, check_dtype=False)
    assert (found.entries["ns"] > 0).all()
    assert found.entries["ns"].dtype == np.int64
    named = causal_graph(run).members()["waits_for"].dropna() if run.has("waits") else ()
    assert set(found.entries["who"]) <= {-1, *run.ranks, *named}
    assert (found.entries["who"] != found.entries["rank"]).all(), "nobody waits for himself"
    works = found.entries[found.entries["cause"].str.startswith("work/").to_numpy()]
    own = [rows.groupby(["rank", "step", "cause"])["ns"].sum().to_dict() for rows in (works, found.modules)]
    assert own[1] in ({}, own[0]), "computing by module too sums to computing"


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_causes_and_terms_of_every_step_of_every_sample_sum_to_the_ns(path: Path):
    found = _read(path)
    if found is None:
        pytest.skip("no run by itself")
    run, told = found
    if run.has("steps"):
        _assert_sound(run, told)
    else:
        assert told.entries.empty
    steps = run.steps().drop_duplicates(["rank", "step"], keep="last").set_index(["rank", "step"])["duration_ns"]
    for group, names in TERMS.items():
        rows = terms_of(told, group)
        assert rows.groupby(["rank", "step"])["ns"].sum().to_dict() == steps[steps > 0].to_dict()
        assert (rows["ns"] >= 0).all()
        assert set(rows["term"]) <= set(names)


@pytest.mark.parametrize("name", DETAILED)
def test_of_recordings_of_device_and_host_less_than_a_twentieth_is_unexplained(name: str):
    found = _read(TRACES / name)
    assert found is not None
    assert found[1].explained_share is not None
    assert found[1].explained_share >= 0.95


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_where_launches_were_recorded_only_communication_with_ranks_that_were_not_is_unexplained(path: Path):
    run, told = _read(path) or (None, None)
    if run is None or not run.has("launches") or run.frame("launches")["launch_ns"].isna().all():
        pytest.skip("no run by itself, or without launches")
    lacks = told.entries[told.entries["cause"] == causes.UNEXPLAINED].groupby("detail")["ns"].sum() / told.total_ns
    assert lacks.drop("communication", errors="ignore").sum() <= 0.02
    if "communication" in lacks and lacks["communication"] > 0.02:
        known = causal_graph(run).members()
        assert (known["num_seen"] < known["group_size"]).any() or known["group_size"].isna().any()


@pytest.mark.parametrize("name", DETAILED)
def test_idle_pieces_follow_one_another_and_are_what_the_entries_say(name: str):
    _, found = _read(TRACES / name) or pytest.fail("it is read")
    for _, rows in found.idle.groupby("rank"):
        ends = (rows["start_ns"] + rows["duration_ns"]).to_numpy()
        assert (rows["start_ns"].to_numpy()[1:] >= ends[:-1]).all()
    free = found.entries[(found.entries["part"] == "free") & (found.entries["cause"] != causes.UNEXPLAINED)]
    told = free.groupby(["rank", "step", "cause", "place"])["ns"].sum()
    pieces = found.idle.groupby(["rank", "step", "cause", "place"])["duration_ns"].sum().reindex(told.index)
    assert pieces.notna().all()
    assert (pieces >= told).all(), "a step may state less than its timeline shows, never more of a cause"


def test_what_a_recording_does_not_tell_is_unexplained_not_zero():
    run, found = _read(TRACES / "logs/megatron") or pytest.fail("the log is read")
    assert found.explained_share == 0
    assert set(found.entries["cause"]) == {causes.UNEXPLAINED}
    assert found.unexplained_ns == int(run.steps()["duration_ns"].sum())


def test_one_rank_of_many_does_not_tell_whether_it_waits_or_moves_data():
    _, found = _read(TRACES / "hta/nccl_parser_config") or pytest.fail("it is read")
    rows = found.entries[found.entries["part"] == "communication"]
    assert set(rows["cause"]) == {causes.UNEXPLAINED}
    assert set(rows["detail"]) == {"communication"}


def test_a_step_is_a_breakdown():
    run, found = _read(TRACES / "synthetic_ms") or pytest.fail("it is read")
    step = run.steps().iloc[0]
    breakdown = found.breakdown(int(step["rank"]), int(step["step"]))
    assert isinstance(breakdown, Breakdown)
    assert breakdown.total == step["duration_ns"]
    with pytest.raises(NotMeasuredError, match="step 999 of rank 0"):
        found.breakdown(0, 999)


def test_the_waterfall_sums_to_the_mean_step_and_ends_with_what_is_unexplained():
    _, found = _read(TRACES / "torch_npu_level0") or pytest.fail("it is read")
    table = found.waterfall()
    assert table["ns"].sum() == found.total_ns // 2
    lacking = table["cause"].str.startswith(causes.UNEXPLAINED).to_numpy(dtype=bool)
    assert lacking.any()
    assert not lacking[: -lacking.sum()].any(), "at the end"
    assert set(table["cause"][lacking]) <= {path for path in causes.WORDS if path.startswith("unexplained/")}, "each says in what"
    assert table["share"].sum() == pytest.approx(1)


def _largest(found: Ledger, rank: int | None = None) -> tuple[str, int]:
    rows = found.entries if rank is None else found.entries[found.entries["rank"] == rank]
    rows = rows[~rows["cause"].str.startswith(("work/", "transfer/")).to_numpy()]
    sums = rows.groupby(["cause", "who"])["ns"].sum()
    return sums.idxmax()


@pytest.mark.parametrize(
    ("fault", "waiting", "own"),
    [
        ("slow_rank:3:1.35", "waiting/kernels", "work/product"),
        ("data_stall:3:60", "waiting/feed", "feed"),
        ("gc_pause:3:120:2", "waiting/pause", "host/pause"),
        ("host_bound:3:8", "waiting/launching", "host/launching"),
    ],
)
def test_a_simulated_run_says_what_the_simulator_put_in_and_what_it_costs(fault: str, waiting: str, own: str):
    plan = dense_plan(data=8)
    run, healthy = simulate(plan, faults=(fault,), steps=4, seed=3), simulate(plan, steps=4, seed=3)
    found = ledger(run)
    _assert_sound(run, found)
    assert found.explained_share is not None
    assert found.explained_share > 0.99
    assert _largest(found, 0) == (waiting, 3)
    lost = run.steps()["duration_ns"].mean() - healthy.steps()["duration_ns"].mean()
    rows = found.entries[(found.entries["rank"] == 0) & (found.entries["cause"] == waiting)]
    assert rows["ns"].sum() / 4 == pytest.approx(lost, rel=0.1, abs=1e6)
    assert own in set(found.entries.loc[found.entries["rank"] == 3, "cause"])


def test_waiting_is_followed_through_other_ranks_to_where_the_time_was_lost():
    run = simulate(dense_plan(data=4, tensor=2), faults=("data_stall:3:60",), steps=3, seed=1)
    found = ledger(run)
    for rank in set(run.ranks) - {3}:
        assert _largest(found, rank) == ("waiting/feed", 3)


def test_equal_ranks_of_a_pipeline_wait_for_it_to_fill():
    run = simulate(dense_plan(data=2, pipeline=4), steps=3, seed=1)
    found = ledger(run)
    _assert_sound(run, found)
    rows = found.entries[found.entries["cause"].str.startswith("waiting/").to_numpy()]
    assert rows.groupby("cause")["ns"].sum().idxmax() == causes.FILLING


def test_a_summary_tells_its_parts_and_no_more():
    run = summaries({0: 150, 1: 120}, step_ms=200.0, steps=4)
    found = ledger(run)
    _assert_sound(run, found)
    assert found.breakdown(0, 1).parts == {causes.ALL_WORK: 150_000_000, causes.UNEXPLAINED: 50_000_000}


def test_a_clock_that_is_off_does_not_change_who_is_late():
    slow = {2: 1.3}
    plain, skewed = (ledger(Training(factors=slow, skew_us=skew).run()) for skew in ({}, {1: 700, 3: -400}))
    assert _largest(plain, 0) == _largest(skewed, 0) == (causes.KERNELS, 2)


def test_of_overlapping_intervals_every_moment_counts_once():
    inner = layer(np.array([0, 2, 20]), np.array([10, 5, 30]))
    outer = layer(np.array([5]), np.array([40]))
    pieces = paint([inner, outer], (0, 50))
    assert (pieces.ends - pieces.starts).sum() == 50
    lengths = pd.Series(pieces.ends - pieces.starts).groupby(pieces.layers).sum()
    assert lengths.to_dict() == {0: 20, 1: 20, -1: 10}


def test_shares_are_whole_and_sum():
    assert shared(10, np.array([1, 1, 1])).tolist() == [4, 3, 3]
    assert shared(7, np.array([0, 2**62, 2**61])).sum() == 7


def test_a_window_is_painted_as_the_whole_is_there():
    random = np.random.default_rng(3)
    starts = np.sort(random.integers(0, 1000, (3, 40)), axis=1)
    layers = [layer(own, own + random.integers(0, 30, 40)) for own in starts]
    whole = paint(layers, (0, 1100))
    for begin, end in ((0, 1100), (100, 137), (500, 500), (990, 1100)):
        part = paint(layers, (begin, end))
        assert (part.ends - part.starts).sum() == end - begin
        middles = (part.starts + part.ends) // 2
        at = np.searchsorted(whole.starts, middles, side="right") - 1
        assert (whole.layers[at] == part.layers).all()
        assert (whole.rows[at] == part.rows).all()


def test_a_stage_waits_for_the_head_of_another_and_the_head_is_all_that_has_the_vocabulary():
    """Qwen3-0.6B in two stages: what the last stage computes has the vocabulary of 151,936 words, what the first does has not."""
    run = load(TRACES / "torch_npu_pp2dp2", cache=False)
    entries = ledger(run).entries
    kernels = run.frame("kernels", ranks=[2])
    of_head = kernels["input_shapes"].astype("object").fillna("").str.contains("151936").to_numpy(dtype=bool)
    work = entries[(entries["cause"] == "work/head").to_numpy(dtype=bool)]
    assert set(work["rank"]) == {2}
    assert work["ns"].sum() == pytest.approx(int(kernels.loc[of_head, "duration_ns"].sum()), rel=0.01)
    waits = entries[(entries["cause"] == causes.HEAD).to_numpy(dtype=bool)]
    assert set(waits["rank"]) == {0}
    assert set(waits["who"]) == {2}
    assert waits["ns"].sum() > 0.9 * work["ns"].sum()


@pytest.mark.parametrize(
    ("operator", "shape", "products"),
    [
        ("Softmax", "8,16,512,512", ["4096,1024;1024,1024", "128,512,64;128,64,512"]),
        ("Softmax", "4096,64", ["4096,1024;64,1024", "4096,1024;1024,1024"]),
    ],
    ids=["attention", "router"],
)
def test_neither_attention_nor_router_is_a_head(operator: str, shape: str, products: list[str]):
    names, shapes = pd.Series([operator, *["MatMul"] * len(products)]), pd.Series([shape, *products])
    work = np.array(["work/element-wise and other", *["work/product"] * len(products)], dtype=object)
    assert not of_head(names, shapes, work).any()


def test_what_a_stage_waits_for_in_a_step_does_not_depend_on_the_other_steps_asked_for():
    run = simulate(dense_plan(1, pipeline=2))
    stages = dict.fromkeys(run.ranks, 0) | {run.ranks[-1]: 1}
    busy = {(0, 0): 60, (0, 1): 70, (1, 0): 90, (1, 1): 20}
    rows = [
        row
        for (step, stage), ns in busy.items()
        for row in (
            {"rank": run.ranks[-stage], "step": step, "cause": "work/product", "who": -1, "part": "computing", "ns": ns * 1000},
            {
                "rank": run.ranks[-stage],
                "step": step,
                "cause": causes.STAGE_LOAD,
                "who": run.ranks[stage - 1],
                "part": "free",
                "ns": 80_000,
            },
        )
    ]
    entries = pd.DataFrame(rows).assign(place="inside", detail=None)
    members = pd.DataFrame(columns=["rank", "step", "instance", "operation"])
    together = told_apart(run, entries, members, stages)
    apart = pd.concat([told_apart(run, entries[entries["step"] == step], members, stages) for step in (0, 1)])
    key = ["rank", "step", "cause", "who"]
    assert together.groupby(key)["ns"].sum().to_dict() == apart.groupby(key)["ns"].sum().to_dict()
    loads = together[together["cause"] == causes.STAGE_LOAD].groupby("step")["ns"].sum()
    assert loads.to_dict() == {0: 10_000, 1: 70_000}


def test_a_run_has_one_ledger_whatever_is_asked_of_it():
    run = load(TRACES / "hta/nccl_parser_config")
    steps = sorted({int(step) for step in run.steps()["step"]})
    judged = diagnose(run).ledger.entries
    for step in steps:
        part = ledger(run, steps=[step]).entries
        pd.testing.assert_frame_equal(part, ledger(replace(run)).of(steps=[step]).entries)
        own = judged[(judged["step"] == step).to_numpy(dtype=bool)].reset_index(drop=True)
        assert own.empty or own.equals(part)
