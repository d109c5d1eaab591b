"""The sink: what a format hands over is checked, and what is refused is counted."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.core.schema import TABLES, pandas_dtype
from perfkit.record import format as formats
from perfkit.record.format import Sink
from perfkit.record.listing import File

EPOCH_NS = 1_736_408_883_704_643_212


def file(size_bytes: int = 5, name: str = "kernel_details.csv") -> File:
    return File(Path(name), Path("rank0", name), size_bytes)


def test_scalars_fill_every_row_and_left_out_columns_are_null():
    sink = Sink()
    assert sink.add("kernels", rank=3, name=["a", "b"], kind="computing", duration_ns=[1, 2]) == 2
    frame = sink.tables()["kernels"]
    assert frame["rank"].tolist() == [3, 3]
    assert frame["kind"].tolist() == ["computing", "computing"]
    assert frame[["start_ns", "type", "wait_ns"]].isna().all(axis=None)


def test_every_column_has_the_type_of_the_schema_after_several_pieces():
    sink = Sink()
    sink.add("kernels", rank=0, name=["a"], kind="computing", duration_ns=[1])
    sink.add("kernels", rank=1, name=["b"], kind="copy", duration_ns=[2], start_ns=[EPOCH_NS])
    sink.add("log", rank=0, step=1, line=1, num_steps=1, duration_ns=5, overflow=[True], loss=[0.5])
    for name, frame in sink.tables().items():
        for column in TABLES[name].columns:
            assert frame[column.name].dtype == pandas_dtype(column) or isinstance(frame[column.name].dtype, pd.CategoricalDtype)


@pytest.mark.parametrize("null", [None, pd.NA])
@pytest.mark.parametrize(
    "wrap", [list, tuple, lambda values: pd.array(values, dtype="Int64"), lambda values: pd.Series(values, dtype="Int64")]
)
def test_times_of_the_epoch_stay_exact_beside_nulls(wrap, null):
    sink = Sink()
    sink.add("kernels", rank=0, name="a", kind="computing", duration_ns=[1, 1], start_ns=wrap([EPOCH_NS, null]))
    assert sink.tables()["kernels"]["start_ns"].tolist() == [EPOCH_NS, pd.NA]


def test_rows_that_a_column_cannot_hold_are_dropped_and_counted_once():
    sink = Sink()
    kept = sink.add("kernels", source=file(), rank=0, name=["a", None, "c", "d"], kind="computing", duration_ns=[1, None, -3, 0])
    assert kept == 2
    assert sink.tables()["kernels"]["name"].tolist() == ["a", "d"]
    assert [(lost.what, lost.count, lost.file) for lost in sink.dropped] == [
        ("kernels.name: value missing or negative", 1, "rank0/kernel_details.csv"),
        ("kernels.duration_ns: value missing or negative", 1, "rank0/kernel_details.csv"),
    ]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.none() | st.integers(-(2**40), 2**60), max_size=20))
def test_kept_and_dropped_rows_are_all_rows(durations):
    sink = Sink()
    kept = sink.add("kernels", rank=0, name="a", kind="computing", duration_ns=durations) if durations else 0
    assert kept == sum(duration is not None and duration >= 0 for duration in durations)
    assert kept + sum(lost.count for lost in sink.dropped) == len(durations)
    if kept:
        assert sink.tables()["kernels"]["duration_ns"].tolist() == [
            value for value in durations if value is not None and value >= 0
        ]


def test_a_column_that_no_table_has_is_a_programming_error():
    with pytest.raises(TypeError, match="table kernels has no column colour, flavour"):
        Sink().add("kernels", rank=0, colour="red", flavour="sweet")


def test_text_is_data_whatever_it_says():
    sink = Sink()
    sink.add("kernels", rank=0, name=np.array(["<img src=x onerror=alert(1)>"], dtype=object), kind="computing", duration_ns=1)
    assert sink.tables()["kernels"]["name"].tolist() == ["<img src=x onerror=alert(1)>"]


def test_file_names_that_are_no_utf8_can_be_shown():
    sink = Sink()
    sink.drop("row", 1, "rank\udcff/\x1b[31m.csv")
    assert sink.dropped[0].file == r"rank\udcff/\x1b[31m.csv"


def test_rows_lost_for_one_reason_in_one_file_are_told_once_with_their_sum():
    sink = Sink()
    for file in ("a.json", "b.json", "a.json"):
        sink.drop("no time", 3, file, "kernels")
        sink.drop("bytes behind the end", 1, file)
    sink.sum_up_losses()
    assert [(lost.what, lost.count, lost.file) for lost in sink.dropped] == [
        ("no time", 6, "a.json"),
        ("bytes behind the end", 1, "a.json"),
        ("no time", 3, "b.json"),
        ("bytes behind the end", 1, "b.json"),
        ("bytes behind the end", 1, "a.json"),
    ]


def test_dropping_nothing_says_nothing_and_a_note_is_kept_once():
    sink = Sink()
    sink.drop("row", 0, "file")
    sink.note("the same")
    sink.note("the same")
    assert (sink.dropped, sink.notes) == ([], ["the same"])


@pytest.mark.parametrize(("source", "state"), [(None, "missing"), (file(0), "empty"), (file(9), "present")])
def test_coverage_follows_from_the_file(source, state):
    sink = Sink()
    sink.cover(2, "kernels", source)
    row = sink.tables()["coverage"].iloc[0]
    assert (row["rank"], row["state"]) == (2, state)
    assert row["bytes"] is pd.NA if source is None else row["bytes"] == source.size_bytes


def test_facts_carry_their_origin():
    sink = Sink()
    sink.fact("seq_length", 4096, "run.yaml: model.seq_length")
    assert str(sink.facts["seq_length"].source) == "measured: run.yaml: model.seq_length"


def test_progress_counts_bytes_up_to_the_total():
    seen: list[tuple[str, int, int]] = []
    sink = Sink(progress=lambda *report: seen.append(report), total_bytes=10)
    sink.advance("a", 4)
    sink.advance("b", 6)
    assert seen == [("a", 4, 10), ("b", 10, 10)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.none() | st.sampled_from("abcde"), min_size=1, max_size=6), min_size=1, max_size=5), st.booleans())
def test_text_in_pieces_is_one_column_of_sorted_categories_in_use(pieces, ready):
    sink = Sink()
    for piece in pieces:
        texts = pd.Series(piece, dtype="object")
        given_texts = pd.Categorical(texts, categories=list("edcbax")) if ready else texts
        sink.add("kernels", rank=0, name="k", type=given_texts, kind="computing", duration_ns=1)
    column = sink.tables()["kernels"]["type"]
    expected = [text for piece in pieces for text in piece]
    assert column.astype(object).where(column.notna(), None).tolist() == expected
    assert column.cat.categories.tolist() == sorted({text for text in expected if text is not None})


def test_a_row_that_ends_beyond_any_time_is_refused_and_counted():
    sink = Sink()
    kept = sink.add("kernels", rank=0, name=["a", "b"], kind="computing", start_ns=[2**62, 5], duration_ns=[2**62 + 2**61, 7])
    assert kept == 1
    assert [(lost.what, lost.count) for lost in sink.dropped] == [
        ("kernels.duration_ns: the end is no time that 64 bits can hold", 1)
    ]


def test_tables_of_many_rows_are_those_of_few(monkeypatch):
    def tables(many_rows: int):
        monkeypatch.setattr(formats, "_MANY_ROWS", many_rows)
        sink = Sink()
        for names in (["b", "a", "b"], ["c", "a", "c"]):
            sink.add("kernels", rank=0, name=names, kind="computing", type=["x", None, "x"], start_ns=[1, 2, None], duration_ns=3)
        return sink.tables()["kernels"]

    pd.testing.assert_frame_equal(tables(1), tables(100))
