"""Steps from a vendor's summary and from kernels in windows."""

from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.core.run import Run
from perfkit.record.format import Sink
from perfkit.record.listing import File
from perfkit.record.steps import Window, add_host_steps, add_summary_steps, add_window_steps, device_windows

FILE = File(Path("step_trace_time.csv"), Path("step_trace_time.csv"), 1)


def summary(*rows: tuple[int | None, ...]) -> pd.DataFrame:
    """Rows of (rank, step, computing, exposed, free, bubble)."""
    frame = pd.DataFrame(rows, columns=["rank", "step", "computing", "exposed", "free", "bubble"]).astype("Int64")
    return frame.assign(
        overlapped=pd.array([0] * len(frame), dtype="Int64"), communication=frame["exposed"], pipeline_stage=pd.NA
    ).astype({"pipeline_stage": "Int64"})


def kernels(*rows: tuple[int, int, int, str]) -> pd.DataFrame:
    """Rows of (step, start, duration, kind)."""
    return pd.DataFrame(rows, columns=["step", "start_ns", "duration_ns", "kind"]).astype(
        {"step": "int64", "start_ns": "int64", "duration_ns": "int64"}
    )


def run_of(sink: Sink) -> Run:
    return Run(name="made", kind="measured", format="made", tables=sink.tables(), dropped=tuple(sink.dropped))


amounts = st.integers(0, 10**12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(amounts, amounts, amounts, st.none() | amounts), min_size=1, max_size=8))
def test_leaves_of_a_summary_sum_to_the_duration_whatever_the_numbers(rows):
    sink = Sink()
    kept = add_summary_steps(sink, summary(*((0, index, *row) for index, row in enumerate(rows))), FILE)
    run = run_of(sink)
    assert len(kept) + sum(lost.count for lost in sink.dropped) == len(rows)
    assert len(run.steps()) == len(kept)
    for row in run.steps().itertuples():
        assert run.step_breakdown(row.rank, row.step).total == row.duration_ns


def test_the_receive_wait_is_bubble_only():
    sink = Sink()
    add_summary_steps(sink, summary((8, 2, 80, 216, 77, 178)), FILE)
    row = run_of(sink).steps().iloc[0]
    assert (row["duration_ns"], row["exposed_communication_ns"], row["bubble_ns"]) == (80 + 216 + 77, 216 - 178, 178)


def test_without_a_bubble_column_the_bubble_is_unknown_and_not_zero():
    sink = Sink()
    add_summary_steps(sink, summary((0, 1, 5, 3, 2, None)), FILE)
    run = run_of(sink)
    assert run.steps()["bubble_ns"].isna().all()
    assert "bubble" not in run.step_breakdown(0, 1).parts


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ((0, 1, None, 3, 2, 0), "step row without computing, communication or free time"),
        ((0, 1, 5, -3, 2, 0), "step row with a negative time"),
        ((0, 1, 5, 3, 2, 4), "step row whose Bubble is larger than its Communication(Not Overlapped)"),
    ],
)
def test_a_row_that_cannot_be_is_counted_and_the_next_is_read(row, what):
    sink = Sink()
    add_summary_steps(sink, summary(row, (0, 2, 5, 3, 2, 0)), FILE)
    assert [(lost.what, lost.count, lost.file) for lost in sink.dropped] == [(what, 1, "step_trace_time.csv")]
    assert run_of(sink).steps()["step"].tolist() == [2]


def test_of_rows_for_one_step_the_last_that_can_be_read_counts():
    sink = Sink()
    kept = add_summary_steps(sink, summary((0, 1, 5, 3, 2, 0), (0, 1, 6, 3, 2, 0), (0, 1, None, 3, 2, 0)), FILE)
    assert kept["computing"].tolist() == [6]
    assert sum(lost.count for lost in sink.dropped) == 2


def test_windows_leave_no_gap_and_a_step_waits_for_the_one_before():
    rows = kernels((1, 10, 50, "computing"), (2, 70, 20, "computing"))
    windows = device_windows([Window(1, 0, 40), Window(2, 40, 80)], rows)
    assert windows == [Window(1, 0, 60), Window(2, 60, 90)]


def test_the_last_window_ends_with_its_host_mark_if_that_is_later():
    assert device_windows([Window(1, 0, 100)], kernels((1, 10, 5, "computing"))) == [Window(1, 0, 100)]
    assert device_windows([], kernels()) == []


spans = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 300), st.integers(0, 60), st.sampled_from(["computing", "communication", "copy"])),
    max_size=15,
)


@settings(max_examples=60, deadline=None)
@given(spans)
def test_leaves_of_windows_sum_to_their_durations_and_windows_to_the_timeline(rows):
    frame = kernels(*rows)
    windows = device_windows([Window(step, step * 100, step * 100 + 100) for step in range(3)], frame)
    sink = Sink()
    add_window_steps(sink, rank=3, windows=windows, kernels=frame, pipeline_stage=1)
    run = run_of(sink)
    steps = run.steps()
    assert steps["duration_ns"].sum() == windows[-1].end_ns - windows[0].start_ns
    assert set(steps["pipeline_stage"]) == {1}
    for row in steps.itertuples():
        assert run.step_breakdown(3, row.step).total == row.duration_ns
        assert row.computing_ns + row.exposed_communication_ns + row.free_ns == row.duration_ns


def test_a_step_of_which_only_the_length_is_known_has_no_parts():
    sink = Sink()
    add_host_steps(sink, rank=0, windows=[Window(7, 5, 25)])
    row = run_of(sink).steps().iloc[0]
    assert (row["step"], row["start_ns"], row["duration_ns"]) == (7, 5, 20)
    assert row[["computing_ns", "free_ns", "bubble_ns"]].isna().all()


def test_what_would_have_hidden_communication_is_unknown_where_no_computing_was_recorded():
    for rows, hidden in (([(1, 0, 10, "communication")], None), ([(1, 0, 10, "communication"), (1, 10, 10, "computing")], 0)):
        sink = Sink()
        add_window_steps(sink, rank=0, windows=[Window(1, 0, 20)], kernels=kernels(*rows))
        (found,) = sink.tables()["steps"]["overlapped_ns"]
        assert (None if pd.isna(found) else found) == hidden


def test_no_windows_add_no_rows():
    sink = Sink()
    add_window_steps(sink, rank=0, windows=[], kernels=kernels())
    add_host_steps(sink, rank=0, windows=[])
    assert not sink.tables()
