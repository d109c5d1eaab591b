"""Reading CSV files exactly, whatever is wrong with them."""

import csv
from decimal import Decimal
from pathlib import Path

import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfkit.core.errors import InputError
from perfkit.record import store
from perfkit.record.listing import File
from perfkit.record.store import _few_cells, _row_blocks, read_csv
from perfkit.record.store._cells import parse, parse_all

TRACES = Path(__file__).parents[1] / "data" / "traces"
COLUMNS = {"a": "us", "b": "text", "c": "int"}


def table(tmp_path: Path, content: bytes) -> File:
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    return File(path, Path("table.csv"), len(content))


@pytest.mark.parametrize(
    "content",
    [
        b"a,b,c\n1.5,x,3\n2,y,4\n",
        b"a,b,c\r\n1.5\t,x,3\r\n2,y,4",
        b"\xef\xbb\xbfa,b,c\n1.5, x ,3.0\n2,y,4\n",
        b'\xef\xbb\xbf"a","b","c"\r\n"1.5\t","x","3"\r\n\r\n2,y,4\r\n\r\n',
        b"\n\nc,more,b,a\n3,?,x,1.5\n4,?,y,2\n",
        b"a,b,c,\n1.5,x,3,\n2,y,4,\n",
        b"a,b,c\n1.5,x,3,\n2,y,4,,\n",
    ],
    ids=[
        "plain",
        "CRLF and tabs",
        "BOM and blanks",
        "quotes and blank lines",
        "order and more columns",
        "comma at the end",
        "rows only",
    ],
)
def test_every_way_to_write_a_table_reads_the_same(tmp_path: Path, content: bytes):
    csv = read_csv(table(tmp_path, content), COLUMNS)
    assert csv.frame.to_dict("list") == {"a": [1500, 2000], "b": ["x", "y"], "c": [3, 4]}
    assert not csv.losses()


CELLS = {"a": "us", "b": "label", "c": "int", "d": "float", "e": "text", "f": "ms", "g": "label"}
ODD = st.sampled_from(
    ["1e3", "nan", "N/A", "", "-", "x", " 7", "z\t", "inf", "+1", ".5", "5.", "1e400", "9" * 20, "4_000", "\x1d1", "0x1"]
)
TIMES = st.decimals(-(10**12), 10**12, allow_nan=False, allow_infinity=False, places=7).map("{:f}".format)
WHOLE, FLOATS, TEXTS = (
    st.integers(-(10**17), 10**17).map(str),
    st.floats(-1e9, 1e9).map(repr),
    st.sampled_from(["x", "y", " x", "N/A"]),
)
ROWS = st.tuples(TIMES, TEXTS, WHOLE, FLOATS, TEXTS, TIMES).map(list)


def assert_read_alike(file: File, columns: dict[str, store.Cell], whole: pytest.MonkeyPatch) -> bool:
    """Whether a file was plain; if so the columnar engine must read the same."""
    plain = _few_cells.read_plain(file, columns)
    found = read_csv(file, columns)
    with whole.context() as patch:
        patch.setattr(_few_cells, "MAX_BYTES", 0)
        wanted = read_csv(file, columns)
    pd.testing.assert_frame_equal(found.frame, wanted.frame)
    assert (found.absent, found.unread, found.losses()) == (wanted.absent, wanted.unread, wanted.losses())
    return plain is not None


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ROWS, min_size=1, max_size=4), st.none() | st.tuples(st.integers(0, 5), ODD), st.booleans())
def test_a_small_table_is_read_as_the_columnar_engine_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[list[str]], odd: tuple[int, str] | None, carriage: bool
):
    if odd is not None:
        rows[-1][odd[0]] = odd[1]
    content = ("\r\n" if carriage else "\n").join([",".join(("a", "b", "c", "d", "e", "f")), *(",".join(row) for row in rows)])
    was_plain = assert_read_alike(table(tmp_path, content.encode()), CELLS, monkeypatch)
    assert was_plain or odd is not None or any("e" in row[3] for row in rows)


