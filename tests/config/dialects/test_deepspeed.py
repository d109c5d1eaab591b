"""DeepSpeed's JSON with the model beside it: batches, what is shared, precision; and what it leaves to the script."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from perfkit import read_config
from perfkit.config.dialects import read_text, write_config
from perfkit.config.dialects._write import edit_config
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.predict.estimate import estimate
from perfkit.predict.limits import not_counted

MODEL = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
SETTINGS = {
    "train_batch_size": 64,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3, "reduce_bucket_size": 500000000},
    "gradient_clipping": 1.0,
}


@pytest.fixture
def plan_of(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(MODEL))

    def read(**changes):
        (tmp_path / "ds.json").write_text(json.dumps(SETTINGS | changes, indent=4))
        return read_config(tmp_path / "ds.json")

    return read


def test_the_model_is_that_beside_it_and_replicas_follow_from_the_batches(plan_of):
    plan = plan_of()
    assert plan.model.num_layers == 32
    assert (plan.num_devices, plan.workload.micro_batch_size, plan.num_micro_batches) == (8, 2, 4)
    assert (plan.parallel.optimizer_shard_size, plan.parallel.optimizer_shard_level) == (8, 3)
    assert (plan.software.framework, plan.software.overlap_dp, plan.workload.dtype) == ("deepspeed", True, "bfloat16")
    assert not_counted(plan) == (
        (
            "zero_optimization.reduce_bucket_size",
            "time and memory: the pieces in which parameters and gradients are gathered and summed",
        ),
    )
    assert plan.document.unknown == ()


@pytest.mark.parametrize(("stage", "shared"), [(0, (1, 1)), (1, (8, 1)), (2, (8, 2)), (3, (8, 3))])
def test_each_stage_shares_more_and_needs_less_memory(plan_of, stage, shared):
    plan = plan_of(zero_optimization={"stage": stage})
    assert (plan.parallel.optimizer_shard_size, plan.parallel.optimizer_shard_level) == shared
    more = plan_of(zero_optimization={"stage": max(0, stage - 1)})
    peaks = [estimate(replace(one, hardware=catalog.hardware_named("H100-80GB-SXM"))).memory.total for one in (plan, more)]
    assert peaks[0] <= peaks[1]
    assert (peaks[0] < peaks[1]) == (stage > 0)


def test_groups_of_other_kinds_are_read(plan_of):
    plan = plan_of(tensor_parallel={"autotp_size": 4}, pipeline={"stages": 2}, sequence_parallel_size=2)
    sizes = plan.parallel
    assert (sizes.tensor_parallel_size, sizes.pipeline_parallel_size, sizes.context_parallel_size) == (4, 2, 2)
    assert plan.num_devices == 128


def test_what_is_left_to_the_script_is_assumed_and_said(plan_of):
    auto = dict.fromkeys(("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"), "auto")
    plan = plan_of(**auto, bf16={"enabled": "auto"})
    assert (plan.num_devices, plan.workload.global_batch_size, plan.workload.dtype) == (1, 1, "bfloat16")
    said = " ".join(plan.document.defaulted)
    assert all(name in said for name in ("micro_batch_size = 1", "data_parallel_size = 1", "dtype = bfloat16", "recompute = none"))


def test_eight_bits_are_read_with_gradients_of_sixteen(plan_of):
    eight = plan_of(bf16={"enabled": False}, fp8={"enabled": True}, zero_optimization={"stage": 3, "reduce_bucket_size": "auto"})
    assert (eight.workload.dtype, eight.optimizer.gradient_dtype, not_counted(eight)) == ("float8", "bfloat16", ())
    whole = plan_of(bf16={"enabled": False})
    assert (whole.workload.dtype, whole.optimizer.gradient_dtype, whole.optimizer.master_weights) == ("float32", "float32", False)


def test_gradients_are_summed_as_the_engine_does_unless_the_file_says_otherwise(plan_of):
    # deepspeed/runtime/engine.py, get_data_types: float32 for bf16 without ZeRO, else the precision of the model.
    assert plan_of(zero_optimization={"stage": 0}).optimizer.gradient_dtype == "float32"
    assert plan_of(zero_optimization={"stage": 1}).optimizer.gradient_dtype == "bfloat16"
    half = plan_of(zero_optimization={"stage": 0}, bf16={"enabled": False}, fp16={"enabled": True})
    assert half.optimizer.gradient_dtype == "float16"
    said = plan_of(zero_optimization={"stage": 1}, data_types={"grad_accum_dtype": "fp32"})
    assert said.optimizer.gradient_dtype == "float32"
    usual = plan_of()
    written = write_config(replace(usual, optimizer=said.optimizer))
    assert (written.lost, json.loads(written.text)["data_types"]) == ((), {"grad_accum_dtype": "fp32"})


def test_two_precisions_at_once_are_refused(plan_of):
    with pytest.raises(
        InputError, match=r"line 14, fp16.enabled: fp16 and bf16 are both enabled, which DeepSpeed refuses; keep one"
    ):
        plan_of(fp16={"enabled": True})


@pytest.mark.parametrize("folder", ["a" * 5000, '"a\\0b"', "/" * 3000, "../" * 2000, "~nobody/x"])
@pytest.mark.parametrize("key", ["model:\n  model_name_or_path", "pretrained_model_dir"])
def test_a_folder_that_cannot_be_is_no_model(tmp_path, key, folder):
    shared = "parallel:\n  fsdp_size: 8\n"
    text = f"{key}: {folder}\n" + (shared if ":" in key else "use_parallel: True\nmodel:\n  model_config: {}\n")
    (tmp_path / "own.yaml").write_text(text)
    with pytest.raises(InputError):
        read_config(tmp_path / "own.yaml")


def test_a_folder_outside_of_what_a_server_opens_is_not_read(tmp_path, monkeypatch):
    for name in ("open", "secret"):
        (tmp_path / name).mkdir()
    (tmp_path / "secret" / "config.json").write_text(json.dumps(MODEL))
    (tmp_path / "open" / "own.yaml").write_text("model:\n  model_name_or_path: ../secret\nparallel:\n  fsdp_size: 8\n")
    assert read_config(tmp_path / "open" / "own.yaml").model.num_layers == 32
    monkeypatch.setenv("PERFKIT_ROOTS", str(tmp_path / "open"))
    with pytest.raises(InputError, match=r"names no folder with a Hugging Face config\.json"):
        read_config(tmp_path / "open" / "own.yaml")


def test_all_that_is_wrong_is_said_with_its_line(plan_of, tmp_path):
    with pytest.raises(InputError) as caught:
        plan_of(train_batch_size=65, zero_optimization={"stage": 7})
    assert caught.value.problems == (
        "line 2, train_batch_size: 65 is no multiple of micro batch x accumulation steps = 8; nearest is 64 or 72",
        "line 9, zero_optimization.stage: 7 must be 0, 1, 2 or 3",
    )
    (tmp_path / "config.json").unlink()
    with pytest.raises(InputError, match=r"model: names no folder with a Hugging Face config.json"):
        plan_of()


def test_a_change_keeps_the_rest_and_reads_back(plan_of):
    plan = plan_of()
    wanted = replace(plan, workload=replace(plan.workload, micro_batch_size=4, global_batch_size=128))
    written = write_config(wanted)
    assert written.lost == ()
    assert json.loads(written.text) == SETTINGS | {"train_batch_size": 128, "train_micro_batch_size_per_gpu": 4}
    assert len(written.diff().splitlines()) < 14
    edited = edit_config(plan.document, {"zero_optimization.stage": 1})
    assert "laid out anew" not in " ".join(edited.notes)
    assert json.loads(edited.text)["zero_optimization"] == {"stage": 1, "reduce_bucket_size": 500000000}


def test_a_model_is_no_deepspeed_file():
    assert read_text(json.dumps(MODEL | {"zero_optimization": {"stage": 1}}), "config.json").document.dialect == "huggingface"


def test_experts_are_spread_and_bring_the_devices_that_they_need(tmp_path):
    experts = {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    (tmp_path / "config.json").write_text(json.dumps(MODEL | experts))
    spread = {"enabled": True, "autoep_size": 8, "preset_model": "mixtral", "load_balance_coeff": None}
    sizes = {name: value for name, value in SETTINGS.items() if name != "train_batch_size"}
    (tmp_path / "ds.json").write_text(json.dumps(sizes | {"expert_parallel": spread}))
    plan = read_config(tmp_path / "ds.json")
    assert (plan.num_devices, plan.parallel.expert_parallel_size, plan.document.unknown) == (8, 8, ())
    halved = write_config(replace(plan, parallel=replace(plan.parallel, expert_parallel_size=4)))
    assert json.loads(halved.text)["expert_parallel"]["autoep_size"] == 4


def test_an_optimizer_that_sends_fewer_bits_is_told(plan_of):
    plan = plan_of(optimizer={"type": "OneBitAdam", "params": {"lr": 1e-5}})
    assert any(line.startswith("communication = full") for line in plan.document.defaulted)


COMMENTED = """# settings of a step
{
  // by the program's own reader "of": {Hjson}
  "train_batch_size": 64, /* all
     devices */
  "train_micro_batch_size_per_gpu": 2,
  "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "http://disk#1"},},  # shared
}
"""


def test_comments_and_commas_too_many_are_read_over_with_lines_kept_and_lost_only_with_a_word(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    (tmp_path / "ds.json").write_text(COMMENTED)
    plan = read_config(tmp_path / "ds.json")
    assert (plan.num_devices, plan.parallel.optimizer_shard_level) == (32, 3)
    assert "zero_optimization.offload_param.device" in dict(plan.document.unread)
    written = edit_config(plan.document, {"train_micro_batch_size_per_gpu": 4})
    assert json.loads(written.text)["zero_optimization"]["offload_param"]["nvme_path"] == "http://disk#1"
    assert any("without its comments" in note for note in written.notes)
    (tmp_path / "ds.json").write_text(COMMENTED.replace("64", '"sixty"'))
    with pytest.raises(InputError, match="line 4, train_batch_size"):
        read_config(tmp_path / "ds.json")
