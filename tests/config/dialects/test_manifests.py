"""Manifests of containers: what they run is read as the same command in a script is, each thing with its line."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from perfkit.config.dialects.args import parse
from perfkit.config.dialects.manifests import manifest_of
from perfkit.config.dialects.megatron_options import FLAGS, LISTS
from perfkit.config.dialects.read import read_text
from perfkit.config.lint import lint, lint_text
from perfkit.config.lint.subjects import environment_of
from perfkit.core.errors import InputError
from perfkit.explain.fragments import explain_fragment

COMMANDS = (
    "msrun --worker_num=16 --local_worker_num=8 run_mindformer.py --config a.yaml --run_mode train",
    "torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --tensor-model-parallel-size 8 --seq-length 4096 --bf16",
    "python train.py --name 'two words' --pattern 'a\"b' --lr 1e-4",
    "deepspeed --num_gpus 8 train.py --deepspeed ds.json --swiglu --lr-decay-style cosine",
)
VARIABLES = {"HCCL_BUFFSIZE": "400", "NCCL_DEBUG": "WARN", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
JOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec:
  pytorchReplicaSpecs:
    Worker:
      template:
        spec:
          containers:
            - name: pytorch
              command: ["torchrun"]
              env:
                - name: HCCL_BUFFSIZE
                  value: "4OO"
                - name: HF_TOKEN
                  value: hf_abcdefghijklmnopqrstuvwx
                - name: RANKS
                  value: "8"
                - name: POD_IP
                  valueFrom: {fieldRef: {fieldPath: status.podIP}}
              args:
                - --nproc_per_node=$(RANKS)
                # what is trained
                - pretrain_gpt.py
                - --tensor-model-parallel-size
                - "8"
                - --seq-length
                - "4O96"
---
apiVersion: batch/v1
kind: Job
spec:
  template:
    spec:
      containers:
        - command:
            - /bin/bash
            - -lc
            - |
              export HCCL_CONNECT_TIMEOUT=12OO
              torchrun train.py
"""
BF16 = "--num-layers=32 --hidden-size=4096 --num-attention-heads=32 --micro-batch-size=1 --global-batch-size=64 --bf16"


def _pod(command: str, how: str) -> str:
    """A pod that runs `command` with `VARIABLES`, its words in one list, in two parts, or as the script of a shell."""
    words = shlex.split(command)
    parts = {
        "list": {"command": words},
        "parts": {"command": words[:1], "args": words[1:]},
        "shell": {"command": ["sh", "-c", command]},
    }
    env = [{"name": name, "value": value} for name, value in VARIABLES.items()]
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "a", "env": env, **parts[how]}]}})


def _compose(command: str, how: str) -> str:
    words = shlex.split(command)
    parts = {"list": {"command": words}, "parts": {"entrypoint": words[:1], "command": words[1:]}, "shell": {"command": command}}
    env = VARIABLES if how == "list" else [f"{name}={value}" for name, value in VARIABLES.items()]
    return yaml.safe_dump({"services": {"train": {"environment": env, **parts[how]}}}, width=10_000)


@pytest.mark.parametrize("manifest", [_pod, _compose])
@pytest.mark.parametrize("how", ["list", "parts", "shell"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split()[0])
def test_a_manifest_says_what_its_command_in_a_script_says(command: str, how: str, manifest):
    script = manifest_of(manifest(command, how)).placed
    assert parse(script, "job.yaml", FLAGS, LISTS).values == parse(command, "run.sh", FLAGS, LISTS).values
    assert {one.name: one.value for one in environment_of("job.yaml", script).variables} == VARIABLES


def test_everything_in_a_manifest_has_its_own_line_and_secrets_stay_masked():
    found = {(one.rule, one.line) for one in lint_text("job.yaml", JOB).problems if one.severity == "error"}
    lines = JOB.splitlines()
    assert found == {
        ("variable-unreadable", 1 + next(at for at, line in enumerate(lines) if "4OO" in line)),
        ("value-unreadable", 1 + next(at for at, line in enumerate(lines) if "--seq-length" in line)),
        ("variable-unreadable", 1 + next(at for at, line in enumerate(lines) if "12OO" in line)),
    }
    told = explain_fragment(JOB)
    assert [part.kind for part in told.parts] == ["environment", "launch", "environment", "launch"]
    assert {(one.rule, one.line) for one in told.problems if one.severity == "error"} == found
    assert "hf_abc" not in told.text
    assert told.prose == ()


def test_a_plan_is_read_from_a_manifest_as_from_the_script():
    command = f"{COMMANDS[1]} {BF16}"
    assert read_text(_pod(command, "parts"), "job.yaml").parallel == read_text(command, "run.sh").parallel


def _training_job(command: str, *, master: str = "1", worker: str = "3", **spec: object) -> str:
    """A `PyTorchJob` whose pods all run `command` in a shell."""
    pod = {"template": {"spec": {"containers": [{"name": "pytorch", "command": ["bash", "-c", command]}]}}}
    replicas = {name: {"replicas": count, **pod} for name, count in (("Master", master), ("Worker", worker)) if count}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {**spec, "pytorchReplicaSpecs": replicas}}
    return yaml.safe_dump(job, width=10_000, sort_keys=False).replace("replicas: '", "replicas: ").replace("'\n", "\n")


