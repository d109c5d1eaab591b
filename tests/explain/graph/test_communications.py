"""Communications of graph files against what their makers state, operator by operator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfkit.explain.graph.communications import find_communications
from perfkit.explain.graph.parse import read_file

IR = Path(__file__).resolve().parents[2] / "data" / "ir"
CASES = [
    (answers.parent / name, answer)
    for answers in sorted(IR.glob("**/answers.json"))
    for name, answer in json.loads(answers.read_text()).items()
]
EXACT = (
    "node", "op", "instance_name", "cause", "group", "group_size", "ranks", "fusion", "scope", "producer_op", "producer_scope",
    "parameter", "dtype", "in_shape", "out_shape", "in_bytes", "out_bytes", "duplicated", "verdict",
)  # fmt: skip


def communications(path, verdict=None):
    found = [entry.to_json() for entry in find_communications(read_file(IR / path))]
    return [entry for entry in found if verdict in (None, entry["verdict"])]


def test_all_answers_are_here():
    assert len(CASES) == 13
    assert sum(len(answer["communication"]) for _, answer in CASES) == 245


@pytest.mark.parametrize(("path", "answer"), CASES, ids=lambda value: value.parent.name if isinstance(value, Path) else "")
def test_every_communication_is_found_with_cause_verdict_and_bytes(path, answer):
    found = [entry.to_json() for entry in find_communications(read_file(path))]
    wanted = answer["communication"]
    assert [{key: entry[key] for key in EXACT} for entry in found] == [{key: entry[key] for key in EXACT} for entry in wanted]


@pytest.mark.parametrize(
    ("path", "size", "producer"),
    [
        ("old_formats/v1_8_parallel.ir", 4, "MatMul"),
        ("old_formats/v2_0_parallel.ir", 4, "MatMul"),
        ("old_formats/v2_1_parallel.ir", 2, "MatMul"),
        ("malformed/guide_ocr_allreduce.txt", 4, "MatMul"),
        ("malformed/crlf_and_bom.ir", 4, "MatMul"),
        ("malformed/junk_lines.ir", 4, "MatMul"),
        ("malformed/bad_utf8.ir", 4, "MatMul"),
        ("malformed/two_graphs_concatenated.ir", 4, "MatMul"),
    ],
)
def test_old_and_damaged_files_show_their_only_communication(path, size, producer):
    (only,) = communications(path)
    assert (only["op"], only["cause"], only["group_size"], only["producer_op"]) == ("AllReduce", "forward", size, producer)
    assert only["verdict"] == "expected"


def test_the_guides_wo_allreduce_moves_16_mib():
    (only,) = communications("malformed/guide_ocr_allreduce.txt")
    assert (only["in_bytes"], only["ranks"], only["producer_op"]) == (16_777_216, [0, 1, 2, 3], "MatMul")


def test_a_communication_that_the_file_cuts_off_is_kept_and_marked():
    (only,) = communications("malformed/truncated_mid_line.ir")
    assert (only["op"], only["cause"], only["complete"], only["in_bytes"]) == ("AllReduce", "forward", False, None)


def test_an_avoidable_redistribution_names_the_strategy_that_removes_it():
    avoidable = [
        entry for entry in communications("dp2tp4_allgather_mismatch/21_validate_0082.ir") if entry["verdict"] == "avoidable"
    ]
    assert {entry["fix"] for entry in avoidable} == {"w2 MatMul: in_strategy ((2, 4), (1, 4)), followed by one AllReduce"}


def test_an_unsharded_feed_forward_gets_column_and_row_strategies():
    avoidable = communications("tp4_wo_row_allreduce/21_validate_0082.ir", "avoidable")
    assert {entry["parameter"].split(".")[-2]: entry["fix"] for entry in avoidable} == {
        "w1": "w1 MatMul: in_strategy ((1, 1), (4, 1))",
        "w3": "w3 MatMul: in_strategy ((1, 1), (4, 1))",
        "w2": "w2 MatMul: in_strategy ((1, 4), (1, 4)), followed by one AllReduce",
    }


def test_expected_communications_have_no_fix():
    assert all(entry["fix"] is None for entry in communications("dp2tp4_sequence_parallel/21_validate_0082.ir"))
