"""Whom a member of an operation waited for: the tasks of the operation say it where the profiler's own sum does not."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from perfkit.explain import communication
from perfkit.explain.diagnose import diagnose
from perfkit.explain.ledger import causes, ledger
from perfkit.record.events.graph import causal_graph
from perfkit.record.formats.ascend._waits import NOTIFY_WAIT, only_waiting
from perfkit.record.load import load

TRACES = Path(__file__).parents[2] / "data" / "traces"
TWO_OF_EIGHT = TRACES / "torch_npu_db" / "level1"
"""Ranks 0 and 1 of a job of eight, of which rank 6 came 88 ms late."""
ONE_OF_EIGHT = TRACES / "ascend_trace_view" / "rank0_ascend_pt"
SAMPLE = Path(__file__).parents[3] / "data" / "traces" / "torch_npu_2rank"
"""Two ranks of eight without their tasks."""
LONG = 10**6


def _tasks(*rows: tuple[str, int, int, int]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["kind", "start_ns", "end_ns", "peer"])
    return frame.assign(duration_ns=frame["end_ns"] - frame["start_ns"], position=0)


def _pieces(*rows: tuple[str, int, int, int]) -> list[tuple[int, int, int]]:
    found = only_waiting(_tasks(*rows))
    return list(zip(found["start_ns"], found["start_ns"] + found["duration_ns"], found["peer"], strict=True))


def test_the_last_to_come_is_waited_for():
    assert _pieces((NOTIFY_WAIT, 0, 10, 1), (NOTIFY_WAIT, 1, 50, 2), (NOTIFY_WAIT, 2, 20, 3)) == [(0, 1, 1), (1, 50, 2)]


def test_what_moves_at_the_same_time_is_no_waiting():
    assert _pieces((NOTIFY_WAIT, 0, 100, 1), ("Memcpy", 20, 30, 1), ("Reduce_Inline", 25, 40, 2), ("Memcpy", 90, 200, 2)) == [
        (0, 20, 1),
        (40, 90, 1),
    ]


def test_sending_a_notify_moves_nothing():
    assert _pieces((NOTIFY_WAIT, 0, 10, 1), ("Notify_Record", 2, 5, 1)) == [(0, 10, 1)]


def test_without_tasks_nobody_is_waited_for():
    assert _pieces() == []
    assert _pieces(("Memcpy", 0, 10, 1)) == []


@pytest.mark.parametrize("seed", range(20))
def test_pieces_are_what_is_waited_and_not_moved(seed: int):
    rng = np.random.default_rng(seed)
    starts = rng.integers(0, 400, 30)
    ends = starts + rng.integers(0, 60, 30)
    kinds = rng.choice([NOTIFY_WAIT, "Memcpy", "Notify_Record"], 30, p=[0.5, 0.3, 0.2])
    drawn = zip(kinds, starts, ends, rng.integers(0, 8, 30), strict=True)
    rows = [(str(kind), int(start), int(end), int(peer)) for kind, start, end, peer in drawn]
    moments = np.arange(500)

    def within(kind: str) -> list[np.ndarray]:
        return [(moments >= start) & (moments < end) for own, start, end, _ in rows if own == kind]

    waits = np.logical_or.reduce([*within(NOTIFY_WAIT), np.zeros(500, dtype=bool)])
    moves = np.logical_or.reduce([*within("Memcpy"), np.zeros(500, dtype=bool)])
    painted = np.zeros(500, dtype=int)
    for start, end, peer in _pieces(*rows):
        painted[start:end] += 1
        last = max(own_end for kind, own_start, own_end, _ in rows if kind == NOTIFY_WAIT and own_start <= start < own_end)
        assert peer in {who for kind, own_start, own_end, who in rows if kind == NOTIFY_WAIT and own_end == last}
    assert np.array_equal(painted == 1, waits & ~moves)
    assert painted.max(initial=0) <= 1


def test_a_database_names_the_rank_that_was_not_recorded():
    members = causal_graph(load(TWO_OF_EIGHT, cache=False)).members()
    assert (members["wait_ns"] + members["transfer_ns"] + members["other_ns"] == members["duration_ns"]).all()
    first = members[members["name"] == "hcom_allReduce__210_0_1"]
    assert first["waits_for"].tolist() == [6, 6]
    assert (first["wait_ns"] >= 84_000_000).all()
    assert (members["other_ns"] <= 0.07 * members["duration_ns"]).all()


def test_the_ledger_and_the_findings_say_so_too():
    run = load(TWO_OF_EIGHT, cache=False)
    rows = ledger(run).entries
    waits = rows[(rows["cause"] == causes.WAITING_UNTOLD) & (rows["who"] == 6)]
    assert 0.6 < waits["ns"].sum() / rows["ns"].sum() < 0.8
    assert rows.loc[rows["cause"] == causes.NEITHER, "ns"].sum() < 0.01 * rows["ns"].sum()
    late = next(finding for finding in diagnose(run).findings if finding.rule == "late-rank")
    assert late.subject["ranks"] == (6,)
    assert "record the named rank too" in late.actions[0]
    assert "rank 6 is the late one" in communication.waiting_told(communication.members_of(run))[0]


def test_a_timeline_has_the_waits_of_the_rank_alone_but_not_who_its_peers_are():
    run = load(ONE_OF_EIGHT, cache=False)
    waits = run.frame("waits")
    text = gzip.decompress(next(ONE_OF_EIGHT.rglob("trace_view.json.gz")).read_bytes())
    longest = max((event for event in json.loads(text) if event.get("name") == NOTIFY_WAIT), key=lambda event: event["dur"])
    found = waits.sort_values("duration_ns").iloc[-1]
    assert found["peer"] == longest["args"]["dst rank"]
    assert found["duration_ns"] / 1000 == pytest.approx(longest["dur"], rel=0.001)
    members = causal_graph(run).members()
    assert members["waits_for"].isna().all()  # position 0 of a group is rank 0 of many of them


def test_a_group_with_members_that_were_not_read_is_not_explained_by_those_that_were():
    run = load(SAMPLE, cache=False)
    assert set(run.frame("links")["target_rank"]) > set(run.ranks)
    found = ledger(run)
    rest = causal_graph(run).members()["other_ns"].sum()
    assert rest > 100 * LONG
    assert (found.entries["cause"] != causes.NEITHER).all()
    assert found.unexplained_ns > 0.9 * rest
