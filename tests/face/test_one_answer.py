"""One answer through every door: a figure of a page is that of `--json` and of the terminal, by name, unit and shown digits."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest

from perfkit.core import quantity
from perfkit.core.resources import data_folder
from perfkit.face.charts.spec import split
from perfkit.face.cli import main
from perfkit.face.widgets.answer import Whole
from perfkit.face.widgets.chart import as_figure
from perfkit.face.widgets.page_state import page_state
from perfkit.face.widgets.table import Table, table_content, told_columns
from tests.page_cells import run_page, views

DATA = data_folder()
TWO_RANKS, GPU, FEED, SIXTEEN = (
    str(DATA / "traces" / name) for name in ("torch_npu_2rank", "kineto_resnet", "mindinsight_feed", "cluster_16card")
)
PLANS = [str(DATA / f"case13b/round{number}.yaml") for number in (1, 2)]
DEVICE = ["--device", "Ascend-910B2"]
SHOWN = re.compile(r"(?<![\w.])[-−]?\d+(?:[\u2009\u202f ]\d{3})*(?:\.\d+)?")

TINY = re.compile(r"[<>] [-+]?0\.001(?= %|$)")
"""A share that nobody reads: nothing, as far as its digits go."""

Row = Mapping[str, Any]


class Shown(NamedTuple):
    """A number as it is read off a surface: in the unit of its name, and half of its last digit."""

    value: float
    half: float

    def is_of(self, value: float) -> bool:
        return abs(self.value - value) <= self.half * 1.001 + 1e-9 * abs(value)


def read_off(text: str, name: str, unit: str = "") -> Shown | None:
    """The number in a cell, in the unit with which `name` ends; None if it shows none. `unit` is that of a column."""
    text = TINY.sub("0.00", text)
    found = SHOWN.match(text)
    if found is None:
        return None
    digits = re.sub(r"[\u2009\u202f ]", "", found[0]).replace("−", "-")
    decimals = len(digits.partition(".")[2])
    told = unit or text[found.end() :].strip().partition(" (")[0]
    known = quantity.quantity(name)
    assert known is not None or told == "", (name, text)
    sizes = {} if known is None else {unit: size for size, unit in known.prefixes}
    size = sizes[told] if told else 1
    value = float(digits)
    last = -decimals if known is None or not value else max(-decimals, math.floor(math.log10(abs(value))) + 1 - known.digits)
    return Shown(value * size, 0.5 * 10.0**last * size)


KINDS = {
    unit: (kind, size)
    for kind in ("ns", "bytes", "bytes_per_s", "flops", "flops_per_s", "ratio")
    for size, unit in quantity.quantity(kind).prefixes  # type: ignore[union-attr]
}
"""By the unit that people see, what it is a unit of and how much of that."""
TOLD = re.compile(
    rf"({SHOWN.pattern}) ({'|'.join(re.escape(unit) for unit in sorted(KINDS, key=len, reverse=True) if unit)})(?![\w/])"
)


LEVEL = re.compile(r"80 % (?=interval|between)")
"""How sure an interval is, which is no figure of the page."""


def told_in(text: str) -> Iterator[tuple[str, Shown]]:
    """The numbers with a unit in a sentence: what each is of, and the number."""
    for number, unit in TOLD.findall(TINY.sub("0.00", text)):
        digits = re.sub(r"[\u2009\u202f ]", "", number).replace("−", "-")
        (kind, size), decimals = KINDS[unit], len(digits.partition(".")[2])
        last = 0 if decimals else max(0, math.floor(math.log10(abs(float(digits)) or 1)) - 2)
        yield kind, Shown(float(digits) * size, 0.5 * 10.0 ** (last - decimals) * size)


def numbers_in(document: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a document, or of a table's rows, by what it is of; parts of an amount have the unit of their whole."""
    if isinstance(document, Mapping):
        for key, value in document.items():
            yield from numbers_in(value, str(key) if quantity.unit_of(str(key)) or not isinstance(value, int | float) else name)
    elif isinstance(document, list | tuple):
        for value in document:
            yield from numbers_in(value, name)
    elif isinstance(document, str):
        yield from ((kind, shown.value) for kind, shown in told_in(document))
    elif isinstance(document, int | float) and not isinstance(document, bool) and (known := quantity.quantity(name)) is not None:
        unit = known.prefixes[-1][1]
        kind, size = KINDS.get(unit, (unit, 1))
        yield kind, document * (size / known.prefixes[-1][0])


