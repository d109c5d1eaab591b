"""`perfkit compare`: table, JSON and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfkit.core.resources import data_folder
from perfkit.face import cli

DATA = data_folder()
TRACES = Path(__file__).parents[2] / "data" / "traces"
ROUNDS = [str(DATA / f"case13b/round{number}.yaml") for number in (5, 4)]
DEVICE = ["--device", "Ascend-910B2"]


def test_the_table_says_what_changed_most(capsys):
    assert cli.main(["compare", *ROUNDS, *DEVICE]) == 0
    out = capsys.readouterr().out
    assert "%) longer" in out
    assert "computing/recompute changed most" in out
    assert "recompute_config.recompute" in out
    assert out.index("computing/recompute  ") < out.index("computing/forward/matmul"), "the largest change comes first"


@pytest.mark.parametrize(("percent", "code"), [("3", 1), ("50", 0), ("0", 1)])
def test_fail_above_gives_exit_code_1_where_b_is_slower_by_more(percent, code, capsys):
    assert cli.main(["compare", *ROUNDS, *DEVICE, "--fail-above", percent]) == code
    assert cli.main(["compare", *reversed(ROUNDS), *DEVICE, "--fail-above", percent]) == 0, "faster is no failure"
    assert cli.main(["compare", ROUNDS[0], ROUNDS[0], *DEVICE, "--fail-above", "0"]) == 0
    capsys.readouterr()


def test_json_is_one_document(capsys):
    assert cli.main(["compare", *ROUNDS, *DEVICE, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["kind"] == "plans"
    assert document["total"]["ratio"] > 1


def test_losses_and_graphs_are_printed(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("step,loss\n" + "\n".join(f"{step},{9 - step / 100}" for step in range(1, 101)))
    (tmp_path / "b.csv").write_text("step,loss\n" + "\n".join(f"{step},{9 + step / 100}" for step in range(1, 101)))
    assert cli.main(["compare", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--fail-above", "1"]) == 1
    assert "diverged: the losses part from step 1 on" in capsys.readouterr().out
    graphs = [str(DATA / f"ir/silu_mul_{name}.ir") for name in ("not_in_effect", "in_effect")]
    assert cli.main(["compare", *graphs]) == 0
    assert "2 added, 12 removed" in capsys.readouterr().out


def test_what_cannot_be_compared_is_exit_code_2(capsys):
    assert cli.main(["compare", ROUNDS[0], str(DATA / "ir/column_row.ir")]) == 2
    assert "a is a plan and b is a graph dump" in capsys.readouterr().err


def test_operators_that_were_added_or_removed_are_named(capsys):
    a, b = (str(TRACES / "hta" / "trace_diff" / name) for name in ("control.json.gz", "test.json.gz"))
    assert cli.main(["compare", a, b, "--operators", "--json"]) == 0
    names = json.loads(capsys.readouterr().out)["names"]
    changes = {(row["where"], row["name"]): row["change"] for row in names}
    assert changes["host", "CompiledFunction"] == "added"
    assert changes["device", "Memcpy DtoD (Device -> Device)"] == "more"
    assert "same" not in changes.values()
    assert cli.main(["compare", a, b, "--operators"]) == 0
    text = capsys.readouterr().out
    assert "added by name" in text
    assert "CompiledFunction" in text