@pytest.mark.parametrize(
    ("launch", "spec", "devices"),
    [
        ("torchrun --nproc_per_node 8 --nnodes $WORLD_SIZE", {}, 32),
        ("torchrun --nproc_per_node=8 --nnodes=${PET_NNODES}", {}, 32),
        ("torchrun --nproc_per_node 8", {}, 32),
        ("torchrun", {"nprocPerNode": 4}, 16),
        ("python", {}, 4),
        ("torchrun --nproc_per_node 8 --nnodes 2", {}, 16),
        ("torchrun --nproc_per_node 8", {"master": "", "worker": "2"}, 16),
        ("PET_NNODES=2 torchrun --nproc_per_node 8", {}, 16),
    ],
)
def test_the_replicas_of_a_training_job_are_its_nodes(launch: str, spec: dict, devices: int):
    assert read_text(_training_job(f"{launch} pretrain_gpt.py --seq-length 4096 {BF16}", **spec), "job.yaml").num_devices == devices


def test_replicas_that_are_not_stated_say_nothing():
    assert "WORLD_SIZE" not in manifest_of(JOB).placed
    assert "PET_NNODES" not in manifest_of(_training_job("torchrun train.py", master="", worker="many")).placed
    assert "WORLD_SIZE" not in manifest_of(_training_job("torchrun train.py", master="")).placed  # which a master alone brings


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: v1\nkind: ConfigMap\ndata: {a: b}\n",
        "apiVersion: v1\nspec: {containers: 3}\n",
        "apiVersion: v1\nspec: {containers: [1, [2], {command: {a: b}, env: [x, [y], {name: [1], value: 2}], ? [k] : v}]}\n",
        "apiVersion: v1\nspec: {containers: [\n",
        "apiVersion: v1\na: &x [*x]\n",
        "apiVersion: v1\n" + "a: " + "[" * 5000 + "]" * 5000,
        "services:\n",
        "runner_config:\n  epochs: 2\n",
    ],
)
def test_what_runs_nothing_stays_as_it_is(text: str):
    assert manifest_of(text).placed == text


def test_a_file_of_a_manifest_is_checked_as_one(tmp_path: Path):
    (tmp_path / "job.yaml").write_text(JOB, encoding="utf-8")
    report = lint(tmp_path)
    assert report.count("error") == 3
    assert dict(report.checked)["environment"] == 1


MOE = """\
apiVersion: v1
kind: Pod
spec:
  containers:
    - command:
        - bash
        - -e
        - -c
        - |
          ARGS="--num-layers 4"
          if [ "$USE_MOE" = 1 ]; then
            ARGS="$ARGS --num-experts 8"
          fi
          torchrun pretrain_gpt.py $ARGS
      env:
        - name: USE_MOE
          value: "1"
"""
ALPHABETIC = """\
apiVersion: v1
spec:
  containers:
    - args:
        - pretrain_gpt.py
        - --num-layers
        - "4"
      command:
        - torchrun
"""
QUOTED = """\
apiVersion: v1
spec:
  containers:
    - env:
        - {name: A, value: "1"}
      command: [sh, -c, "# first\\nif true; then\\n  torchrun pretrain_gpt.py \\\\\\n --num-layers 4\\nfi\\n"]
    - env:
        - {name: B, value: "2"}
"""
ALIAS = """\
apiVersion: v1
spec:
  master:
    containers: &c
      - env: &set
          - {name: A, value: "1"}
        command: &line
          - torchrun
          - pretrain_gpt.py
          - --num-layers=4
  worker:
    containers: *c
  other:
    containers:
      - env: *set
        command: *line
"""
MERGED = """\
x-base: &base
  environment: {HCCL_BUFFSIZE: 400}
services: # all
  train:
    <<: *base
    command: >
      torchrun pretrain_gpt.py
        --num-layers 4
        --hidden-size 512
"""