def sentence_is_of(text: str, *behind: Any) -> None:
    """Every number with a unit in a sentence stands in what is behind it, or is made of two numbers of the sentence that do.

    Of two amounts that is their difference, or the share of one in the other or in both together.
    """
    known = list(numbers_in(behind))
    told = list(told_in(LEVEL.sub("", text)))
    exact = {(kind, value) for kind, shown in told for of, value in known if kind == of and shown.is_of(value)}
    for kind, shown in told:
        if not any(of == kind and shown.is_of(value) for of, value in exact):
            pairs = [(of, a, b) for of, a in exact for other, b in exact if of == other and a > 0 and b > 0]
            made = [a - b for of, a, b in pairs if of == kind]
            made += [share for _, a, b in pairs for share in (a / b, a / (a + b), 1 - a / b)] if kind == "ratio" else []
            assert any(shown.is_of(value) for value in made), (kind, shown, text)


def test_a_sentence_with_a_number_of_its_own_is_found():
    step = {"duration_ns": 12_300_000, "parts": {"free_ns": [2_300_000]}}
    sentence_is_of("12.3 ms a step, 2.30 ms of it free (18.7 %), 10.0 ms the rest (80 % between them)", step)
    for text in ("12.4 ms a step", "12.3 GiB", "18.7 %", "12.3 ms a step, 18.7 % of it free"):
        with pytest.raises(AssertionError):
            sentence_is_of(text, step)


def page_is_of(whole: Whole, *documents: Any) -> None:
    """The sentence of a page tells numbers of its tables and charts, of the sums of their columns, or of the command's document."""
    frames = [getattr(table, "frame", table) for table in whole.tables.values()]
    frames += [pd.DataFrame(rows) for chart in whole.charts.values() for rows in split(as_figure(chart).chart).datasets.values()]
    sums = [frame.select_dtypes("number").sum().to_dict() for frame in frames]
    sentence_is_of(str(whole.text), [frame.to_dict("list") for frame in frames], sums, documents)


@pytest.fixture(scope="module", autouse=True)
def _loaded_once() -> Iterator[None]:
    """Commands and pages share what was read and found between them: what is tested is what they say of it."""

    def remembered(function: Callable[..., Any]) -> Callable[..., Any]:
        known: dict[Any, Any] = {}

        def call(*arguments: Any, **named: Any) -> Any:
            key = (*map(str, arguments), *((name, value) for name, value in named.items() if name != "progress"))
            if key not in known:
                known[key] = function(*arguments, **named)
            return known[key]

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("perfkit.record.load.load", "perfkit.explain.compare.compare", "perfkit.explain.diagnose.diagnose"):
            module, _, function = name.rpartition(".")
            patch.setattr(name, remembered(getattr(importlib.import_module(module), function)))
        patch.setattr("perfkit.explain.compare.sides.load", importlib.import_module("perfkit.record.load").load)
        yield


@pytest.fixture(autouse=True)
def _no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page_state.cache_clear()
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))
    monkeypatch.setenv("PERFKIT_WAIT_FOR_PANELS", "1")


def asked(*command: str) -> tuple[Any, str]:
    """What a command prints with `--json`, and what it prints for people."""
    printed = []
    for more in (["--json"], []):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            assert main([*command, *more]) == 0
        printed.append(out.getvalue())
    return json.loads(printed[0]), printed[1]


def printed_rows(text: str) -> Iterator[dict[str, str]]:
    """The rows of all tables in what a command printed, by the words of their columns."""
    for block in text.split("\n\n"):
        lines = block.splitlines()
        starts = [at for at, line in enumerate(lines) if "  " in line.strip() and not line.startswith(" ")]
        if not starts:
            continue
        header = re.split(r" {2,}", lines[starts[0]].strip())
        for line in lines[starts[0] + 1 :]:
            cells = re.split(r" {2,}", line.strip())
            if len(cells) == len(header):
                yield dict(zip(header, cells, strict=True))