def test_small_tables_of_recordings_are_plain_and_read_as_the_columnar_engine_reads_them(monkeypatch: pytest.MonkeyPatch):
    files = [path for path in sorted(TRACES.rglob("*.csv")) if 0 < path.stat().st_size <= _few_cells.MAX_BYTES]
    plain = 0
    for path in files:
        header = path.read_text(encoding="utf-8-sig").split("\n")[0]
        names = [name.strip() for name in next(csv.reader([header]))]
        columns: dict[str, store.Cell] = {
            name: "us" if "us)" in name else "float" if "MB" in name or "%" in name else "label" for name in names
        }
        plain += assert_read_alike(File(path, Path(path.name), path.stat().st_size), columns, monkeypatch)
    assert plain > len(files) / 2


def test_epoch_times_keep_every_ns(tmp_path: Path):
    csv = read_csv(table(tmp_path, b"a\n1736408883704643.212\n1736408883704643.213\n1736408883704643\n"), {"a": "us"})
    assert csv.frame["a"].tolist() == [1736408883704643212, 1736408883704643213, 1736408883704643000]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.decimals(-(10**15), 10**15, allow_nan=False, allow_infinity=False, places=5), min_size=1, max_size=20))
def test_decimal_text_becomes_the_nearest_ns_whatever_its_form(tmp_path_factory, values: list[Decimal]):
    lines = [f"{value:{form}}" for value, form in zip(values, ("f", "e", ".2f") * 7, strict=False)]
    content = "\n".join(["a", *lines]).encode()
    file = table(tmp_path_factory.mktemp("csv"), content)
    expected = [int((Decimal(line) * 1000).to_integral_value()) for line in lines]
    assert read_csv(file, {"a": "us"}).frame["a"].tolist() == expected


def test_null_is_not_zero_and_text_that_is_no_number_is_counted(tmp_path: Path):
    content = b"a,b,c\nN/A,N/A,NA\nfive,-,1.5\n1e400,,99999999999999999999\n1e3,ok,0\n"
    csv = read_csv(table(tmp_path, content), COLUMNS)
    assert csv.frame["a"].tolist() == [pd.NA, pd.NA, 1_000_000]
    assert csv.frame["b"].isna().tolist() == [True, True, False]
    assert csv.frame["c"].tolist() == [pd.NA, pd.NA, 0]
    assert csv.unparsed == {"a": 2, "c": 2}
    assert csv.losses() == {"a: not a number": 2, "c: not a number": 2}


def test_floats_that_are_not_finite_are_null(tmp_path: Path):
    csv = read_csv(table(tmp_path, b"x\n0.5\ninf\n-1e3\nNaN\n"), {"x": "float"})
    assert csv.frame["x"].tolist()[0:3:2] == [0.5, -1000.0]
    assert csv.unparsed == {"x": 1}


def test_absent_columns_are_null_and_unread_ones_are_listed(tmp_path: Path):
    csv = read_csv(table(tmp_path, b"a,z\n1,9\n"), COLUMNS)
    assert (csv.absent, csv.unread) == (("b", "c"), ("z",))
    assert csv.frame["b"].isna().all()
    assert csv.frame["c"].isna().all()


def test_rows_with_more_or_fewer_cells_are_left_out_and_counted(tmp_path: Path):
    csv = read_csv(table(tmp_path, b"a,b,c\n1,x,3\n2,shifted\n3,un,quoted,4\n4,y,5\n5,cu"), COLUMNS)
    assert csv.frame["a"].tolist() == [1000, 4000]
    assert csv.misshapen == 3


def test_a_quote_that_never_ends_costs_the_lines_that_it_swallows(tmp_path: Path):
    csv = read_csv(table(tmp_path, b'a,b,c\n1,x,3\n2,"open,4\n3,y,5\n4,z,6\n'), COLUMNS)
    assert csv.frame["a"].tolist() == [1000]
    assert csv.misshapen == 3


