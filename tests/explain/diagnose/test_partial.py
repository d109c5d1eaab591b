"""One rank of several, or a sample of the events: what is not in the recording has no price and counts as unexplained."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from shutil import copy

import pytest

from perfkit.core.run import Run
from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules import data_feed, exposed_communication
from perfkit.explain.ledger import causes, ledger
from perfkit.record.events.graph import causal_graph
from perfkit.record.format import Sink
from perfkit.record.load import load
from tests import two_ranks
from tests.explain.diagnose.made import MS, run_of

TRACES = Path(__file__).parents[2] / "data/traces"
DLRM = TRACES / "dlrm_8xV100"
NPUS = two_ranks.by_tables()
ONE_OF_MANY = {"Kineto, 1 of 8": DLRM / "worker3.json.gz", "torch_npu, 1 of 8": NPUS / "rank0_ascend_pt"}


@pytest.mark.parametrize("which", ONE_OF_MANY)
def test_of_one_rank_of_several_waiting_is_not_explained_and_hiding_wins_no_more_than_what_moves(which: str):
    found = diagnose(load(ONE_OF_MANY[which]))
    (step,) = found.ledger.entries["step"].unique()
    table = found.ledger.waterfall()
    parts = found.ledger.breakdown(int(found.ledger.entries["rank"].iloc[0]), int(step)).parts
    untold = sum(ns for path, ns in parts.items() if path.startswith(causes.UNEXPLAINED))
    assert found.ledger.unexplained_ns == untold == table.loc[table["cause"].str.startswith(causes.UNEXPLAINED), "ns"].sum() > 0
    (exposed,) = [finding for finding in found.findings if finding.rule == exposed_communication.RULE.name]
    moving = exposed.evidence.get("moving_ns")
    assert exposed.cost_ns is None if moving is None else exposed.cost_ns <= moving


def test_all_ranks_price_what_one_of_them_alone_does_not(tmp_path: Path):
    for part in DLRM.glob("worker*.json.gz"):
        copy(part, tmp_path)
    alone, whole = (ledger(load(path)) for path in (DLRM / "worker3.json.gz", tmp_path))
    assert whole.explained_share > 0.95
    assert alone.explained_share < 0.6


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Every tenth event, drawn by chance, of the ranks of a recording, and all marks of steps."""
    folder, draw = tmp_path_factory.mktemp("sample"), random.Random(7)
    for part in DLRM.glob("worker*.json.gz"):
        trace = json.loads(gzip.decompress(part.read_bytes()))
        events = trace["traceEvents"]
        trace["traceEvents"] = [
            one for one in events if "ProfilerStep" in one.get("name", "") or "dur" not in one or draw.random() < 0.1
        ]
        (folder / part.name.removesuffix(".gz")).write_text(json.dumps(trace))
    return load(folder)


def test_a_sample_of_the_events_says_so_and_prices_no_idle_time(sample: Run):
    found = diagnose(sample)
    assert any("a sample of the events" in note for note in found.notes)
    assert data_feed.RULE.name in {entry.rule for entry in found.not_measured}
    assert [finding for finding in found.findings if finding.part == "free" and finding.cost_ns] == []


@pytest.fixture(scope="module")
def without_kernels(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All events of the ranks of a recording but every fifth kernel of rank 3, whose launches are there."""
    folder = tmp_path_factory.mktemp("kernels")
    for part in DLRM.glob("worker*.json.gz"):
        trace = json.loads(gzip.decompress(part.read_bytes()))
        if part.name.startswith("worker3"):
            kernels = [one for one in trace["traceEvents"] if one.get("cat", "").lower() == "kernel"]
            lost = {id(one) for one in kernels[::5]}
            trace["traceEvents"] = [one for one in trace["traceEvents"] if id(one) not in lost]
        (folder / part.name.removesuffix(".gz")).write_text(json.dumps(trace))
    return load(folder)


def test_a_rank_of_whose_launches_the_kernels_are_missing_is_a_sample_and_says_nothing_of_clocks(without_kernels: Run):
    found = diagnose(without_kernels)
    assert set(found.ledger.sampled) == {3}
    assert found.ledger.sampled[3] == pytest.approx(0.8, abs=0.02)
    assert any("a sample of the events" in note for note in found.notes)
    assert [finding for finding in found.findings if finding.rule == "clock-skew"] == []
    own = found.ledger.entries[found.ledger.entries["rank"] == 3]
    assert own.loc[own["cause"].str.startswith("host/"), "ns"].sum() == 0


def test_operations_named_by_their_place_meet_only_where_all_ranks_have_as_many(without_kernels: Run):
    whole, less = (causal_graph(run).members() for run in (load(DLRM), without_kernels))
    count = less.groupby("rank").size()
    assert count[3] < count[0] == whole.groupby("rank").size()[3]
    assert (whole["num_seen"] == 8).all()
    assert (less["num_seen"] == 1).all()
    assert not (less["basis"] == "arrival").any()


def pipelined(num_stages: int) -> Run:
    """Six micro batches a step through the stages of a pipeline, one group of all, and sums of all ranks at its end."""
    sink, named = Sink(), {rank: [] for rank in range(num_stages)}
    for batch in range(6):
        for stage in range(num_stages - 1):
            at = (20 * batch + 4 * stage + 10) * MS
            named[stage].append(("send", at, MS))
            named[stage + 1].append(("receive", at - 2 * MS, 3 * MS))
    for rank, rows in named.items():
        rows.sort(key=lambda row: row[1])
        rows += [("all_reduce", (200 + at) * MS, MS) for at in range(5)]
        for place, (operation, start_ns, length_ns) in enumerate(rows):
            sums = operation == "all_reduce"
            sink.add(
                "collectives",
                rank=rank,
                step=1,
                name=f"{operation}#{place - len(rows) + 5 if sums else place}",
                operation=operation,
                group="world" if sums else "pp",
                group_size=num_stages,
                start_ns=start_ns,
                duration_ns=length_ns,
            )
        sink.add("steps", rank=rank, step=1, duration_ns=400 * MS)
    return run_of(sink)


@pytest.mark.parametrize("num_stages", [2, 3, 4])
def test_stages_have_not_as_many_sends_and_none_of_them_is_missing(num_stages: int):
    members = causal_graph(pipelined(num_stages)).members()
    sums = members["operation"] == "all_reduce"
    assert (members.loc[sums, "num_seen"] == num_stages).all()
    assert (members.loc[~sums, "num_seen"] == 2).all()


def test_operations_of_two_groups_of_the_same_ranks_are_counted_apart():
    """Each rank has five: of one group one is missing on the first, of the other one on the second."""
    sink = Sink()
    for rank, counts in enumerate([{"tp": 3, "dp": 2}, {"tp": 2, "dp": 3}]):
        placed = [(group, at) for group, count in counts.items() for at in range(count)]
        sink.add(
            "collectives",
            rank=rank,
            step=1,
            name=[f"all_reduce#{at}" for _, at in placed],
            operation="all_reduce",
            group=[group for group, _ in placed],
            group_size=2,
            start_ns=[at * MS for at in range(5)],
            duration_ns=1000,
        )
        sink.add("steps", rank=rank, step=1, duration_ns=400 * MS)
    assert (causal_graph(run_of(sink)).members()["num_seen"] == 1).all()
