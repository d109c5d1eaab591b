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
from perfkit.explain.ledger import _late, causes, ledger
from perfkit.record.events import notified
from perfkit.record.events.graph import causal_graph
from perfkit.record.formats.ascend._waits import NOTIFY_WAIT, only_waiting
from perfkit.record.load import load
from tests import two_ranks

TRACES = Path(__file__).parents[2] / "data" / "traces"
TWO_OF_EIGHT = TRACES / "torch_npu_db" / "level1"
"""Ranks 0 and 1 of a job of eight, of which rank 6 came 88 ms late."""
ONE_OF_EIGHT = TRACES / "ascend_trace_view" / "rank0_ascend_pt"
SAMPLE = two_ranks.by_tables()
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
    drawn = zip(kinds, starts, ends, rng.integers(1, 8, 30), strict=True)
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


def test_a_member_of_no_number_or_oneself_is_nobody():
    found = only_waiting(_tasks((NOTIFY_WAIT, 0, 10, 2**32 - 1), (NOTIFY_WAIT, 20, 30, 0), (NOTIFY_WAIT, 40, 50, -1)))
    assert found["duration_ns"].tolist() == [10, 10, 10]
    assert found["peer"].isna().all()


def _members(waits: dict[int, int], whom: dict[int, int | None], *, group_size: int = 4) -> pd.DataFrame:
    """Members of one operation as `meetings.members` has them, all of whose waiting is stated."""
    rows = [{"rank": rank, "wait_ns": wait, "waits_for": whom[rank]} for rank, wait in waits.items()]
    common = {
        "instance": 0,
        "start_ns": 0,
        "other_ns": 0,
        "num_seen": len(waits),
        "group_size": group_size,
        "operation": "all_reduce",
    }
    frame = pd.DataFrame(rows).assign(**common, basis="recorded")
    return frame.astype(dict.fromkeys(("wait_ns", "waits_for", "other_ns", "num_seen", "group_size"), "Int64"))


def test_where_all_were_read_the_one_that_waited_least_is_late_and_no_neighbour_of_a_ring():
    members = _members({0: 1, 1: 90, 2: 88, 3: 86}, {0: 3, 1: 0, 2: 1, 3: 2})
    found = _late._recorded(members, dict.fromkeys(members.index, 1))
    assert {row: who for row, who, _ in found} == {0: -1, 1: 0, 2: 0, 3: 0}


@pytest.mark.parametrize(
    ("wait_ns", "whom", "told"),
    [
        ({0: 1, 1: 90, 2: 88}, {0: 3, 1: 0, 2: 1}, {0: 3, 1: 0, 2: 0}),  # a ring: the neighbour passes on what it waited for
        ({0: 80, 1: 90}, {0: 5, 1: 0}, {0: 5, 1: 5}),  # until one that was not read
        ({0: 80, 1: 90}, {0: 1, 1: 0}, {0: None, 1: None}),  # who wait for one another say nothing
        ({0: 80, 1: 90}, {0: None, 1: 0}, {0: None, 1: None}),
    ],
)
def test_a_neighbour_who_waits_himself_passes_on_for_whom(
    wait_ns: dict[int, int], whom: dict[int, int | None], told: dict[int, int]
):
    rows = {(0, rank): {"instance": 0, "rank": rank, "who": whom[rank], "wait_ns": wait_ns[rank]} for rank in whom}
    assert {rank: notified._last_of(row, rows) for (_, rank), row in rows.items()} == told


def _operations(*rows: tuple[int, int, str]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["start_ns", "end_ns", "basis"])
    return frame.assign(rank=0, duration_ns=frame["end_ns"] - frame["start_ns"])


@pytest.mark.parametrize(
    ("operations", "piece", "row"),
    [
        (((0, 100, "recorded"), (10, 20, "recorded")), (30, 90), 0),  # behind a shorter one that is over
        (((0, 100, "recorded"), (10, 20, "recorded")), (12, 18), None),  # in both
        (((10, 90, "recorded"), (0, 100, "arrival")), (20, 70), None),  # also of one that needs no tasks
        (((0, 100, "arrival"),), (20, 70), None),
        (((0, 100, "recorded"),), (10, 101), 0),
        (((0, 100, "recorded"),), (200, 300), None),
        ((), (0, 10), None),
    ],
)
def test_a_piece_is_of_the_one_operation_that_is_under_way(operations, piece, row):
    waits = pd.DataFrame({"start_ns": [piece[0]], "duration_ns": [piece[1] - piece[0]], "position": [0], "peer": [1]})
    found = notified._assigned(_operations(*operations), waits)
    assert found["row"].tolist() == ([] if row is None else [row])
    assert (found["ns"] <= 90).all()


def test_the_table_of_waiting_has_the_rank_that_was_not_read():
    table = load(TWO_OF_EIGHT, cache=False).waiting()
    assert table.loc[table["late"].notna(), "rank"].tolist() == [6]
    assert table.dtypes["wait_ns"] == "Int64"
    table.plot()


def test_the_table_of_operations_names_it_too():
    assert load(TWO_OF_EIGHT, cache=False).collectives()["latest_rank"].tolist() == [6, 6, 5, 6]


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
