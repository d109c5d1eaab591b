"""Tables: units in the header, the same values in full in the export, not measured as a dash."""

from __future__ import annotations

import pandas as pd

from perfkit.core.looks import brief, folded
from perfkit.core.units import THIN_SPACE
from perfkit.face.widgets.shown import shown
from perfkit.face.widgets.table import Table, table_content


def column(frame: pd.DataFrame, name: str, **options):
    return next(
        column
        for column, found in zip(table_content("t", Table(frame, **options))["columns"], frame.columns, strict=True)
        if found == name
    )


def test_one_unit_serves_a_column_its_cells_and_its_export():
    times = column(pd.DataFrame({"duration_ns": [1_500_000, 136_581_000, None]}), "duration_ns")
    assert (times["label"], times["unit"]) == ("duration", "ms")
    assert times["text"] == ["1.50", "137", "–"]
    assert times["values"] == [1.5, 136.581, None]
    assert times["numeric"] is True


def test_amounts_that_are_all_missing_are_amounts():
    frame = pd.DataFrame({"others_waited_for_it_ns": [None, None], "name": ["a", None], "why": [None, None]})
    numeric = {name: column(frame, name)["numeric"] for name in frame}
    assert numeric == {"others_waited_for_it_ns": True, "name": False, "why": False}


def test_shares_are_percent_and_sizes_binary():
    frame = pd.DataFrame({"overlap_ratio": [0.125], "peak_bytes": [59_392 * 2**20], "count": [12_481]})
    assert (column(frame, "overlap_ratio")["text"], column(frame, "overlap_ratio")["values"]) == (["12.5"], [12.5])
    assert (column(frame, "peak_bytes")["unit"], column(frame, "peak_bytes")["text"]) == ("GiB", ["58.0"])
    assert column(frame, "count")["text"] == ["12\u2009481"]


def test_a_change_has_its_sign_and_nothing_else_has():
    frame = pd.DataFrame(
        {"change_ns": [2.48e9, -1.5e9, 0.0, None], "exchange_ns": [1e9] * 4, "more_change_ratio": [1e-7, -1e-7, 0.5, -0.5]}
    )
    texts = {column["label"]: column["text"] for column in table_content("t", Table(frame))["columns"]}
    assert list(texts.values()) == [
        ["+2.48", "−1.50", "0", "–"],
        ["1.00", "1.00", "1.00", "1.00"],
        ["< +0.001", "> −0.001", "+50.0", "−50.0"],
    ]


def test_a_share_that_nobody_reads_is_whole_in_the_export():
    shares = column(pd.DataFrame({"overlap_ratio": [0.125, 1.49e-7]}), "overlap_ratio")
    assert (shares["text"], shares["values"]) == (["12.5", "< 0.001"], [12.5, 1.49e-5])


def test_a_unit_that_is_given_wins_over_the_names():
    speed = column(pd.DataFrame({"speed": [2562.0]}), "speed", units={"speed": "tokens/s"}, labels={"speed": "Speed"})
    assert (speed["label"], speed["unit"], speed["text"]) == ("Speed", "tokens/s", ["2\u2009560"])


def test_a_column_in_which_no_cell_says_anything_is_not_drawn_but_one_of_zeros_is():
    frame = pd.DataFrame({"rank": [0, 1], "note": ["", ""], "wait_ns": [0, 0], "why": ["", "late"], "size_bytes": [None, None]})
    frame["late_ns"] = pd.array([pd.NA, pd.NA], dtype="Int64")
    drawn = [one["label"] for one in table_content("t", Table(frame))["columns"]]
    assert drawn == ["rank", "wait", "why", "size", "late"], "what was not measured is said"
    assert len(table_content("t", Table(frame.head(0)))["columns"]) == len(frame.columns)


def test_judgements_are_signs_and_counts_lists_and_unknown_words_are_none():
    def signs(name, *cells):
        return column(pd.DataFrame({name: pd.Series(cells, dtype="object")}), name)["signs"]

    assert signs("severity", "high", "low", None) == ["bad", "plain", ""]
    assert signs("fits", "yes", "no, 3 GiB too much", False, 0) == ["", "bad", "bad", ""]
    assert signs("verdict", "unexpected", ["avoidable"], pd.NA) == ["bad", "", ""]
    assert signs("note", "high") == []


def test_hostile_text_is_only_text():
    name = "<img src=x onerror=alert(1)>"
    cells = column(pd.DataFrame({"name": [name]}), "name")
    assert cells["text"] == [name]
    assert cells["numeric"] is False


def test_rows_beyond_the_limit_are_counted():
    content = table_content("t", Table(pd.DataFrame({"a": range(10)}), max_rows=3))
    assert (content["total"], len(content["columns"][0]["text"])) == (10, 3)


def test_a_long_name_is_told_by_both_its_ends_and_whole_in_the_export():
    kernel = f"void at::native::elementwise_kernel<{'4, ' * 60}>(at::TensorIteratorBase)"
    cells = column(pd.DataFrame({"name": [kernel, "Mul"]}), "name")
    assert cells["values"] == [kernel, "Mul"]
    first, short = cells["text"]
    head, tail = first.split("…")
    assert short == "Mul"
    assert len(first) <= 72
    assert kernel.startswith(head)
    assert kernel.endswith(tail)


def test_a_sentence_is_not_shortened():
    told = "the device waits for what the host launches too late, in every step that was recorded, on all ranks"
    assert column(pd.DataFrame({"why": [told]}), "why")["text"] == [told]


def test_a_row_is_given_by_column_name():
    table = Table(pd.DataFrame({"rank": [0, 1], "wait_ns": [5, 7]}), selectable=True)
    assert table.row(1) == {"rank": 1, "wait_ns": 7}
    assert table_content("t", table)["selectable"] is True


def test_an_empty_frame_is_a_table_without_rows():
    assert table_content("t", Table(pd.DataFrame({"a": []})))["columns"][0]["text"] == []


def test_counts_of_which_one_is_absent_are_whole():
    content = table_content("plans", Table(pd.DataFrame({"global_batch_size": [1024, None], "slowness": [1.0, 1.25]})))
    assert [column["text"] for column in content["columns"]] == [[f"1{THIN_SPACE}024", "–"], ["1.00", "1.25"]]


def test_yes_and_no_are_in_the_language_of_the_page(monkeypatch):
    monkeypatch.setenv("PERFKIT_LANGUAGE", "zh")
    (column,) = table_content("ranks", Table(pd.DataFrame({"slow": [True, False]})))["columns"]
    assert column["text"] == ["是", "否"]
    assert column["values"] == [True, False]


def test_a_brief_frame_shows_the_columns_that_answer_and_holds_all():
    frame = brief(pd.DataFrame({"rank": [0, 1], "wait_ns": [1, 2], "z": [0.5, 0.1]}), "rank", "wait_ns", "not there")
    (table,) = shown(frame).tables.values()
    columns = table_content("t", table)["columns"]
    assert [(one["label"], one["aside"]) for one in columns] == [("rank", False), ("wait", False), ("z", True)]
    assert columns[2]["values"] == [0.5, 0.1], "its CSV has it"
    (whole,) = shown(frame.rename(columns={"rank": "a", "wait_ns": "b_ns"})).tables.values()
    assert not any(one["aside"] for one in table_content("t", whole)["columns"]), "of columns that are not there none is missed"


def test_a_folded_frame_is_told_so():
    (table,) = shown({"Parts": folded(pd.DataFrame({"part": ["a"]}))}).tables.values()
    assert table_content("t", table)["look"] == "folded"
