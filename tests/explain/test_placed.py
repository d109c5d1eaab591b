"""Placed: what a question says of a step is what the graph has placed in it, for every question and every recording."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.run import Run
from perfkit.record.events.graph import RankEvents, causal_graph
from perfkit.record.load import load
from tests.explain.ledger.test_ledger import SAMPLES, TRACES

OUTSIDE = -1
"""Before the first step, or after the last one."""


def placed(rows: pd.DataFrame) -> dict[int, tuple[int, int]]:
    """By step how many executions there are, and how long they took."""
    groups = rows["duration_ns"].groupby(rows["step"].fillna(OUTSIDE).astype("int64"))
    return {int(str(step)): (len(each), int(each.sum())) for step, each in groups}


def launches(run: Run, events: RankEvents, steps: list[int]) -> bool:
    rows = run.frame("launches", ranks=[events.rank]).dropna(subset=["start_ns"])
    assert rows.empty or placed(rows) == placed(events.device)
    return not rows.empty


def copies(run: Run, events: RankEvents, steps: list[int]) -> bool:
    found = placed(events.device[(events.device["kind"] == "copy").to_numpy(dtype=bool)])
    for step in (None, *steps):
        wanted = [numbers for number, numbers in found.items() if step in (None, number)]
        try:
            told = run.copies(rank=events.rank, step=step)
            assert (told["count"].sum(), told["total_ns"].sum()) == tuple(map(sum, zip(*wanted, strict=True)))
        except NotMeasuredError:
            assert not wanted
    return bool(found)


def calls(run: Run, events: RankEvents, steps: list[int]) -> bool:
    """A call is in the step of what it launched."""
    nodes, host = events.call_nodes - len(events.device), events.host
    recorded = (nodes >= 0) & (nodes < len(host.rows))
    of_calls = host.steps.iloc[nodes[recorded]].fillna(OUTSIDE).tolist()
    assert of_calls == events.device.loc[recorded, "step"].fillna(OUTSIDE).tolist()
    for step in steps:
        inside = host.of_kind("call") & (host.steps == step).fillna(False).to_numpy(dtype=bool)
        assert not inside.any() or run.host_calls(rank=events.rank, step=step)["count"].sum() == inside.sum()
    return bool(of_calls)


def sequences(run: Run, events: RankEvents, steps: list[int]) -> bool:
    """Those of the steps, and of what is outside of them, are those of the recording."""
    try:
        whole = int(run.kernel_sequences(rank=events.rank, least=1)["device_ns"].sum())
    except NotMeasuredError:
        return False
    launched = events.device[events.launches[["launch_ns", "thread"]].notna().all(axis=1).to_numpy(dtype=bool)]
    outside = int(launched.loc[launched["step"].isna(), "duration_ns"].sum())
    of_steps = sum(int(run.kernel_sequences(rank=events.rank, step=step, least=1)["device_ns"].sum()) for step in steps)
    assert whole - outside <= of_steps <= whole <= launched["duration_ns"].sum()
    return True


def counters(run: Run, events: RankEvents, steps: list[int]) -> bool:
    """No more kernels are counted in a step than are placed in it."""
    if run.frame("kernel_counters", ranks=[events.rank]).empty or events.device.empty:
        return False
    for step in steps:
        known = Counter(events.device.loc[(events.device["step"] == step).fillna(False), "name"].astype(str))
        told = run.kernel_counters(rank=events.rank, step=step)
        assert all(count <= known[str(name)] for name, count in zip(told["name"], told["count"], strict=True))
    return True


def frequencies(run: Run, events: RankEvents, steps: list[int]) -> bool:
    """A frequency holds no longer in a step than it lasts."""
    lengths = run.frame("steps", ranks=[events.rank]).set_index("step")["duration_ns"]
    try:
        held = run.frequency(rank=events.rank).dropna(subset=["step"]).groupby(["step", "name"])["duration_ns"].sum()
    except NotMeasuredError:
        return False
    assert all(took <= lengths[step] for (step, _), took in held.items())
    return True


LAWS = (launches, copies, calls, sequences, counters, frequencies)


def upheld(path: Path) -> Counter[str]:
    """On how many ranks of a recording each law had something to say."""
    try:
        run = load(path)
    except InputError:
        return Counter()
    found: Counter[str] = Counter()
    for events in map(causal_graph(run).rank, run.ranks[:4]):
        steps = [int(step) for step in run.frame("steps", ranks=[events.rank])["step"]]
        found.update(law.__name__ for law in LAWS if law(run, events, steps))
    return found


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: str(path.relative_to(TRACES)))
def test_what_a_question_says_of_a_step_is_what_is_placed_in_it(path: Path):
    upheld(path)


@pytest.mark.parametrize(
    ("law", "sample"),
    [
        (copies, "msprof_export/alexnet"),
        (launches, "hta/trace_compare"),
        (calls, "hta/ns_resolution_trace"),
        (sequences, "hta/ns_resolution_trace"),
        (counters, "torch_npu_pp2dp2"),
        (frequencies, "torch_npu_db/level1"),
    ],
)
def test_each_of_these_laws_has_something_to_say(law, sample: str):
    assert upheld(TRACES / sample)[law.__name__]
