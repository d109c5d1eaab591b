"""Pastes as people make them: half, two in one, tabs, wide punctuation, misread characters, of other frameworks, secrets."""

from __future__ import annotations

import time

import pytest

from perfkit.config.dialects.args import parse
from perfkit.config.dialects.launchers import handed, in_one_word, inside
from perfkit.config.dialects.megatron_options import FLAGS, LISTS
from perfkit.config.dialects.read import read_text
from perfkit.config.lint import lint, lint_text
from perfkit.core.errors import InputError
from perfkit.explain.fragments import explain_fragment

READ = {
    "parallel_config:\n\tdata_parallel: 8": ["keys"],
    "parallel_config：\n  data_parallel：８": ["keys"],
    "—tensor-model-parallel-size 8\n–pipeline-model-parallel-size 2": ["options"],
    "$ export HCCL_BUFFSIZE=200\n[root@node1 ~]# msrun --worker_num=8 run.py": ["environment", "launch"],
    "1 parallel_config:\n2   data_parallel: 8": ["keys"],
    " parallel_config:\n-  data_parallel: 8\n+  data_parallel: 4": ["keys"],
    "[parallelism]\ntensor_parallel_degree = 8\n\n[training]\nseq_len = 8192": ["toml_tables"],
    "parallel_config:\n  data_parallel: 8\n\nexport MS_ALLOC_CONF=enable_vmm:True": ["keys", "environment"],
    "  data_parallel: 8\n  model_parallel: 4\nrecompute_config:\n  recompute: [4, 0]": ["keys"],
    '"zero_optimization": {"stage": 3},\n"train_micro_batch_size_per_gpu": 2,': ["deepspeed"],
    "MASTER_ADDR=10.0.0.1 torchrun --nproc_per_node=8 train.py --tensor-model-parallel-size 2": ["launch"],
    "model.model_config.num_layers=40\nparallel_config.pipeline_stage=4": ["keys"],
    "self.model_config.num_layers = 40": ["code"],
    "cfg = dict(tensor_model_parallel_size=4,\n    pipeline_model_parallel_size=2)": ["literal"],
    "paralel_config:\n  data_parallel: 8": ["keys"],
    "Name        Self CUDA   CUDA total  # of Calls\naten::mm    1.2ms       1.2ms       100": ["printed_table"],
    "MODEL_ARGS:\n  --tensor-model-parallel-size: 2": ["keys", "options"],
    "TP=2 PP=4": ["environment"],
    "export\tTP=2；PP=4": ["environment"],
    "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP": ["keys"],
    "{data_parallel: 8, model_parallel: 4}": ["literal"],
    "{data_parallel：8，model_parallel：4}": ["literal"],
    "> parallel_config:\n>   data_parallel: 8": ["keys"],
    "\tdata_parallel:\t8\n\tmodel_parallel:\t4": ["keys"],
    "'data_parallel': 8, 'model_parallel': 4}": ["literal"],
    "ｅｘｐｏｒｔ\u3000ＨＣＣＬ＿ＢＵＦＦＳＩＺＥ＝２００": ["environment"],
    "---\nparallel_config:\n  data_parallel: 8\n---\nrunner_config:\n  batch_size: 2\n...": ["keys", "keys"],
}
HALVES = (
    "recompute_config:\n  recompute: [4, 0",
    '{"server_count": "1", "server_list": [{"device": [',
    "2024-05-01 10:00:00,1 - mindformers - INFO - { Epoch:[  1/  1], step:[   10/ 10",
    "%101(x) = AllReduce(%100) {instance",
    "export HCCL_BUFFSIZE=",
    "msrun --worker_num=16 --local_worker_num=",
    "[parallelism]\ntensor_parallel_degree =",
)
SECRETS = (
    "export WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567",
    "msrun --worker_num=8 run.py --wandb-key 0123456789abcdef0123456789abcdef01234567",
    "--hidden-size 64 --password 0123456789abcdef0123456789abcdef01234567",
    "obs:\n  sk: 0123456789abcdef0123456789abcdef01234567",
    "export PROXY=http://user:0123456789abcdef0123456789abcdef01234567@proxy:8080",
    "export ＰＡＳＳＷＯＲＤ＝0123456789abcdef0123456789abcdef01234567",
    "ENV API_KEY 0123456789abcdef0123456789abcdef01234567",
    "setenv MY_TOKEN 0123456789abcdef0123456789abcdef01234567",
    "curl -H 'Authorization: Bearer 0123456789abcdef0123456789abcdef01234567'",
)


@pytest.mark.parametrize("text", READ)
def test_a_paste_is_read_without_a_false_error(text):
    found = explain_fragment(text)
    assert [part.kind for part in found.parts] == READ[text]
    assert found.prose == ()
    errors = [one.message for one in found.problems if one.severity == "error" and "\t" not in text]
    assert errors == []


