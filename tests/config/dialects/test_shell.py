"""A launch script means what Bash makes of it, as far as its text decides that; what it does not decide is left out and named."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit import read_config
from perfkit.config.dialects._shell import END, Shell
from perfkit.config.dialects._write import edit_config
from perfkit.config.dialects.args import parse
from perfkit.config.dialects.read import read_text
from perfkit.core.errors import InputError

BASH = shutil.which("bash")
NAMES = ("A", "B", "C", "D")
SMALL = "--hidden-size 64 --num-attention-heads 4 --seq-length 16 --micro-batch-size 1 --vocab-size 1000"

TURNS = f"for I in {'1 ' * 200}; do for J in {'1 ' * 200}; do"

names = st.sampled_from(NAMES)
numbers = st.integers(0, 12).map(str)
plain = st.sampled_from(["x", "true", "8B", "70B", "a/b.py", "--fp8", "--lr 1e-4", ""])


def sums(names):
    leaf = st.one_of(numbers, names.map(lambda name: f"${{N{name}}}"), names.map(lambda name: f"N{name}"))
    operations = st.sampled_from(["+", "-", "*", "==", "<", ">=", "&&", "||"])
    pair = st.tuples(leaf, operations, leaf).map(" ".join)
    return st.one_of(leaf, pair, pair.map(lambda text: f"({text}) ? 3 : 2 + 1"))


@st.composite
def values(draw):
    name, other = draw(names), draw(plain)
    return draw(
        st.sampled_from(
            [
                f'"{other}"',
                f"'{other} $A'",
                f'"{other} ${name} end"',
                f'"${{{name}:-{other}}}"',
                f"${{{name}:-'{other}'}}",
                f'"${{{name}:+--set ${{{name}}}}}"',
                f"$(( {draw(sums(names))} ))",
                f'"\\\n  --x {draw(numbers)} \\\n  --y ${name}"',
                f'"$(( {draw(sums(names))} ))-${{{name}-unset}}"',
            ]
        )
    )


@st.composite
def conditions(draw):
    name, other = draw(names), draw(st.sampled_from(["x", "true", "8B", "3"]))
    plain_ones = [
        f'[ "${name}" = "{other}" ]',
        f'[ "${name}" != {other} ]',
        f"[ -z ${{{name}}} ]",
        f'[[ -n "${name}" ]]',
        f"[[ ${name} == {other[0]}* ]]",
        f"(( {draw(sums(names))} ))",
        f"[ $N{name} -gt {draw(numbers)} ]",
        f'[[ "${name}" == {other} || $N{name} -le 3 ]]',
        f"! [ $N{name} -eq 3 ]",
        "true",
    ]
    first = draw(st.sampled_from(plain_ones))
    return draw(st.sampled_from([first, first, f"{first} && {draw(st.sampled_from(plain_ones))}"]))


def assignments():
    number = st.tuples(names, sums(names)).map(lambda pair: f"N{pair[0]}=$(( {pair[1]} ))")
    text = st.tuples(names, st.sampled_from(["=", "=", "+="]), values()).map("".join)
    array = st.tuples(names, st.sampled_from(["=", "+="]), st.lists(values(), max_size=3)).map(
        lambda parts: f"L{parts[0]}{parts[1]}({' '.join(parts[2])} # a remark (\n)"
    )
    default = st.tuples(names, plain).map(lambda pair: f': "${{{pair[0]}:={pair[1]}}}"')
    return st.one_of(number, text, text, array, default, text.map(lambda one: f"export {one}"))


def blocks(inner):
    body = st.lists(inner, min_size=1, max_size=3).map("\n".join)
    return st.one_of(
        st.tuples(conditions(), body, body).map(lambda of: f"if {of[0]}; then\n{of[1]}\nelse\n{of[2]}\nfi"),
        st.tuples(conditions(), body, conditions(), body).map(
            lambda of: f"if {of[0]}\nthen {of[1]}\nelif {of[2]} ; then\n{of[3]}\nfi # end"
        ),
        st.tuples(names, body, body).map(
            lambda of: f'case "${of[0]}" in\n  x|8*) {of[1]} ;;\n  (true)\n{of[2]}\n;;\n *) : ;;\nesac'
        ),
        st.tuples(conditions(), inner).map(lambda of: f"{of[0]} && {{ {of[1]}\n}}"),
        st.tuples(names, body).map(lambda of: f"for {of[0]} in 3 x; do\n{of[1]}\ndone"),
        st.tuples(names, body, plain).map(lambda of: f"f() {{\n{of[0]}=$1\n{of[1]}\n}}\nf 5 {of[2]}"),
        body.map(lambda of: f"I=2\nwhile [ $I -gt 0 ]; do\n{of}\nI=$((I > 5 ? 0 : I - 1))\ndone"),
    )


scripts = st.lists(st.recursive(assignments(), blocks, max_leaves=6), min_size=1, max_size=6).map("\n".join)
BEFORE = "A=x B= C=8B D=\nNA=1 NB=2 NC=3 ND=4\nLA=() LB=(1 '2  3') LC=() LD=(--z)\n"
AFTER = 'train $A "${LA[@]}" ${LB[@]} --b=$B "$C" --n $NA,$NB ${D:+--d "$D"}\n'


@pytest.mark.skipif(BASH is None, reason="no Bash here to compare with")
@given(scripts)
def test_a_script_gives_a_command_the_words_that_bash_gives_it(body):
    script = f"{BEFORE}{body}\n{AFTER}"
    said = subprocess.run(
        [BASH, "-c", "train() { printf '%s\\0' \"$@\"; }\n" + script],
        env={"PATH": "/nowhere"},
        capture_output=True,
        timeout=20,
        check=False,
    )
    if said.returncode or said.stderr:
        return  # a sum of a text, or a test of none
    shell = Shell()
    shell.run(script, "run.sh", None)
    assert shell.absent == []
    commands = " ".join(word for word, _ in shell.used).split(END)
    assert commands[-2].split()[1:] == " ".join(said.stdout.decode().split("\0")).split()


def options(text: str, path: Path | None = None):
    return parse(text, "run.sh", frozenset({"swiglu"}), frozenset(), path)


def test_of_branches_that_the_file_does_not_decide_stays_what_they_agree_on():
    found = options(
        "TP=2; PP=4\nif [ $1 = large ]; then\n  TP=8 PP=8 MORE=--swiglu\nelse\n  PP=8\nfi\n"
        "train --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP $MORE\n"
    )
    assert found.values == {"tensor_model_parallel_size": "$TP", "pipeline_model_parallel_size": 8}
    assert found.absent == ["line 2: which branch runs is not known from the file; left out is what differs: MORE, TP, --swiglu"]


@pytest.mark.parametrize("check", ["if [ $# -lt 2 ]; then echo usage; exit 1; fi", '[ -f "$2" ] || { echo "no $2"; exit 1; }'])
def test_a_branch_that_ends_the_script_decides_nothing(check):
    found = options(f"N=3\n{check}\ntrain --num-layers $N\n")
    assert (found.values, found.absent) == ({"num_layers": 3}, [])


def test_what_a_command_finds_is_not_known_and_that_others_succeed_is_taken():
    found = options("cd runs && N=3 || N=4\ncommand -v npu-smi && M=1\ntrain --num-layers $N --lr $M\n")
    assert found.values == {"num_layers": 3, "lr": "$M"}
    assert found.absent == ["line 2: which branch runs is not known from the file; left out is what differs: M"]


def test_what_a_plan_lacks_because_of_an_open_branch_is_said_with_it():
    script = f"case $1 in 8B) H=4096 ;; 70B) H=8192 ;; esac\ntrain {SMALL} --num-layers $H\n"
    with pytest.raises(InputError) as caught:
        read_text(script, "run.sh")
    assert caught.value.problems == (
        "line 2, num_layers: '$H' names a variable that the file does not set or decide; a whole number is needed",
        "line 1: which branch runs is not known from the file; left out is what differs: H",
    )


def test_a_script_that_another_starts_has_its_arguments(tmp_path):
    (tmp_path / "run.sh").write_text(
        f"SIZE=${{1:-70B}}\nTP=$2\n[ $SIZE = 8B ] && L=6 || L=7\ntrain {SMALL} --num-layers $L --tensor-model-parallel-size $TP\n"
    )
    (tmp_path / "start.sh").write_text("bash run.sh 8B 2\n# --num-layers\n")
    (tmp_path / "usual.sh").write_text("TP=4\nbash run.sh '' ${TP}\n# --num-layers\n")
    plans = [read_config(tmp_path / name) for name in ("start.sh", "usual.sh")]
    assert [(plan.model.num_layers, plan.parallel.tensor_parallel_size) for plan in plans] == [(6, 2), (7, 4)]


def test_options_that_reach_no_command_are_left_out_and_named():
    found = options("MODEL='--num-layers 3'\nMOE=(--num-experts 8 --swiglu)\ntrain $MODEL --lr 1\n")
    assert found.values == {"num_layers": 3, "lr": 1}
    assert found.lines == {"num_layers": 1, "lr": 3}
    assert found.absent == ["left out, because no command uses the variables that they stand in: --num-experts, --swiglu"]
    assert options("MODEL='--num-layers 3'\nMOE=(--num-experts 8 --swiglu)\n").values == {
        "num_layers": 3,
        "num_experts": 8,
        "swiglu": True,
    }


def test_the_use_that_counts_is_changed_and_so_is_a_default():
    branches = "if [ $TP = 2 ]; then\n  S='--num-layers 8'\nelse\n  S='--num-layers 9'\nfi"
    script = f"TP=${{TP:-2}}\n{branches}\ntrain {SMALL} --num-layers 7 $S --tensor-model-parallel-size $TP\n"
    plan = read_text(script, "run.sh")
    assert (plan.model.num_layers, plan.parallel.tensor_parallel_size) == (8, 2)
    written = edit_config(plan.document, {"num_layers": 4})
    assert "'--num-layers 4'" in written.text
    assert "'--num-layers 9'" in written.text
    assert "TP=${TP:-1}" in edit_config(plan.document, {"tensor_model_parallel_size": 1}).text


@pytest.mark.parametrize(
    "script",
    [
        "while true; do A=$A$A$A$A; done\ntrain --lr 1\n",
        "f() { f; f; }\nf\ntrain --lr 1\n",
        "for A in 1 2 3 4 5 6 7 8 9; do " * 9 + "B=x; " + "done; " * 9 + "\ntrain --lr 1\n",
        "A=$((9**9**9**9))\nB=$((1/0))\ntrain --lr 1\n",
        "(" * 3000 + "train --lr 1",
        "if " * 3000 + "train --lr 1\n",
        "A=" + "${A:-" * 3000 + "\ntrain --lr 1\n",
        "A=x" + "x" * 50 + "\n" + "A=$A$A\n" * 300 + "train --lr 1 # $A\n",
        'A=(a b)\nwhile true; do A=("${A[@]}" "${A[@]}"); done\n',
        "A=(a b)\nwhile true; do A+=(${A[@]}); done\n",
        'A="' + "--x 1 " * 1500 + f'"\n{TURNS} train $A; done; done\n',
        f'{TURNS} A="{"--x " * 100_000}"; done; done\n',
        f'{TURNS} if [ "{"${A}" * 10_000}" != x ]; then B=1; fi; done; done\n',
        "A=" + "1" * 9000 + f"\n{TURNS} B=$(({'A+' * 900}1)); done; done\n",
        f"{TURNS} case $I in {'x) A=1 ;; ' * 2_000} esac; done; done\n",
        'A="' + "x " * 4900 + '"\n' + "B+=$A\n" * 100_000 + "train $B\n",
        "A=" + "x" * 9000 + '\nB="' + "$A" * 100_000 + '"\n',
        "A=$((" + "1+" * 200_000 + "1))\n",
        "".join(f"cat <<end{number}\n" for number in range(20_000)),
        '"$( ' * 100_001,
        "".join(f"A{number}=1\n" for number in range(3000)) + "if [ $1 ]; then B=1; fi\n" * 3000,
        "f() { while true; do shift; done; }\nf " + "a " * 20_000,
        "train " + "--list 1 " * 20_000,
        "train --lr '" + "${A:-'" * 50_000,
        "source " + "$" * 400_000 + "/\n",
    ],
    ids=range(25),
)
def test_no_script_takes_long_or_much(script):
    with contextlib.suppress(InputError):
        parse(script, "run.sh", frozenset(), frozenset({"list"}))


@pytest.mark.parametrize(
    "script", ["true && " * 5000 + "x", "if [ " + "x -a " * 5000 + "x ]; then x; fi", "if " + "! " * 5000 + "x; then x; fi"]
)
def test_what_is_nested_beyond_reason_is_refused_in_words(script):
    with pytest.raises(InputError) as caught:
        options(script)
    assert caught.value.problems == ("its commands are nested too deeply to be followed",)


def test_what_is_not_followed_is_said():
    assert options("I=1\n" * 100_001).absent == ["the script takes more than 200000 steps; what comes after them is not followed"]
    loops = "TP=2\nwhile [ $1 ]; do TP=4; shift; done\nfor ((I=0; I<3; I++)); do TP=8; done\ntrain --lr $TP\n"
    found = options(loops)
    assert found.values == {"lr": 2}
    assert found.absent == [
        f"line {line}: how often the loop runs is not known from the file; it is taken as not run" for line in (2, 3)
    ]


@pytest.mark.parametrize("name", ["a" * 5000, "a/" * 3000 + "b", "../outside.sh", "/etc/profile", "$HERE/../outside.sh"])
def test_a_name_that_no_script_beside_has_is_not_followed(tmp_path, name):
    folder = tmp_path / "inner"
    folder.mkdir()
    (tmp_path / "outside.sh").write_text("A=1\n")
    (folder / "run.sh").write_text(f"source {name}\n")
    found = options(f"source {name}\ntrain --lr $A\n", folder / "run.sh")
    assert found.values == {"lr": "$A"}
    assert found.absent == [f"{name} is sourced and is not here; what it sets is not known"]


def test_a_text_that_a_command_is_given_sets_nothing():
    assert options("cat <<END > file\nA=2\n END \n\tEND\nA=3\nEND\ntrain --lr $A\n").values == {"lr": "$A"}
    assert options("A=1\ncat <<'END'\nA=2\nEND\ncat <<-END\n\tA=3\n\tEND\ntrain --lr $A\n").values == {"lr": 1}


@given(st.text(alphabet="if then;fi\n&|()[]{}$`'\"#-=<>\\case esac in do while 1A!", max_size=80))
def test_whatever_is_written_is_read_or_refused_in_words(text):
    with contextlib.suppress(InputError):
        options(f"x {text}\n--lr 1\n")


QUEUED = {
    "run.sh": """#!/bin/bash