def page_rows(whole: Whole, *names: str) -> Iterator[dict[str, Any]]:
    """The rows of the one table that has columns of these names: what identifies a row as it is, figures as they are read off."""
    (table,) = [found for found in whole.tables.values() if set(names) <= set(getattr(found, "frame", found).columns)]
    table = table if isinstance(table, Table) else Table(frame=table)
    columns = table_content("t", table)["columns"]
    for at in range(len(columns[0]["text"])):
        row: dict[str, Any] = {str(name): table.frame[name].iloc[at] for name in table.frame.columns}
        for name, column in zip(told_columns(table.frame), columns, strict=True):
            own = table.frame[name].iloc[at]
            is_figure = quantity.quantity(name) is not None or column["numeric"]
            row[name] = read_off(column["text"][at], name, column["unit"]) if is_figure else None if own is pd.NA else own
            assert column["label"] == quantity.label(name) or quantity.quantity(name) is None, (name, column["label"])
            if name in names:
                row[f"key {name}"] = own
        yield row


def named_parts(breakdown: Mapping[str, float], unit: str) -> dict[str, float]:
    """Parts of a time by the names of columns: `communication/exposed` is `exposed_communication_ns`."""
    return {f"{'_'.join(reversed(path.split('/')))}_{unit}": amount for path, amount in breakdown.items()}


def same(page: Row, document: Row, printed: Mapping[str, str] | None, *names: str) -> None:
    """Every figure of `names` on the page is the one of the document, and the terminal prints it under the same words."""
    for name in names:
        value, shown = document[name], page[name]
        if value is None or shown is None:
            assert value is None, (name, shown, value)
            assert shown is None, (name, shown, value)
            continue
        assert shown.is_of(value), (name, shown, value)
        if printed is not None:
            told = read_off(printed[quantity.label(name)], name)
            assert told is not None, (name, printed)
            assert told.is_of(value), (name, printed, value)


def rows_of(text: str, **identity: Any) -> dict[str, str]:
    """The one row of a terminal's tables whose cells in these columns are these values."""
    wanted = {quantity.label(name): str(value) for name, value in identity.items()}
    (row,) = [row for row in printed_rows(text) if wanted.items() <= row.items()]
    return row


@pytest.mark.parametrize("path", [TWO_RANKS, GPU], ids=["ascend", "gpu"])
def test_summary_and_page_11(path: str):
    document, text = asked("summary", path)
    steps = {(rank["rank"], step["step"]): step for rank in document["ranks"] for step in rank["steps"]}
    shown = views(run_page("11_step_breakdown", path=path))
    page_is_of(shown["what_it_is_made_of"].wait(), document)
    rows = list(page_rows(shown["where_the_step_went"].wait(), "rank", "step", "duration_ns"))
    assert {row["key rank"] for row in rows} == {rank["rank"] for rank in document["ranks"]}
    for row in rows:
        step = steps[row["key rank"], row["key step"]]
        parts = named_parts(step["breakdown_ns"], "ns")
        printed = rows_of(text, rank=row["key rank"], step=row["key step"])
        printed |= {quantity.label(name): printed[path] for name, path in zip(parts, step["breakdown_ns"], strict=True)}
        figures = {**step, **parts}
        same(row, figures, printed, *(name for name in row if name in figures and name not in ("step", "rank")))
        assert {"duration_ns", "computing_ns", "exposed_communication_ns", "overlapped_ns", "free_ns"} <= set(figures) & set(row)


def test_kernels_and_page_12():
    document, text = asked("ask", TWO_RANKS, "kernels", "--rank", "0", "--top", "100")
    kernels = {row["name"]: row for row in document["rows"]}
    shown = views(run_page("12_operators", path=TWO_RANKS))["which_take_most"]
    shown.set({"core": "all"})
    page_is_of(shown.wait(), document)
    rows = list(page_rows(shown.wait(), "name", "gain_without_ratio"))
    assert [row["name"] for row in rows] == list(kernels)[: len(rows)] != []
    for row in rows:
        same(row, kernels[row["name"]], rows_of(text, name=row["name"]), "count", "total_ns", "mean_ns", "share")


def test_waiting_and_page_13():
    document, text = asked("ask", SIXTEEN, "waiting")
    ranks = {row["rank"]: row for row in document["rows"]}
    whole = views(run_page("13_communication", path=SIXTEEN))["who_waits_for_whom"].wait()
    page_is_of(whole, document)
    rows = list(page_rows(whole, "rank", "caused_ns"))
    assert len(rows) == len(ranks)
    for row in rows:
        rank = row["key rank"]
        same(row, ranks[rank], rows_of(text, rank=rank), "wait_ns", "caused_ns", "times_last", "operations")