@pytest.mark.parametrize("text", HALVES)
def test_half_a_piece_is_answered_and_checked(text):
    found = explain_fragment(text)
    assert found.parts
    assert found.text
    for name in ("piece.yaml", "piece.sh", "piece.txt"):
        lint_text(name, text)


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_is_shown_nowhere(text):
    found = explain_fragment(text)
    shown = found.text + str(found.to_dict())
    assert "0123456789abcdef" not in shown
    assert any("secret" in note for note in found.notes)


def test_what_only_sounds_like_a_key_is_kept():
    text = "train_dataset:\n  input_key: input_ids_and_labels_of_the_packed_set\n  num_keys: 8"
    assert explain_fragment(text).notes == ()


@pytest.mark.parametrize("value", ["l", "0", "-3", "99999999999999999999", "<b>", "2.5", "True"])
def test_a_size_that_no_job_has_is_an_error_by_itself(value):
    found = explain_fragment(f"parallel_config:\n  data_parallel: {value}\n")
    assert [one.rule for one in found.problems if one.severity == "error"] == ["size-impossible"]
    assert not explain_fragment("parallel_config:\n  data_parallel: $DP\n").problems


MISREAD = (
    "--seq-length 4O96 --num-layers 3l --hidden-size 4096x --num-attention-heads 32 --train-iters 5OOO --exp-name 1l --opt-level O1"
)


@pytest.mark.parametrize("before", ["", "torchrun --nproc_per_node 8 pretrain_gpt.py ", "docker run -e TP=2 image torchrun a.py "])
def test_letters_in_a_number_of_an_option_are_an_error_with_line_field_and_value(before):
    text = f"{before}\\\n{MISREAD}"
    told = [(one.severity, one.line, str(one.message), str(one.fix)) for one in lint_text("run.sh", text).problems]
    wrong = [one for one in told if "must be a whole number" in one[2] or "letters" in one[2]]
    assert sorted(wrong) == [
        ("error", 2, "hidden_size: '4096x' must be a whole number", "write the number alone, without letters or a unit"),
        ("error", 2, "num_layers: '3l' must be a whole number", "write 31, if that is meant"),
        ("error", 2, "seq_length: '4O96' must be a whole number", "write 4096, if that is meant"),
        ("warning", 2, "train_iters: '5OOO' is a number with letters in it", "write 5000, if that is meant"),
    ]
    pasted = {str(one.message) for one in explain_fragment(text).problems if one.severity == "error"}
    assert pasted == {one[2] for one in wrong if one[0] == "error"}
    assert "--num-attention-heads: 32" in says(text)


FOREIGN = """### of axolotl
base_model: some/model
adapter: qlora
sequence_len: 4096
sample_packing: true
val_set_size: 0.05
gradient_accumulation_steps: 8
bf16: auto
flash_attention: true
"""


def test_settings_of_another_program_are_not_judged_by_one_key_that_they_share():
    assert lint_text("sft.yaml", FOREIGN).problems == ()
    assert {part.kind for part in explain_fragment(FOREIGN).parts} == {"keys"}
    with pytest.raises(InputError, match="in no configuration dialect"):
        read_text(FOREIGN, "sft.yaml")


def test_a_whole_file_of_a_program_says_why_no_plan_is_made_of_it():
    text = "model_name_or_path: some/model\nfinetuning_type: full\ncutoff_len: 4096\nper_device_train_batch_size: 2\n"
    assert lint_text("sft.yaml", text).problems == ()
    (part,) = explain_fragment(text).parts
    assert (part.kind, part.title) == ("keys", "keys of LLaMA-Factory YAML, which is explained as a whole file")
    assert any("line 1, model_name_or_path: names no folder with a Hugging Face config.json" in line for line in part.says)


def says(text):
    return "\n".join(str(line) for part in explain_fragment(text).parts for line in part.says)


def test_keys_above_their_parents_are_read_by_themselves():
    (part,) = explain_fragment("    data_parallel: 8\n    model_parallel: 4\nrecompute_config:\n  recompute: [4, 0]").parts
    assert part.problems == ()
    assert {one.name: one.value for one in part.figures}["devices of the stated sizes"] == 32
    assert "data_parallel under parallel_config" in str(part.belongs)
    assert part.corrected.splitlines()[0] == "recompute_config:"


def test_every_setting_is_told_what_it_decides_and_none_is_left_out():
    text = says("moe_config:\n  expert_num: 64\n  aux_loss_factor: 0.05\n  capacity_factor: 1.5\ncontext:\n  mode: 1")
    assert "moe_config.expert_num = 64\n" in text
    assert "moe_config.aux_loss_factor = 0.05: how experts are scored" in text
    assert "moe_config.capacity_factor = 1.5" in text
    assert "context.mode: 0 compiles a graph, 1 runs operator by operator" in text
    text = says("--tensor-model-parallel-size 4 --swap-optimizer --fancy-option 3")
    assert "--tensor-model-parallel-size: 4\n" in text
    assert "--swap-optimizer: on; memory and time: optimizer states wait on the host" in text
    assert "--fancy-option: 3; not known to perfkit" in text