PP=2
TP=$((64/PP))
NNODES=8
MEGATRON_EXTRA_PARAMS="--activations-checkpoint-method uniform "
. `pwd`/CONFIG.sh
. `pwd`/SBATCH.sh
exit 0
""",
    "CONFIG.sh": """#!/bin/bash
: "${MEGATRON_DATA:?Set MEGATRON_DATA}"
export MEGATRON_PARAMS=" ${MEGATRON_EXTRA_PARAMS} \\
    --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size ${PP} --micro-batch-size 1 --global-batch-size 32 \\
    --num-layers 32 --hidden-size 20480 --num-attention-heads 128 --data-path ${MEGATRON_DATA} --vocab-size 50257 \\
    --seq-length 2048 --max-position-embeddings 2048 --fp16 "
""",
    "SBATCH.sh": """#!/bin/bash
sbatch -p ${SLURM_PARTITION} --job-name=${JOB_NAME} --nodes=${NNODES} --export=CODE_DIR,MEGATRON_PARAMS SRUN.sh
exit 0
""",
    "SRUN.sh": """#!/bin/bash
#SBATCH -t 0:30:00 --exclusive --ntasks-per-node=8
CMD="python -u ${CODE_DIR}/pretrain_gpt.py ${MEGATRON_PARAMS}"
srun -l --container-mounts "${CODE_DIR}:${CODE_DIR}" --output=logs/%x_$DATE.log sh -c "${CMD}"
""",
}
"""The chain of NVIDIA/Megatron-LM examples/academic_paper_scripts/sc21, which hands all options through the environment."""


def test_options_that_a_queue_hands_through_the_environment_are_followed_to_the_command(tmp_path):
    for name, text in QUEUED.items():
        (tmp_path / name).write_text(text)
    plan = read_config(tmp_path / "run.sh")
    assert (plan.model.hidden_size, plan.parallel.tensor_parallel_size, plan.parallel.pipeline_parallel_size) == (20480, 32, 2)
    assert plan.num_devices == 64, "8 nodes of the launch line, 8 tasks on each of the job's own lines"
    assert plan.recompute.all_layers, "as Megatron-LM 2 spells it"
    with pytest.raises(InputError, match=r"'\${TP}' names a variable that the file does not set"):
        read_config(tmp_path / "CONFIG.sh")


@pytest.mark.parametrize(
    ("lines", "devices"),
    [
        ("#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8", 32),
        ("#SBATCH -N 2\n#SBATCH --gres=gpu:a100:4", 8),
        ("#SBATCH --nodes 2 --ntasks-per-node 8", 16),
        ("##SBATCH --nodes=4\n#SBATCH --gpus-per-node=8", 8),
        ("#SBATCH --nodes=2-4\n#SBATCH --job-name=a", 1),
    ],
)
def test_devices_are_those_that_the_job_asks_for(lines, devices):
    script = f"#!/bin/bash\n{lines}\nsrun python pretrain_gpt.py --num-layers 2 {SMALL}\n"
    assert read_text(script, "job.sbatch").num_devices == devices
    sized = script.replace("srun python", "torchrun --nproc_per_node 2 --nnodes ${SLURM_NNODES:-1}")
    nodes = 4 if "--nodes=4" in lines and devices == 32 else 2 if "-N 2" in lines or "nodes 2 " in lines else 1
    assert read_text(sized, "job.sbatch").num_devices == 2 * nodes


@pytest.mark.parametrize(
    ("asked", "devices"), [("-N 2 -n 16", 16), ("-n16", 16), ("--nodes=2 --ntasks-per-node=8 --jobid 7", 16), ("--gpus=4 -N 1", 4)]
)
def test_a_queue_keeps_its_own_options(asked, devices):
    """What `srun` takes stands before the program, and what the program takes (`-n`) behind it."""
    script = f"#!/bin/bash\nsrun {asked} /usr/bin/python3 -u pretrain_gpt.py -n 3 --num-layers 2 {SMALL}\n"
    plan = read_text(script, "job.sh")
    assert plan.num_devices == devices
    assert plan.document.unknown == ()
    assert not {"nodes", "ntasks_per_node", "jobid", "gpus"} & set(plan.document.values)


@pytest.mark.parametrize(
    "start",
    [
        "mpirun -np 16",
        "/usr/bin/mpirun -np 16",
        "mpiexec.hydra -np 16",
        "mpirun -x NCCL_DEBUG=INFO -np 16",
        "mpirun --allow-run-as-root -n 16 -N 8 -x A=1",
        "mpiexec -n 16 --hostfile hosts",
        "srun -N 2 mpirun -np 16",
    ],
)
def test_processes_of_mpi_are_those_that_it_starts(start):
    plan = read_text(f"{start} python pretrain_gpt.py --num-layers 2 {SMALL}\n", "job.sh")
    assert (plan.num_devices, plan.document.unknown) == (16, ())


def test_commands_in_one_word_see_what_stands_before_them():
    train = f"torchrun pretrain_gpt.py --num-layers $LAYERS --tensor-model-parallel-size $TP {SMALL}"
    script = f"TP=2\nsrun -N 1 bash -lc 'cd /work; LAYERS=4 && {train}'\n"
    plan = read_text(script, "job.sh")
    assert (plan.model.num_layers, plan.parallel.tensor_parallel_size) == (4, 2)


@pytest.mark.parametrize(
    "shell", ["bash -c", "docker run --rm image bash -lc", "srun -N 1 sh -c", "ssh node-0", "ssh node-0 bash -c"]
)
@pytest.mark.parametrize("quote", ['"', "'"])
def test_options_of_commands_in_one_word_have_their_own_lines(shell, quote):
    command = "\n  torchrun pretrain_gpt.py \\\n  --num-layers 4 \\\n  --seq-length 4O96\n"
    found = parse(f"#!/bin/bash\n{shell} {quote}{command}{quote}\n", "job.sh", frozenset(), frozenset())
    assert found.values == {"num_layers": 4, "seq_length": "4O96"}
    assert found.lines == {"num_layers": 4, "seq_length": 5}


def test_a_script_that_is_named_from_a_folder_above_is_found(tmp_path):
    folder = tmp_path / "examples" / "gpt3"
    folder.mkdir(parents=True)
    (folder / "train.sh").write_text(f"torchrun pretrain_gpt.py --num-layers $LAYERS {SMALL}\n")
    (folder / "job.sh").write_text(
        "#!/bin/bash\nsrun bash -c 'cd /work; LAYERS=6 bash examples/gpt3/train.sh 2>&1 | tee log.txt'\n"
    )
    assert read_config(folder / "job.sh").model.num_layers == 6


def test_a_script_that_starts_itself_ends(tmp_path):
    text = f"#!/bin/bash\nsbatch job.sh\nbash -c 'bash -c \"bash job.sh\"'\npython pretrain_gpt.py --num-layers 2 {SMALL}\n"
    (tmp_path / "job.sh").write_text(text)
    assert read_config(tmp_path / "job.sh").model.num_layers == 2