@pytest.mark.parametrize("path", [TWO_RANKS, FEED], ids=["ascend", "feed"])
def test_diagnose_and_pages_20_and_16(path: str):
    document, text = asked("diagnose", path)
    flat = " ".join(text.split())
    page = run_page("20_findings", path=path)
    whole, shows = page["what_to_change_first"].wait(), page["what_shows_it"].wait()
    for each in (whole, shows, page["where_the_mean_step_goes"].wait()):
        page_is_of(each, document)
    for finding in document["findings"]:
        sentence_is_of(finding["title"], finding)
    by_title = {finding["title"]: finding for finding in document["findings"]}
    rows = list(page_rows(whole, "finding", "cost_ns"))
    assert len(rows) == len(by_title)
    for row in rows:
        finding = by_title[row["title"]]
        same(row, finding, None, "cost_ns", "share_of_step")
        if finding["cost_ns"] is not None:
            cost, share = (quantity.text(name, finding[name]) for name in ("cost_ns", "share_of_step"))
            assert f"{cost} of the mean step ({share})" in flat
        assert quantity.listed(finding["evidence"]) in flat
    chosen = by_title[rows[0]["title"]]["evidence"]
    evidence = shows.tables["The numbers that show it"].frame.set_index("what")["value"]
    assert evidence.to_dict() == {quantity.label(name): quantity.text(name, value) for name, value in chosen.items()}
    if path == FEED:
        way = views(run_page("16_data_feed", path=path))["what_slows_the_feed"].wait()
        page_is_of(way, document)
        answer = " ".join(next(iter(way.tables.values())).frame["measured"])
        for name in ("largest_interval_ns", "largest_interval_share"):
            assert quantity.text(name, chosen[name]) in answer, name


def test_estimate_and_pages_02_and_04():
    document, text = asked("estimate", PLANS[0], *DEVICE)
    flat = " ".join(text.replace("\u2009", "").split())
    step = views(run_page("02_model_cost", path=PLANS[0]))["how_long_a_step"].wait()
    fits = views(run_page("04_memory", path=PLANS[0]))["does_it_fit"].wait()
    page_is_of(step, document)
    page_is_of(fits, document)
    for name in ("step_time_s", "step_time_low_s", "step_time_high_s", "tokens_per_s_per_device", "mfu"):
        told = quantity.text(name, document[name])
        assert told in step.text, (name, told, step.text)
        assert told.replace("\u2009", "") in flat, (name, told)
    for name in ("peak_memory_bytes", "memory_limit_bytes"):
        told = quantity.text(name, document[name])
        assert told in fits.text, (name, told, fits.text)
        assert told in flat, (name, told)
    for whole, name, breakdown in ((step, "duration_ns", "breakdown_s"), (fits, "peak_bytes", "breakdown_bytes")):
        parts, size = document[breakdown], 1e9 if breakdown == "breakdown_s" else 1
        rows = list(page_rows(whole, "part", name))
        assert len(rows) == len(parts)
        for row in rows:
            share = parts[row["part"]] / sum(parts.values())
            same(row, {name: parts[row["part"]] * size, "share": share}, rows_of(text, part=row["part"]), name, "share")


@pytest.mark.parametrize("pair", [(TWO_RANKS, GPU), tuple(PLANS)], ids=["runs", "plans"])
def test_compare_and_page_21(pair: tuple[str, str]):
    runs = pair[0] == TWO_RANKS
    document, text = asked("compare", *pair, *(["--operators"] if runs else DEVICE))
    page = run_page("21_compare", old_path=pair[0], path=pair[1])
    whole = page["what_changed"].set(operators=runs).wait()
    unit = document["unit"]
    parts = {part["path"]: part for part in [*document["parts"], {"path": "total", **document["total"]}]}
    rows = list(page_rows(whole, "part", f"a_{unit}"))
    assert len(rows) == len(parts)
    for row in rows:
        amounts = {f"{name}_{unit}": parts[row["part"]][name] for name in ("a", "b", "delta")}
        same(row, amounts, rows_of(text, part=row["part"]), *amounts)
        assert rows_of(text, part=row["part"])["change"] == row["change"]
    page_is_of(whole, document)
    assert document["sentences"][0][1:] in whole.text
    assert document["sentences"][0] in text
    if runs:
        operators = {row["operator"]: row for row in document["operators"]["operators"]}
        for row in page_rows(page["which_operators_and_stages"].wait(), "operator", "a_share"):
            same(
                row, operators[row["operator"]], None, "count_a", "count_b", "mean_a_ns", "mean_b_ns", "ratio", "a_share", "b_share"
            )