def test_a_launch_line_tells_its_variables_and_options():
    text = says("HCCL_BUFFSIZE=200 NCCL_IB_X9=1 torchrun --nproc_per_node=8 pretrain_gpt.py --num-layers 32 --swap-optimizer")
    assert "HCCL_BUFFSIZE = 200: " in text
    assert "NCCL_IB_X9 = 1: not known to perfkit" in text
    assert "--num-layers: 32" in text
    assert "--swap-optimizer: on; memory and time" in text
    assert "nproc" not in text


COMMAND = "torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --num-layers 32 --swap-optimizer"
STARTED_BY = (
    f"docker run --rm -it --name x --device /dev/davinci0 -e HCCL_BUFFSIZE=400 -v /a:/b image:1 {COMMAND}",
    f'sudo docker run --ipc=host \\\n  --env HCCL_BUFFSIZE=400 \\\n  image:1 \\\n  bash -c "cd /w && {COMMAND}"',
    f"docker exec -it x bash -c '\n  cd /w\n  export HCCL_BUFFSIZE=400\n  {COMMAND}'",
    f"kubectl -n team exec -it worker-0 -c main -- env HCCL_BUFFSIZE=400 {COMMAND}",
    f"singularity exec --nv --env A=1,HCCL_BUFFSIZE=400 image.sif {COMMAND}",
    f"srun --nodes=2 --ntasks-per-node=1 --export=ALL,HCCL_BUFFSIZE=400 {COMMAND}",
    f"ssh node1 'cd /w && HCCL_BUFFSIZE=400 {COMMAND}'",
    f"HCCL_BUFFSIZE=400 numactl --cpunodebind=0 --membind=0 nsys profile -o out {COMMAND}",
    f"cd /w && export HCCL_BUFFSIZE=400; {COMMAND}",
)


@pytest.mark.parametrize("text", STARTED_BY)
def test_a_launch_line_is_the_same_whatever_it_is_started_by(text):
    found = explain_fragment(text)
    (part,) = found.parts
    assert part.kind == "launch"
    assert "torchrun" in str(part.title) or "srun" in str(part.title)
    told = says(text)
    assert "HCCL_BUFFSIZE = 400: " in told
    misread = explain_fragment(text.replace("=400", "=4OO")).problems
    assert [(one.severity, str(one.message), str(one.fix)) for one in misread if one.rule == "variable-unreadable"] == [
        ("error", "HCCL_BUFFSIZE: '4OO' must be a whole number", "write 400, if that is meant")
    ]
    assert [line for line in told.split("\n") if line.startswith("--")] == [
        "--num-layers: 32",
        "--swap-optimizer: on; memory and time: optimizer states wait on the host",
    ]
    assert {one.name: one.value for one in part.figures} == {"devices": 16, "nodes": 2, "devices a node": 8}
    options = parse(text, "run.sh", FLAGS, LISTS).values
    assert options["num_layers"] == 32
    assert not {"rm", "name", "device", "ipc", "env", "nv", "cpunodebind", "membind"} & options.keys()


@pytest.mark.parametrize("piece", ["x", ";", "/", "A=1 ", "-e A=1 ", "ssh -a ", "bash -c ", "python -m x ", "\\\n", "'"])
def test_a_letter_of_a_long_line_costs_as_much_as_one_of_a_short_line(piece):
    def took_s(length: int) -> float:
        text, times = f"docker run ssh a '{piece * (length // len(piece))}", []
        for _ in range(3):
            began = time.process_time()
            in_one_word(inside(text))
            list(handed(text))
            times.append(time.process_time() - began)
        return min(times)

    assert took_s(160_000) < 4 * 8 * took_s(20_000)  # eight times as long; what goes by the square takes 64 times


DOCKERFILE = """FROM cann:8
ENV HCCL_BUFFSIZE=400 ASCEND_LAUNCH_BLOCKING=1
ENV GLOG_v 3
ENV PYTORCH_NPU_ALLOC_CONF=expandable_segments:True \\
    TASK_QUEUE_ENABLE=2
CMD ["torchrun", "--nproc_per_node", "8", "pretrain_gpt.py", "--num-layers", "32"]
"""