def test_text_over_several_lines_is_one_cell(tmp_path: Path):
    csv = read_csv(table(tmp_path, b'a,b,c\n1,"one;\r\ntwo",3\n'), COLUMNS)
    assert csv.frame["b"].tolist() == ["one;\r\ntwo"]


def test_bytes_that_are_no_utf8_are_replaced(tmp_path: Path):
    csv = read_csv(table(tmp_path, b"a,b,c\n1,\xff<img src=x onerror=alert(1)>,3\n"), COLUMNS)
    assert csv.frame["b"].tolist() == ["�<img src=x onerror=alert(1)>"]


@pytest.mark.parametrize("content", [b"a,b,c\n", b"a,b,c", b"a,b,c\r\n\r\n"])
def test_a_table_without_rows_has_its_columns(tmp_path: Path, content: bytes):
    csv = read_csv(table(tmp_path, content), COLUMNS, required=("a",))
    assert list(csv.frame.columns) == ["a", "b", "c"]
    assert csv.frame.empty


def test_of_two_columns_with_one_name_the_first_is_read(tmp_path: Path):
    assert read_csv(table(tmp_path, b"a,a\n1,2\n"), {"a": "us"}).frame["a"].tolist() == [1000]


def test_every_missing_column_is_named(tmp_path: Path):
    with pytest.raises(InputError) as error:
        read_csv(table(tmp_path, b"a,z\n1,2\n"), COLUMNS, required=("a", "b", "c"))
    assert str(error.value) == (
        "table.csv: 2 problems\n  - column 'b' is missing; the file has 'a', 'z'\n  - column 'c' is missing; the file has 'a', 'z'"
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the file is empty (0 bytes)"),
        (b"\n\n", "the file has no header line"),
        (b",,\n1,2,3\n", "the file has no header line"),
    ],
)
def test_a_file_without_a_table_is_an_error(tmp_path: Path, content: bytes, problem: str):
    with pytest.raises(InputError, match="1 problem") as error:
        read_csv(table(tmp_path, content), COLUMNS)
    assert error.value.problems == (problem,)


def test_a_file_that_is_gone_is_an_error(tmp_path: Path):
    file = table(tmp_path, b"a\n1\n")
    file.path.unlink()
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_csv(file, {"a": "us"})


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_crash_the_reader(tmp_path_factory, content: bytes):
    file = table(tmp_path_factory.mktemp("csv"), b"a,b,c\n" + content)
    csv = read_csv(file, COLUMNS)
    assert list(csv.frame.columns) == ["a", "b", "c"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(-(10**9), 10**9), st.sampled_from(["x", "y z", "N/A"]), st.integers(0, 9)), min_size=1))
def test_the_fast_and_the_careful_reader_agree(tmp_path_factory, rows: list[tuple[int, str, int]]):
    lines = "".join(f"{a},{b},{c}\n" for a, b, c in rows)
    folder = tmp_path_factory.mktemp("csv")
    fast = read_csv(table(folder, f"a,b,c\n{lines}".encode()), COLUMNS)
    careful = read_csv(table(folder, f"a,b,c\n{lines}1,too short\n".encode()), COLUMNS)
    assert careful.misshapen == 1
    pd.testing.assert_frame_equal(fast.frame, careful.frame)


def test_the_cells_that_mean_null_are_null_in_every_kind_of_column(tmp_path: Path):
    content = "t,i,f,u\n" + "".join(f'"{null}","{null}","{null}","{null}"\n' for null in store.NULLS) + "a,1,1,1\n"
    frame = read_csv(table(tmp_path, content.encode()), {"t": "text", "i": "int", "f": "float", "u": "ms"}).frame
    assert frame.notna().sum().to_dict() == {"t": 1, "i": 1, "f": 1, "u": 1}


TEXTS = st.lists(st.sampled_from(["", " a", "a", "a\t", "N/A", "b", "-", "é", "None", "a b"]), min_size=1, max_size=30)


