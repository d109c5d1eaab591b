"""Two graph files compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfkit.explain.graph import compare_graphs, read_graph

IR = Path(__file__).resolve().parents[2] / "data" / "ir"
FINAL = "21_validate_0082.ir"


def one(name):
    (found,) = read_graph(IR / name).files.values()
    return found


def difference(before, after):
    return compare_graphs(one(before), one(after))


@pytest.mark.parametrize("name", [f"tp4_recompute_layer0/{FINAL}", "control_flow/21_validate_0076.ir", "malformed/junk_lines.ir"])
def test_a_file_does_not_differ_from_itself(name):
    assert difference(name, name).same


def test_selective_recomputation_adds_its_copies_and_nothing_else():
    found = difference(f"tp4_no_recompute/{FINAL}", f"tp4_silu_mul_recompute_2d/{FINAL}")
    assert sorted(node.op for node in found.added) == ["Depend", "Depend", "MakeTuple", "MakeTuple", "Mul", "Mul", "SiLU", "SiLU"]
    assert (found.removed, found.relocated, found.reordered) == ((), (), ())
    assert {(pair.after.op, what) for pair, what in found.changed} == {
        ("SiLU", ("recompute: none -> True",)),
        ("Mul", ("recompute: none -> True",)),
    }
    kept = found.to_json()["parts"][-1]
    assert kept == {"path": "activations/kept", "a": 271_360, "b": 254_976, "delta": -16_384}


def test_a_recomputed_cell_does_not_count_as_moved():
    found = difference(f"tp4_no_recompute/{FINAL}", f"tp4_recompute_layer0/{FINAL}")
    assert found.relocated == ()
    assert sum(node.is_copy for node in found.added) == 40
    assert [node.op for node in found.added if node.op == "AllReduce"] == ["AllReduce"]


def test_a_wrong_strategy_shows_its_collectives_and_the_changed_operator():
    found = difference(f"dp2tp4_column_row/{FINAL}", f"dp2tp4_allgather_mismatch/{FINAL}")
    added = [node.op for node in found.added]
    assert (added.count("AllGather"), added.count("ReduceScatter")) == (4, 4)
    assert [node.op for node in found.removed] == ["AllReduce"] * 4
    changed = {pair.after.short_scope: what for pair, what in found.changed if pair.after.attribute("in_strategy")}
    assert list(changed.values()) == [("in_strategy: ((2, 4), (1, 4)) -> ((2, 1), (4, 1))", "result: (32, 64) -> (32, 16)")] * 2


def test_swapping_the_files_swaps_added_and_removed():
    there = difference(f"dp2tp4_column_row/{FINAL}", f"dp2tp4_sequence_parallel/{FINAL}")
    back = difference(f"dp2tp4_sequence_parallel/{FINAL}", f"dp2tp4_column_row/{FINAL}")
    assert sorted(node.op for node in there.added) == sorted(node.op for node in back.removed)


def test_two_versions_of_the_compiler_differ_in_helpers_only():
    found = difference("v2_7_0/wo_row_allreduce/validate.ir", f"tp4_wo_row_allreduce/{FINAL}")
    assert {node.op for node in (*found.added, *found.removed)} == {"PowTensorScalar", "Muls", "Mul", "UpdateState"}
    assert all(part["delta"] == 0 for part in found.to_json()["parts"])
    assert (found.changed, found.relocated, found.reordered) == ((), (), ())


def test_an_operator_that_runs_later_is_the_only_one_that_moved(tmp_path):
    lines = [f"  %{place}({name}) = {name}(%para1_x)\n" for place, name in enumerate(["Add", "Mul", "Cast", "SiLU", "AllReduce"])]
    (tmp_path / "a.ir").write_text("".join(lines))
    (tmp_path / "b.ir").write_text("".join([*lines[1:4], lines[0], lines[4]]))
    a, b = (next(iter(read_graph(tmp_path / name).files.values())) for name in ("a.ir", "b.ir"))
    found = compare_graphs(a, b)
    assert [pair.after.op for pair in found.reordered] == ["Add"]
    assert json.loads(json.dumps(found.to_json()))["moved"] == [{"node": "%0", "op": "Add", "scope": "", "from": "%0", "to": "%0"}]