def test_a_dockerfile_sets_an_environment_and_starts_a_training(tmp_path):
    found = explain_fragment(DOCKERFILE)
    assert [part.kind for part in found.parts] == ["environment", "launch"]
    assert [str(line).split(":")[0] for line in found.parts[0].says] == [
        "HCCL_BUFFSIZE = 400",
        "ASCEND_LAUNCH_BLOCKING = 1",
        "GLOG_v = 3",
        "PYTORCH_NPU_ALLOC_CONF = expandable_segments",
        "TASK_QUEUE_ENABLE = 2",
    ]
    assert "--num-layers: 32" in says(DOCKERFILE)
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    problems = lint(tmp_path).problems
    assert ("launch-blocking-on", 2) in [(one.rule, one.line) for one in problems]


def test_what_a_launch_line_does_not_say_is_not_made_up():
    part = explain_fragment("torchrun --nproc_per_node 8 --nnodes $NNODES train.py").parts[0]
    assert [one.name for one in part.figures] == ["devices a node"]
    part = explain_fragment("mpirun -np 16 -x HCCL_BUFFSIZE=400 python train.py").parts[0]
    assert part.figures[0].value == 16
    assert explain_fragment("docker pull image:1").prose
    assert explain_fragment("---").prose
    assert [one.kind for one in explain_fragment("docker run -e TP=2 image bash\ndocker ps").parts] == ["launch"]


def test_a_misread_yes_or_no_and_a_tab_behind_a_colon_are_read_and_said():
    (part,) = explain_fragment("recompute_config:\n  recompute: Ture\n  select_recompute:\tFa1se # no").parts
    assert part.corrected.split("\n")[1:3] == ["  recompute: True", "  select_recompute: False # no"]
    assert sum("is read as" in str(line) for line in part.says) == 2
    assert explain_fragment("name: Tureen\nother: 'Ture'").parts[0].corrected == ""


def test_a_size_with_a_comma_is_told_what_to_write():
    (problem,) = explain_fragment("parallel_config:\n  pipeline_stage: 2，\n").problems
    assert str(problem.fix) == "write 2"


def test_a_misspelled_key_is_a_warning_at_its_line():
    found = explain_fragment("export HCCL_BUFFSIZE=200\nparalel_config:\n  data_parallel: 8\n")
    (problem,) = found.problems
    assert (problem.rule, problem.severity, problem.line) == ("misspelled-key", "warning", 2)
    assert str(problem.fix) == "write parallel_config"
    assert explain_fragment("nothing_like_it: 3\nnor_this: 4").problems == ()


def test_members_of_another_frameworks_object_are_no_error_of_this_one():
    found = explain_fragment('"zero_optimization": {"stage": 3, "overlap_comm": true},\n"bf16": {"enabled": true}')
    assert found.problems == ()
    assert "bf16 is on" in says('"zero_optimization": {"stage": 3},\n"bf16": {"enabled": true},')


def test_lines_of_prose_with_wide_gaps_are_no_table():
    assert explain_fragment("this   is   some   text: with gaps\nand   a  line").parts == ()


def test_lines_of_a_log_that_begin_in_brackets_are_no_broken_literal():
    """DeepSpeed's and torchrun's: [time] [level] [file:line], [rank]:."""
    logged = "[2023-05-04 10:11:12,123] [INFO] [timer.py:199:stop] epoch=0/micro_step=100, CurrSamplesPerSec=30.9"
    for text in (logged, "[rank0]: loss 2.1 (step 4"):
        assert [problem for part in explain_fragment(text).parts for problem in part.problems] == []
    assert [part.kind for part in explain_fragment("[rank0, 1").parts] == ["literal"]


def test_keys_of_nemo_are_none_of_another_dialect():
    found = explain_fragment("model:\n  activations_checkpoint_granularity: full\n  micro_batch_size: 2\n")
    assert [part.kind for part in found.parts] == ["keys"]
    assert "NeMo YAML" in str(found.parts[0].title)
    assert found.problems == ()


def test_keys_of_gpt_neox_are_no_misspelled_ones_of_another_dialect():
    text = '"pipe_parallel_size": 2,\n"model_parallel_size": 2,\n"num_layers": 12,\n'
    (part,) = explain_fragment(text).parts
    assert "GPT-NeoX" in str(part.title)
    assert part.problems == ()
    assert lint_text("paste.yaml", text).problems == ()


@pytest.mark.parametrize("value", ["8", "4,2", "'4, 2'", "$N", "${N:-8}", "{{ threads }}"])
def test_threads_may_be_listed_by_level_or_left_for_others_to_fill_in(value):
    assert not [one for one in lint_text("env.sh", f"export OMP_NUM_THREADS={value}").problems if one.rule == "variable-unreadable"]
    assert [one.rule for one in lint_text("env.sh", "export OMP_NUM_THREADS=4,x").problems] == ["variable-unreadable"]
    assert [one.rule for one in lint_text("env.sh", "export HCCL_BUFFSIZE=4,2").problems] == ["variable-unreadable"]