@settings(max_examples=60, deadline=None)
@given(TEXTS)
def test_labels_are_the_same_texts_as_categories_in_order(tmp_path_factory, texts: list[str]):
    content = "n,b\n" + "".join(f"{index},{text}\n" for index, text in enumerate(texts))
    file = table(tmp_path_factory.mktemp("labels"), content.encode())
    labels = read_csv(file, {"n": "int", "b": "label"}).frame["b"]
    plain = read_csv(file, {"n": "int", "b": "text"}).frame["b"]
    assert labels.astype(object).where(labels.notna(), None).tolist() == plain.tolist()
    assert labels.cat.categories.tolist() == sorted(set(plain.dropna()))


def test_a_label_that_the_file_does_not_have_is_null(tmp_path: Path):
    labels = read_csv(table(tmp_path, b"a\n1\n2\n"), {"a": "int", "b": "label"}).frame["b"]
    assert labels.isna().tolist() == [True, True]
    assert labels.cat.categories.tolist() == []


@pytest.mark.parametrize("num_bytes", [7, 11, 30])
def test_a_table_read_in_blocks_is_the_table_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_bytes: int):
    lines = [f'{index}.25,"x{index % 3}\n{index % 2}",{index if index % 5 else "odd"}\r\n' for index in range(40)]
    file = table(tmp_path, ("\xef\xbb\xbf\r\n".encode("latin-1") + b"a,b,c\r\n" + "".join(lines).encode() + b"1,2\r\n"))
    labels = {"a": "us", "b": "label", "c": "int", "absent": "label"}
    whole = read_csv(file, labels)
    monkeypatch.setattr(_row_blocks, "BLOCK_BYTES", num_bytes)
    parts = read_csv(file, labels)
    pd.testing.assert_frame_equal(parts.frame, whole.frame)
    assert (parts.losses(), parts.unread, parts.absent) == (whole.losses(), whole.unread, whole.absent)
    assert len(parts.frame) == 40
    assert parts.unparsed == {"c": 8}
    assert parts.misshapen == 1


def test_a_stray_quote_in_a_large_table_costs_no_more_than_its_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_row_blocks, "BLOCK_BYTES", 256)
    monkeypatch.setattr(_row_blocks, "MAX_ROW_BYTES", 1024)
    rows = [f"{index},x,{index}\n" for index in range(2000)]
    rows[500] = '500,"x,500\n'
    csv = read_csv(table(tmp_path, ("a,b,c\n" + "".join(rows)).encode()), COLUMNS)
    assert len(csv.frame) + csv.misshapen == 2000
    assert csv.misshapen < 300


@pytest.mark.parametrize("between", [b"", b"\0\0", b'"', b"x,"])
def test_a_line_end_that_is_gone_costs_the_rows_that_it_joined_whatever_columns_are_read(tmp_path: Path, between: bytes):
    rows = [b"%d,2,3" % number for number in range(99)]
    for columns in (["a", "c"], ["a", "b", "c"], ["b"]):
        content = b"a,b,c\n" + b"\n".join(rows[:50]) + between + b"\n".join(rows[50:]) + b"\n"
        csv = read_csv(table(tmp_path, content), dict.fromkeys(columns, "int"))
        assert csv.misshapen + len(csv.frame) <= 99
        assert csv.misshapen >= 1


@given(
    st.lists(
        st.tuples(
            *[st.sampled_from(["1", "-2.5", " 3 ", "4.0", "1e3", "", "N/A", "nan", "inf", "x", "\u3000" + "5", None, "9" * 30])] * 4
        ),
        max_size=6,
    )
)
def test_columns_that_are_parsed_together_are_those_that_are_parsed_alone(rows):
    kinds = dict(zip("abcd", ("int", "float", "us", "ns"), strict=True))
    texts = {name: pl.Series([row[at] for row in rows], dtype=pl.String) for at, name in enumerate(kinds)}
    values, bad = parse_all(texts, kinds)
    for name, kind in kinds.items():
        alone, count = parse(texts[name], kind)
        assert values[name].to_list() == alone.to_list()
        assert bad.get(name, 0) == count
