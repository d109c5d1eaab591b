"""Every block, table and formula of the guides: recognised, without a false error, with the right answer; and pastes as people make
them: several pieces at once, damage, secrets, other frameworks, half a piece."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfkit
from perfkit.core.discover import modules
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.explain.fragments import all_kinds, explain_fragment
from perfkit.face.cli import main

DATA = Path(__file__).parents[2] / "data" / "fragments"
ORIGIN: dict[str, list[str]] = json.loads((DATA / "origin.json").read_text(encoding="utf-8"))
BLOCKS = {"000": 12, "001": 13, "002": 1, "003": 11}
PATTERN = "recompute-pattern-no-match"

# file: kinds of its parts, rules of errors, and words that the answer must hold
WANTED: dict[str, tuple[list[str], list[str], list[str]]] = {
    "profile_window_long.yaml": (["keys"], [], ["recorded steps: 10 steps", "starts at step 1", "10 steps are recorded"]),
    "profile_window.yaml": (["keys"], [], ["recorded steps: 2 steps"]),
    "save_graphs.yaml": (["keys"], [], ["context.save_graphs", "save_graphs = True"]),
    "../ir/guide_excerpts/guide_wq_excerpt.txt": (
        ["graph_lines"],
        [],
        ["operators: 4", "%14 MatMul: 17.2 GFLOP", "[1, 4, 4096, 128]"],
    ),
    "../ir/malformed/guide_ocr_allreduce.txt": (["graph_lines"], [], ["16.0 MiB over 4 devices: expected, because of forward"]),
    "statistic.sh": (["environment"], [], ["MS_MEMORY_STATISTIC = 1"]),
    "peaks.txt": (
        ["memory_report"],
        [],
        ["pool: 58.0 GiB", "fragments at the peak: 0 B", "left of the pool: 10.3 GiB", "outside of the pool: 2.97 GiB"],
    ),
    "dry_run.sh": (["environment", "launch"], [], ["devices: 16", "run_mode train", "MS_SIMULATION_LEVEL=1: nothing is trained"]),
    "dry_run_newer.sh": (["environment"], [], ["MS_KERNEL_LAUNCH_SKIP = all"]),
    "../ir/guide_excerpts/guide_cast_duplicated.txt": (["graph_lines"], [], ["32.0 MiB", "64.0 MiB", "computed again"]),
    "reshape_patterns.yaml": (["keys"], [], ["4 patterns, in all layers, of which 4"]),
    "pattern_list_misprinted.yaml": (
        ["keys"],
        [PATTERN] * 2,
        ["select_recompute under recompute_config", "20 patterns", "of which 18", r"'feed_forward\.w3\.reshape'", "did you mean"],
    ),
    "pattern_counts_misprinted.yaml": (
        ["keys"],
        [*[PATTERN] * 4, *["recompute-yaml-broken"] * 4],
        [
            r"'attention_norm\.rcast'",
            r"'attention\.wv\.reshape'",
            r"'attention\.wo\.matmul'",
            r"'attention\.merger_head_transpose'",
        ],
    ),
    "last_change.yaml": (["keys"], [], ["stage 0: the first 4, stage 1: the first 0"]),
    "deterministic.py": (["code"], [], ["deterministic = 'OFF'"]),
    "no_stream_sync.py": (["code"], [], ["pynative_synchronize = False"]),
    "stream_sync.py": (["code"], [], ["except with the memory tracker"]),
    "batch_names.yaml": (["formula", "keys"], [], ["the global batch", "dataset_config.micro_batch_num: micro batches"]),
    "chunk_names.yaml": (["keys"], [], ["chunks of a stage (VPP)", "layers of a chunk"]),
    "recompute_names.yaml": (["keys"], [], ["parallel_config.select_comm_recompute: layers whose gathers"]),
    "zero_shard.py": (["code"], [], ["zero_shard_size: replicas that share one optimizer state, more than 1 and a divisor"]),
    "custom_cell.py": (["code"], [], ["used_bprop_inputs = [2]"]),
    "virtual_memory.py": (["environment"], [], ["MS_ALLOC_CONF = enable_vmm:True"]),
    "tracker_on.py": (["environment"], [], ["MS_ALLOC_CONF = memory_tracker:True"]),
    "collect_garbage.py": (["code"], [], ["every few hundred steps"]),
    "stage_lists.yaml": (["keys"], [], ["devices of the stated sizes: 4", "keys of MindSpeed-Core-MS YAML"]),
    "distributed_optimizer.yaml": (["keys"], [], ["share the optimizer state over the replicas"]),
    "timed_transform.py": (["code"], [], ["runs between two steps"]),
    "pool.yaml": (["keys"], [], ["memory pool: 58.0 GiB"]),
    "work_closed_form.md": (["printed_table"], [], ["model flops: 188 TFLOP", "197 TFLOP", "250 TFLOP", "189 TFLOP", "X05", "X01"]),
    "work_gpt_layer.md": (["printed_table"], [], ["412 GFLOP", "137 GFLOP", "550 GFLOP", "1.07 TFLOP", "X04"]),
    "work_gated_layer.md": (["printed_table"], [], ["369 GFLOP", "1.11 TFLOP", "X04"]),
    "static_memory.md": (["printed_table"], [], ["62.8 GiB", "7.84 GiB", "20.4 GiB", "X09"]),
    "activation_formulas.md": (["printed_table"], [], ["528 MiB", "388 MiB", "208 MiB", "68.0 MiB", "32.0 MiB", "X10"]),
    "activation_rows.md": (["printed_table"], [], ["19sbh", "304 MiB", "X10"]),
    "throughput.md": (["formula"], [], ["p is the number of all devices", "X02"]),
    "mfu.md": (["formula"], [], ["MFU: utilization without recomputation"]),
    "hfu_misnamed.md": (["formula"], [], ["it is HFU, not MFU", "X01"]),
    "samples.md": (["formula"], [], ["all its micro batches included", "X14"]),
    "recompute_limit.md": (["formula"], [], ["are at most the layers it has", "X14"]),
    "closed_form.md": (["formula"], [], ["value: 188 TFLOP"]),
    "activation_of_a_layer.md": (["formula"], [], ["value: 3.03 GiB"]),
}


def text_of(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def plan():
    return perfkit.read_config(data_folder() / "configs" / "llama2_13b.toml")


def test_every_code_block_of_the_guides_has_its_fragment_and_every_fragment_its_answer():
    found = {origin for origins in ORIGIN.values() for origin in origins}
    assert {f"{guide}:{number}" for guide, count in BLOCKS.items() for number in range(1, count + 1)} <= found
    files = {path.name for path in DATA.iterdir()} - {"PROVENANCE.md", "origin.json"}
    assert files == {name for name in ORIGIN if not name.startswith("..")}
    assert set(WANTED) == set(ORIGIN)


@pytest.mark.parametrize("name", sorted(WANTED))
def test_a_fragment_of_the_guides_is_recognised_judged_and_answered(name):
    kinds, errors, words = WANTED[name]
    found = explain_fragment(text_of(name))
    assert [part.kind for part in found.parts] == kinds
    assert found.prose == ()
    assert sorted(one.rule for one in found.problems if one.severity == "error") == sorted(errors)
    shown = found.text + " ".join(one.rule for one in found.problems)
    assert [word for word in words if word not in shown] == []


@pytest.mark.parametrize("name", sorted(WANTED))
def test_with_the_plan_of_the_guides_case_the_same_errors_and_no_others(name, plan):
    found = explain_fragment(text_of(name), plan)
    misprints = [PATTERN, "recompute-yaml-broken"]
    errors = [one for one in found.problems if one.severity == "error" and one.rule not in misprints]
    # The printed lists of two stages with two layers each are of another model than 13B with 40 layers.
    assert [one.rule for one in errors] == (["not-with-this-plan"] if name == "stage_lists.yaml" else [])


def test_a_whole_paste_of_all_kinds_is_told_apart_in_its_order():
    names = ["statistic.sh", "last_change.yaml", "static_memory.md", "peaks.txt", "throughput.md", "collect_garbage.py"]
    found = explain_fragment("\n\n".join(text_of(name) for name in names))
    assert [part.kind for part in found.parts] == ["environment", "keys", "printed_table", "memory_report", "formula", "code"]
    assert [one for one in found.problems if one.severity == "error"] == []


def test_keys_are_put_into_the_plan_and_priced(plan):
    found = explain_fragment("recompute_config:\n  recompute: [20, 20]\n", plan)
    table = found.table.set_index("what")["value"]
    assert "step time, now" in table.index
    assert "peak memory, with it" in table.index
    more = {one.name: one.value for one in found.parts[0].figures}
    assert more["step time, with it"] > more["step time, now"]
    assert more["peak memory, with it"] < more["peak memory, now"]


def test_what_contradicts_the_plan_is_an_error_with_the_right_shape(plan):
    found = explain_fragment("recompute_config:\n  recompute: [4, 0, 0]\n", plan)
    assert [one.rule for one in found.problems] == ["not-with-this-plan"]
    assert "2 counts" in found.problems[0].message


def test_devices_of_a_launch_line_an_export_and_a_rank_table_are_compared_with_the_plan(plan):
    table = {"server_count": "1", "server_list": [{"device": [{"rank_id": str(rank)} for rank in range(8)]}]}
    for text in ("msrun --worker_num=8 --local_worker_num=8 train.py", "export RANK_SIZE=8", json.dumps(table)):
        messages = [one.message for one in explain_fragment(text, plan).problems if one.severity == "error"]
        assert len(messages) == 1, text
        assert "16 devices" in messages[0]
        assert "8" in messages[0]
    right = "torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py"
    assert explain_fragment(right, plan).problems == ()


def test_a_log_line_gives_rates_and_the_divisor(plan):
    line = (
        "{ Epoch:[  1/  2], step:[    2/   19], loss: 10.633, per_step_time: 122726ms, lr: 1e-05 }\n  0.52148 samples/s/p  1:00 }\n"
    )
    found = explain_fragment(line, plan)
    figures = {one.name: one.value for one in found.parts[0].figures}
    assert figures["tokens a device, computed"] == pytest.approx(2136.0, rel=1e-3)
    assert figures["MFU"] == pytest.approx(0.495, abs=0.002)
    assert "divided by all devices (16)" in found.text


def test_secrets_are_neither_kept_nor_shown_anywhere():
    secrets = ["abcdef123456secret", "hf_" + "a" * 24, "p4ssw0rd", "wJalrXUtnFEMI"]
    text = (
        f"export MY_API_TOKEN={secrets[0]} HF_TOKEN='{secrets[1]}'\n"
        f"git clone https://user:{secrets[2]}@example.org/x.git\nOBS_SECRET_ACCESS_KEY: {secrets[3]}\n"
    )
    found = explain_fragment(text)
    everything = found.text + repr(found) + json.dumps(found.to_dict()) + found.table.to_csv()
    assert [secret for secret in secrets if secret in everything] == []
    assert "masked" in found.notes[0]


def test_words_with_token_that_are_no_secret_stay():
    text = "model:\n  model_config:\n    pad_token_id: 65535\n    bos_token_id: 1\nmoe_config:\n  save_token_distribution: False\n"
    assert "masked" not in explain_fragment(text).text


def test_damage_is_repaired_and_said():
    found = explain_fragment(
        "parallel_config：\n\tdata_parallel： 8\n\tpipeline_stage： 2\n\tmicro_batch_num： l28\n\tpipelinestage: 2\n"
    )
    assert "full-width punctuation" in found.text
    assert "indented with a tab" in found.text
    assert "'l28' is read as '128'" in found.text
    assert "micro_batch_num: 128" in found.parts[0].corrected


def test_misspelled_keys_and_dotted_values_are_placed():
    found = explain_fragment(
        "parallel_config.pipeline_stage: 4\nparallel_config.micro_batch_num = 16\nrecompute confg:\n  recompute: True\n"
    )
    assert [part.kind for part in found.parts] == ["keys"]
    assert "is read as 'recompute_config'" in found.text
    assert "pipeline_stage: 4" in found.parts[0].corrected


def test_a_literal_and_options_of_another_framework_are_recognised(plan):
    found = explain_fragment('cfg = {"recompute": [4, 0], "select_recompute": True}')
    assert found.parts[0].kind == "literal"
    assert "recompute_config:" in found.parts[0].corrected
    options = explain_fragment("--tensor-model-parallel-size 4 \\\n--pipeline-model-parallel-size 2\n", plan)
    assert options.parts[0].kind == "options"
    assert "parallel.tensor_parallel_size: 4, here 1" in options.text


def test_a_whole_configuration_is_one_part():
    found = explain_fragment((data_folder() / "configs" / "pretrain_llama2_7b.yaml").read_text(encoding="utf-8"))
    assert [part.kind for part in found.parts] == ["configuration"]
    assert {one.name: one.value for one in found.parts[0].figures}["parameters"] == 6_738_415_616


def test_files_of_deepspeed_and_sapp_are_one_part(plan):
    text = json.dumps({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4,
                       "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}})  # fmt: skip
    found = explain_fragment(text, plan)
    assert [part.kind for part in found.parts] == ["deepspeed"]
    assert {one.name: one.value for one in found.parts[0].figures} == {"sequences of a replica": 8, "replicas": 8}
    assert "wait on the host" in found.text
    assert [one.key for one in found.problems] == ["train_batch_size", "train_micro_batch_size_per_gpu"]
    assert explain_fragment(text.replace("64", "60")).problems[0].rule == "batch-not-divisible"
    layers = {"name": "m", "layers_description": [
        {"name": "body", "type": "BODY", "time": 9, "nb_layer": 8, "memory_parameter": 10, "memory_activation": 20}]}  # fmt: skip
    part = explain_fragment(json.dumps(layers, indent=1)).parts[0]
    assert part.kind == "sapp"
    assert {one.name: one.value for one in part.figures}["body, states"] == 10 * 2**20


def test_rows_of_a_memory_tracker_are_read():
    rows = (
        "start_time_stamp,end_time_stamp,device_addr,stream_id,pool_type,size,file_name,line_num,type,producer_task,task_name,node_name,"
        "graph_name,user_tasks,\n1,5,0x1,0,Normal,1024,a.cc,1,PyNativeOutput,1,MatMul,n,g,{2-},\n"
        "2,6,0x2,0,Normal,2048,a.cc,1,PyNativeOutput,2,Add,n,g,{3-},\n"
    )
    part = explain_fragment(rows).parts[0]
    assert part.kind == "tracker"
    assert {one.name: one.value for one in part.figures}["live peak"] == 3072


def test_prose_is_left_alone_and_nothing_is_refused():
    found = explain_fragment("The model is trained on many devices.\n\nIt took a long time.\n")
    assert found.parts == ()
    assert [line for line, _ in found.prose] == [1, 3]
    with pytest.raises(InputError):
        explain_fragment("  \n")


def test_every_kind_is_a_module_and_says_what_it_looks_for():
    assert [kind.name for kind in sorted(all_kinds(), key=lambda kind: kind.name)] == list(
        modules("perfkit.explain.fragments.kinds", "FRAGMENT")
    )
    assert all(kind.looks_for and kind.title for kind in all_kinds())
    assert {kind.name for kind in all_kinds()} - {one for kinds, _, _ in WANTED.values() for one in kinds} == {
        "configuration",
        "deepspeed",
        "deepspeed_lines",
        "literal",
        "log_lines",
        "options",
        "sapp",
        "toml_tables",
        "tracker",
    }


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(WANTED)), st.integers(0, 2000), st.integers(0, 2000))
def test_half_a_piece_never_fails(name, start, length):
    """A piece cut anywhere is explained or left alone; it is no defect of perfkit."""
    text = text_of(name)[start : start + length]
    if text.strip():
        explain_fragment(text)


def test_commands_read_a_file_and_standard_input(tmp_path, capsys, monkeypatch):
    file = tmp_path / "piece.txt"
    file.write_text(text_of("last_change.yaml"), encoding="utf-8")
    assert main(["explain", str(file)]) == 0
    assert "stage 0: the first 4" in capsys.readouterr().out
    assert main(["explain", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parts"][0]["kind"] == "keys"
    with file.open("rb") as stream:
        monkeypatch.setattr("sys.stdin", type("Input", (), {"buffer": stream})())
        assert main(["lint", "-"]) == 0
    assert "0 errors" in capsys.readouterr().out


DEEPSPEED = """[2024-05-07 10:00:05,122] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[0.0001], mom=[(0.9, 0.95)]
[2024-05-07 10:00:05,123] [INFO] [timer.py:260:stop] epoch=0/micro_step=80/global_step=10, RunningAvgSamplesPerSec=12.5, CurrSamplesPerSec=12.8, MemAllocated=21.3GB, MaxMemAllocated=45.1GB
"""  # noqa: E501


def test_lines_of_deepspeed_are_rates_of_the_whole_job(plan):
    found = {one.name: one.value for one in explain_fragment(DEEPSPEED, plan).parts[0].figures}
    assert found["samples of all devices, median"] == 12.8
    assert found["peak of tensors"] == 45.1 * 2**30
    assert found["step time, computed"] == pytest.approx(plan.workload.global_batch_size / 12.8 * 1e9)
    assert found["tokens a device, computed"] == pytest.approx(12.8 * plan.workload.seq_length / plan.num_devices)
    staged = explain_fragment("steps: 10 loss: 7.4821 iter time (s): 4.127 samples/sec: 124.06\n").parts[0]
    assert {one.name: one.value for one in staged.figures}["step time, median"] == pytest.approx(4.127e9)


@pytest.mark.parametrize(
    "text",
    [
        "TP=2 PP=4",
        "TP=2; PP=4",
        "export TP=2 PP=4",
        "TP=2\tPP=4",
        "TP=2；PP=4",
        "export TP=2 && export PP=4",
        "TP_SIZE=2 PP_SIZE=4",
    ],
)
def test_sizes_on_one_line_are_told_one_by_one(text):
    (part,) = explain_fragment(text).parts
    assert [line.partition(":")[0].replace("_SIZE", "") for line in part.says] == ["TP = 2", "PP = 4"]
    assert "tensor parallel" in part.says[0]
