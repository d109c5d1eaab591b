"""What a notebook and a terminal show of a run, a breakdown and a finding; completion and help."""

from __future__ import annotations

import inspect

import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter

import perfkit
from perfkit.core.breakdown import Breakdown
from perfkit.core.display import MAX_ROWS, text_table
from perfkit.core.run import Dropped, Fact, LazyTable, LazyTables, Run, empty
from perfkit.core.source import Source
from perfkit.core.units import THIN_SPACE
from perfkit.explain.diagnose import Finding

HOSTILE = "<img src=x onerror=alert(1)>"
SOURCE = Source("measured", HOSTILE)
STEP = Breakdown("ns", {"computing": 3_000_000, HOSTILE: 1_000_000}, SOURCE, frozenset({"free"}))
RUN = Run(
    name=HOSTILE,
    kind="measured",
    format="made-up",
    tables={"steps": empty("steps")},
    facts={HOSTILE: Fact(value=HOSTILE, source=SOURCE)},
    dropped=[Dropped(HOSTILE, 1234, "a.json")],
    notes=(HOSTILE,),
)
FINDING = Finding(
    rule="made-up", title=HOSTILE, subject={"ranks": (3, 7)}, evidence={"wait_ns": 12.5}, actions=(HOSTILE,), cost_ns=2_000_000
)


def test_a_breakdown_has_amounts_shares_and_what_was_not_measured():
    lines = [" ".join(line.split()) for line in repr(STEP).replace(THIN_SPACE, " ").splitlines()]
    assert lines[0].startswith("Breakdown of 4.00 ms")
    assert "computing 3.00 ms 75.0 %" in lines
    assert "free not measured" in lines


def test_a_run_has_its_facts_and_what_was_lost():
    assert "1,234" in repr(RUN)
    assert "0 ranks" in repr(RUN)


def test_a_table_that_nobody_has_counted_is_not_read_to_show_its_run():
    def read(*_: object) -> pd.DataFrame:
        raise AssertionError("read")

    tables = LazyTables({"kernels": LazyTable(ranks=frozenset({0}), num_rows=None, read=read)})
    assert "not counted" in repr(Run(name="lazy", kind="measured", format="made-up", tables=tables))


def test_a_finding_has_cost_subject_numbers_and_actions():
    words = repr(FINDING).replace(THIN_SPACE, " ")
    assert [line.strip().split("  ")[0] for line in words.splitlines()[1:]] == ["costs a step", "ranks", "wait_ns", "do"]
    assert "2.00 ms" in words
    assert "3, 7" in words


@pytest.mark.parametrize("shown", [STEP, RUN, FINDING], ids=["breakdown", "run", "finding"])
def test_a_notebook_shows_a_table_in_which_hostile_text_is_text(shown):
    data, _ = DisplayFormatter().format(shown)
    assert set(data) == {"text/plain", "text/html"}
    assert "<table>" in data["text/html"]
    assert HOSTILE in data["text/plain"]
    assert "<img" not in data["text/html"]
    assert "&lt;img" in data["text/html"]


def test_long_tables_end_with_how_many_rows_are_left_out():
    assert text_table("t", [("row", str(number)) for number in range(MAX_ROWS + 3)]).endswith("... and 3 more")


def test_tab_completes_public_names_and_tables():
    assert "load" in dir(perfkit)
    # What IPython asks an object for behind a bracket.
    assert LazyTables({"kernels": LazyTable.of(empty("kernels"))})._ipython_key_completions_() == ["kernels"]


@pytest.mark.parametrize("name", [name for name in dir(perfkit) if name != "__version__"])
def test_help_of_a_public_name_says_more_than_its_name_and_is_listed_in_the_help_of_the_package(name):
    assert len((inspect.getdoc(getattr(perfkit, name)) or "").split()) >= 12
    assert f"{name}(" in (perfkit.__doc__ or "")
