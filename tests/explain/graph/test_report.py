"""Reports on files and folders: the JSON document, what is missing, predicted times, and the comparison with a configuration."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import perfkit
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.spec.hardware import HardwareSpec, Link
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.workload import Workload
from perfkit.explain.graph import against_config, read_graph
from perfkit.explain.graph.sentences import needless_told
from perfkit.face.cli import main

IR = Path(__file__).resolve().parents[2] / "data" / "ir"
FINAL = "21_validate_0082.ir"
FIXTURES = sorted(folder for folder in IR.iterdir() if (folder / "answers.json").exists())


def run(capsys, *arguments):
    code = main(["graph", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("folder", FIXTURES, ids=lambda folder: folder.name)
def test_the_document_has_the_files_of_a_folder_and_nothing_is_missing(folder, capsys):
    code, out, _ = run(capsys, folder, "--json")
    document = json.loads(out)
    answers = json.loads((folder / "answers.json").read_text())
    assert code == 0
    assert set(document["files"]) == set(answers)
    assert document["missing"] == []
    for name, answer in answers.items():
        file = document["files"][name]
        assert (file["node_lines"], file["skipped_lines"]) == (answer["node_lines"], 0)
        assert file["kept_activation_bytes"] == answer.get("kept_activation_bytes")
        assert [entry["verdict"] for entry in file["communication"]] == [entry["verdict"] for entry in answer["communication"]]


@pytest.mark.parametrize("name", ["malformed/empty.ir", "malformed/not_ir.ir", "control_flow/final_actor_set.ir", "none.ir"])
def test_a_file_of_which_nothing_can_be_read_ends_with_2(name, capsys):
    code, out, err = run(capsys, IR / name, "--json")
    assert (code, out) == (2, "")
    assert err.startswith("perfkit: ")
    assert "Traceback" not in err


def test_the_table_shows_the_reason_and_the_pattern_to_add(capsys):
    code, out, _ = run(capsys, IR / "tp4_silu_mul_recompute_3d" / FINAL)
    assert code == 0
    assert "NOT in effect" in out
    assert r"add feed_forward\.w2\.reshape" in out


def test_a_folder_says_which_files_were_left_out_and_why():
    report = read_graph(IR / "control_flow")
    assert sorted(report.files) == ["21_validate_0076.ir", "sorted_21_validate.ir"]
    assert len(report.unread) == 6
    assert "actor set" in report.unread["final_actor_set.ir"]


def test_a_folder_without_graphs_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"holds no \.ir file"):
        perfkit.read_graph(tmp_path)


def test_names_of_files_in_sub_folders_are_relative():
    assert sorted(read_graph(IR / "v2_7_0").files) == ["silu_mul_3d/validate.ir", "wo_row_allreduce/validate.ir"]


# What is missing -------------------------------------------------------------


def without(tmp_path, name, op, scope_part):
    """The file `name` with the first `op` in a scope with `scope_part` replaced by a Depend, as if nobody had inserted it."""
    lines = (IR / name).read_text(encoding="utf-8").splitlines(keepends=True)
    for place, line in enumerate(lines):
        if f" = {op}(" in line and any(scope_part in after for after in lines[place : place + 3]):
            lines[place] = re.sub(rf" = {op}\((%\d+)\).*", r" = Depend(\1, %0)", line)
            break
    path = tmp_path / FINAL
    path.write_text("".join(lines), encoding="utf-8")
    return read_graph(path).missing


@pytest.mark.parametrize(
    ("name", "op", "scope", "what"),
    [
        (f"tp4_no_recompute/{FINAL}", "AllReduce", "w2-Linear/AllReduce", "AllReduce behind MatMul"),
        (f"tp4_no_recompute/{FINAL}", "AllReduce", "Grad_AllReduce", "backward of AllReduce"),
        (f"dp2tp4_column_row/{FINAL}", "AllReduce", "w2-Linear/Grad__MirrorOperator", "gradient AllReduce"),
        (f"dp8_optimizer_parallel/{FINAL}", "ReduceScatter", "w2-Linear/Grad_AllGather", "gradient AllReduce"),
        (f"dp2tp4_sequence_parallel/{FINAL}", "ReduceScatter", "wo-Linear/ReduceScatter", "AllReduce behind MatMul"),
    ],
)
def test_a_communication_that_is_taken_out_is_missed(tmp_path, name, op, scope, what):
    missing = without(tmp_path, name, op, scope)
    assert what in [entry["what"] for entry in missing]
    assert all(entry["node"] and entry["why"] for entry in missing)


def test_graphs_from_before_sharding_miss_nothing():
    assert read_graph(IR / "dp2tp4_column_row/before_parallel.ir").missing == []


def message(op, tag, shape):
    attrs = f'group: "hccl_world_group", sr_tag: I64({tag}), shape: {shape}'
    kind = f"(<Tensor[Float16], {shape}>)"
    return f"  %0(a) = {op}(%para1_x) primitive_attrs: {{{attrs}}}\n      : {kind} -> {kind}\n"


@pytest.mark.parametrize(("tag", "count"), [(0, 0), (1, 2)])
def test_sends_and_receives_of_two_stages_are_paired_by_tag_and_shape(tmp_path, tag, count):
    (tmp_path / "stage0.ir").write_text(message("Send", 0, "(4, 8)"))
    (tmp_path / "stage1.ir").write_text(message("Receive", tag, "(4, 8)"))
    report = read_graph(tmp_path)
    assert len(report.missing) == count
    assert {entry.cause for file in report.files.values() for entry in file.communications} == {"pipeline_send", "pipeline_receive"}


# Hardware and configuration ----------------------------------------------------

HARDWARE = HardwareSpec(
    name="made",
    peak_flops_per_s={"float16": 1e14},
    memory_bytes=2**36,
    memory_bytes_per_s=1e12,
    devices_per_node=4,
    links={"intra_node": Link(name="intra_node", bytes_per_s=1e9), "inter_node": Link(name="inter_node", bytes_per_s=1e8)},
)


def test_predicted_times_follow_the_ring_formulas():
    (analysis,) = read_graph(IR / "dp2tp4_sequence_parallel" / FINAL, hardware=HARDWARE).files.values()
    times = {(entry.op, entry.cause): entry for entry in reversed(analysis.communications)}
    gather = times["AllGather", "redistribution"]  # 4 ranks of one node
    assert gather.predicted_s == pytest.approx(3 / 4 * 4096 / 1e9)
    loss = times["AllReduce", "forward"]  # 8 ranks of two nodes
    assert loss.predicted_s == pytest.approx(2 * 7 / 8 * 4 / 1e8)


def test_without_hardware_no_time_is_predicted():
    (analysis,) = read_graph(IR / "tp4_no_recompute" / FINAL).files.values()
    assert {entry.predicted_s for entry in analysis.communications} == {None}


MODEL = ModelSpec(
    name="two layers",
    num_layers=2,
    hidden_size=64,
    ffn_hidden_size=128,
    num_attention_heads=8,
    num_key_value_heads=8,
    head_size=8,
    vocab_size=128,
)
PLAN = Plan(
    model=MODEL,
    workload=Workload(global_batch_size=4, micro_batch_size=4, seq_length=16),
    parallel=ParallelPlan(tensor_parallel_size=4),
)


def configured(name, *patterns, tensor_parallel_size=4):
    recompute = RecomputePlan(operators=dict.fromkeys(patterns, ((2,),)))
    parallel = replace(PLAN.parallel, tensor_parallel_size=tensor_parallel_size)
    found = against_config(read_graph(IR / name), replace(PLAN, recompute=recompute, parallel=parallel))
    return {entry["what"]: entry["why"] for entry in found}


def test_a_configuration_that_the_graph_follows_has_no_contradiction():
    name = "tp4_silu_mul_recompute_2d"
    assert configured(name, r"feed_forward\.mul", r"feed_forward\.w1\.activation\.silu") == {}
    assert configured(name, r"feed_forward\.w1") == {}


def test_patterns_that_select_nothing_are_told():
    found = configured("tp4_silu_mul_recompute_2d", r"feed_forward\.W3\.reshape", r"attention\.wo\.matmul")
    assert found == {
        r"recompute pattern feed_forward\.W3\.reshape": "no operator has that name",
        r"recompute pattern attention\.wo\.matmul": "the graph has such an operator, but it is not tagged",
    }


def test_a_graph_of_another_number_of_devices_is_told():
    assert "4 devices" in configured("tp4_no_recompute", tensor_parallel_size=8)["devices"]


def test_a_real_configuration_can_be_compared_on_the_command_line(capsys):
    config = Path(__file__).resolve().parents[3] / "data" / "configs" / "pretrain_llama2_7b.yaml"
    code, out, _ = run(capsys, IR / "tp4_no_recompute", "--config", config, "--json")
    assert code == 0
    assert json.loads(out)["config"]


def test_the_users_files_stay_as_they_are(tmp_path, capsys):
    path = Path(shutil.copy(IR / "malformed/junk_lines.ir", tmp_path))
    before = path.read_bytes()
    run(capsys, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_not_needed_is_told_by_its_largest_cause():
    told = needless_told(read_graph(data_folder() / "ir" / "strategy_mismatch.ir").analysis)
    assert told == "48.0 KiB of 153 KiB a step and rank are not needed, 24.0 KiB of it by backward of redistribution."
    needed = needless_told(read_graph(data_folder() / "ir" / "column_row.ir").analysis)
    assert needed == "All communication follows from the declared strategies."