@pytest.mark.parametrize("text", [MOE, ALPHABETIC, QUOTED, ALIAS, MERGED, MERGED.replace("\n", "\r\n")])
def test_manifests_in_other_orders_and_forms_run_the_same(text: str):
    script = manifest_of(text).placed
    found = parse(script, "job.yaml", FLAGS, LISTS)
    assert found.values["num_layers"] == 4
    assert found.repeated == []
    assert ("num_experts" in found.values) == (text == MOE), "a variable is known before it is used"
    assert found.values.get("hidden_size", 512) == 512
    launched = [line for line in script.splitlines() if "torchrun" in line]
    assert all(re.search(r"(?:^|;|then)\s*torchrun\b", line) for line in launched), "a program stands before its options"
    names = [one.name for one in environment_of("job.yaml", script).variables]
    expected = {MOE: ["USE_MOE"], QUOTED: ["A", "B"], ALIAS: ["A"]}.get(text, ["HCCL_BUFFSIZE"] if "x-base" in text else [])
    assert [name for name in names if name != "ARGS"] == expected


def test_a_plan_from_a_manifest_says_that_a_script_is_written():
    plan = read_text(_pod(f"{COMMANDS[1]} {BF16}", "list"), "job.yaml")
    assert plan.document is not None
    assert any("manifest" in note for note in plan.document.notes)


SETTINGS = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data:
  train.yaml: |
    model_name_or_path: meta-llama/Llama-2-7b-hf
    stage: sft
    finetuning_type: full
    cutoff_len: 4096
    per_device_train_batch_size: 2
    gradient_accumulation_steps: 4
    bf16: true
    deepspeed: /etc/job/ds.json
  ds.json: |
    {"zero_optimization": {"stage": 2}}
  run.sh: |
    #!/bin/bash
    export HCCL_BUFFSIZE=400
    cd /etc/job && llamafactory-cli train train.yaml
  NODES: "4"
---
apiVersion: v1
kind: Secret
metadata: {name: hub}
stringData: {HF_TOKEN: hf_abcdefghijklmnopqrstuvwx, plain: a-word-nobody-may-see}
---
"""


def _job(container: str, volumes: str = "[{name: a, configMap: {name: settings}}]") -> str:
    """A job with one container, after the ConfigMap and the Secret."""
    return f"{SETTINGS}apiVersion: v1\nkind: Pod\nspec:\n  volumes: {volumes}\n  containers:\n  - name: train\n{container}"


def _taken(name: str, source: str) -> str:
    return f"    - {{name: {name}, valueFrom: {{{source}}}}}\n"


MOUNTED = "    volumeMounts: [{name: a, mountPath: /etc/job/}]\n"
COMMANDS_OF_FILE = {
    "a script": "    command: [bash, /etc/job/run.sh]\n",
    "a script by itself": "    command: [/etc/job/run.sh]\n",
    "a script in a shell": "    command: [sh, -c, 'pip install x && bash /etc/job/run.sh']\n",
    "a file": "    command: [llamafactory-cli, train, /etc/job/train.yaml]\n",
}


@pytest.mark.parametrize("command", COMMANDS_OF_FILE.values(), ids=COMMANDS_OF_FILE)
def test_files_and_variables_of_a_config_map_count(command: str):
    env = "    env:\n" + _taken("NNODES", "configMapKeyRef: {name: settings, key: NODES}")
    plan = read_text(_job(command + MOUNTED + env), "job.yaml")
    assert (plan.num_devices, plan.workload.micro_batch_size, plan.parallel.optimizer_shard_level) == (32, 2, 2)
    assert not [note for note in plan.document.notes if note.startswith("not known")]


@pytest.mark.parametrize(
    ("mount", "volumes"),
    [
        ("{name: a, mountPath: /x/t.yaml, subPath: train.yaml}", "[{name: a, configMap: {name: settings}}]"),
        ("{name: a, mountPath: /x}", "[{name: a, configMap: {name: settings, items: [{key: train.yaml, path: t.yaml}]}}]"),
        (
            "{name: a, mountPath: /x}",
            "[{name: a, projected: {sources: [{configMap: {name: settings, items: [{key: train.yaml, path: t.yaml}]}}]}}]",
        ),
    ],
)
def test_a_file_lies_where_it_is_mounted(mount: str, volumes: str):
    container = f"    command: [llamafactory-cli, train, /x/t.yaml]\n    volumeMounts: [{mount}]\n"
    assert read_text(_job(container, volumes), "job.yaml").workload.seq_length == 4096
    with pytest.raises(InputError, match="open that file"):
        read_text(_job(container.replace("/x/t.yaml]", "/y/u.yaml]"), volumes), "job.yaml")


def test_problems_of_files_of_a_config_map_have_the_lines_of_the_manifest():
    text = _job(COMMANDS_OF_FILE["a script"] + MOUNTED).replace("cutoff_len: 4096", "cutoff_len: 4O96").replace("=400", "=4OO")
    lines = text.splitlines()
    assert {(one.rule, one.line) for one in lint_text("job.yaml", text).problems if one.severity == "error"} == {
        ("value-unreadable", 1 + next(at for at, line in enumerate(lines) if "4O96" in line)),
        ("variable-unreadable", 1 + next(at for at, line in enumerate(lines) if "4OO" in line)),
    }


def test_all_variables_of_a_config_map_count_under_those_of_the_container():
    sizes = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: sizes}\ndata: {SEQ: '4096', LAYERS: '32'}\n---\n"
    command = f"torchrun train.py --seq-length $M_SEQ --num-layers $M_LAYERS {BF16.partition(' ')[2]}"
    container = f"""\
    envFrom: [{{prefix: M_, configMapRef: {{name: sizes}}}}]
    env: [{{name: M_SEQ, value: '8192'}}]
    command: [sh, -c, '{command}']
"""
    plan = read_text(sizes + _job(container), "job.yaml")
    assert (plan.workload.seq_length, plan.model.num_layers) == (8192, 32)


def test_what_the_cluster_fills_in_is_named_and_a_secret_is_never_read():
    container = (
        COMMANDS_OF_FILE["a file"]
        + MOUNTED.replace("]", ", {name: b, mountPath: /data}]")
        + "    args: [--dataset_dir, /data/list.json]\n    env:\n"
        + _taken("TOKEN", "secretKeyRef: {name: hub, key: plain}")
        + _taken("POD_IP", "fieldRef: {fieldPath: status.podIP}")
        + _taken("CPUS", "resourceFieldRef: {resource: limits.cpu}")
        + _taken("GONE", "configMapKeyRef: {name: settings, key: gone}")
        + "    envFrom: [{secretRef: {name: hub}}, {configMapRef: {name: nccl}}]\n"
    )
    text = _job(container, "[{name: a, configMap: {name: settings}}, {name: b, configMap: {name: lists}}]")
    named = (
        "TOKEN (secretKeyRef hub/plain), POD_IP (fieldRef status.podIP), CPUS (resourceFieldRef limits.cpu), "
        "GONE (configMapKeyRef settings/gone), * (secretRef hub), * (configMapRef nccl), /data/list.json (configMap lists)"
    )
    plan, told = read_text(text, "job.yaml"), explain_fragment(text)
    (found,) = [one for one in lint_text("job.yaml", text).problems if one.rule == "filled-in-elsewhere"]
    for shown in (found.message, str(plan.document.notes), str(told.notes)):
        assert all(one in shown for one in named.split(", "))
    everything = f"{manifest_of(text)}{plan}{plan.document}{told.text}{told.to_dict()}"
    assert "hf_abc" not in everything
    assert "a-word-nobody-may-see" not in everything


def test_variables_below_a_command_are_set_before_it():
    pod = SETTINGS.partition("data:")[0].replace("ConfigMap", "Pod") + (
        "spec:\n  containers:\n  - command: [torchrun, --nproc_per_node, '8', t.py, --seq-length, '4096', "
        f"{', '.join(BF16.split())}]\n    env: [{{name: PET_NNODES, value: '2'}}]\n"
    )
    assert read_text(pod, "job.yaml").num_devices == 16
    assert manifest_of(pod).placed.splitlines().index("export PET_NNODES=2") == pod.splitlines().index(
        "    env: [{name: PET_NNODES, value: '2'}]"
    )


@pytest.mark.parametrize(
    ("limits", "devices"),
    [("nvidia.com/gpu: 4", 8), ("huawei.com/Ascend910: '2'", 4), ("cpu: 4", 16), ("nvidia.com/gpu: many", 16)],
)
def test_a_container_has_the_devices_of_its_limits(limits: str, devices: int):
    env = f"    env: [{{name: NNODES, value: '2'}}]\n    resources: {{limits: {{{limits}}}}}\n"
    assert read_text(_job(COMMANDS_OF_FILE["a file"] + MOUNTED + env), "job.yaml").num_devices == devices


def test_what_a_manifest_looks_up_again_and_again_has_an_end():
    """Every container takes all variables of a large ConfigMap, and commands are searched for all of its files: it took minutes."""
    keys = "".join(f"  K{number}: v\n" for number in range(2000))
    container = (
        "  - {command: [sh, -c, $X], envFrom: [{configMapRef: {name: m}}], volumeMounts: [{name: v, mountPath: /x}]}\n"
        "  - {command: [sh, -c, $X], volumeMounts: [{name: v, mountPath: /x}]}\n"
    )
    head = (
        f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m}}\ndata:\n{keys}  ONE: '1'\n---\napiVersion: v1\nkind: Pod\nspec:\n"
    )
    text = f"{head}  volumes: [{{name: v, configMap: {{name: m}}}}]\n  containers:\n{container * 500}"
    assert manifest_of(text).script.count("export ") < 6000, "of a million"
    few = text.replace(keys, "").replace(container * 500, container)
    assert "export ONE=1" in manifest_of(few).script
