"""Doors times bad values: each way in tells all that is wrong with what it was given, with the value and what would be right."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import perfkit
from perfkit.core.errors import InputError
from perfkit.core.plan_columns import PlanColumns
from perfkit.core.resources import data_folder
from perfkit.core.spec.plan import Plan
from perfkit.core.units import GIB
from perfkit.face import cli
from perfkit.predict.calibration.file import calibration
from perfkit.predict.changes import changed_plan
from perfkit.predict.cost.labels import labels_of
from perfkit.predict.plans.balance.from_plan import problem_of_plan
from tests.page_cells import run_page

CONFIG = data_folder() / "configs" / "pretrain_llama2_13b.yaml"
STAGES = data_folder() / "case13b" / "round2.yaml"
DEVICE = "Ascend-910B2"
COMMANDS = {
    "estimate": [],
    "plan": ["--devices", "16"],
    "balance": [],
    "simulate": ["--out", "refused-before-it-is-written"],
    "lint": [],
}
OF_A_DEVICE = [command for command in COMMANDS if command != "lint"]
OF_A_LIMIT = ["estimate", "plan", "balance"]
LIMITS = {"58G": "58", "0GB": "58", "-1": "58"}
"""What can be no limit, with the nearest that can."""
ROW = {
    "layers": 40, "hidden": 5120, "heads": 40, "ffn_hidden": 13824, "vocab": 32000, "seq_len": 4096, "dp": 8, "pp": 2,
    "n_devices": 16, "micro_batch": 1, "global_batch": 64, "accelerator": DEVICE,
}  # fmt: skip
CELLS = {
    "n_devices": ("17", "nearest is n_devices = 16 or 18"),
    "activation": ("swigl", "nearest is swiglu"),
    "precision": ("bf17", "nearest is bf16"),
    "framework": ("mindformer", "nearest is mindformers"),
    "memory_limit_bytes": ("58G", "nearest is '58GB'"),
}
"""By column a cell that is wrong, and what is told of it."""


def refused(capsys: pytest.CaptureFixture[str], command: str, *words: str) -> str:
    """What a command says as it refuses its input."""
    assert cli.main([command, *words, *COMMANDS[command]]) == (1 if command == "lint" else 2)
    captured = capsys.readouterr()
    return captured.out if command == "lint" else captured.err


def config(folder: Path, **values: str) -> str:
    """The 13B configuration with other values of keys."""
    text = CONFIG.read_text(encoding="utf-8")
    for key, value in values.items():
        text, count = re.subn(rf"(\b{key}: *)\S+", rf"\g<1>{value}", text, count=1)
        assert count == 1, key
    path = folder / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def table(folder: Path, **cells: object) -> str:
    path = folder / "plans.csv"
    pd.DataFrame([ROW | cells]).to_csv(path, index=False)
    return str(path)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("command", COMMANDS)
def test_all_that_is_wrong_with_a_configuration_is_one_error(command: str, limit: str, tmp_path: Path, capsys):
    path = config(tmp_path, max_device_memory=f'"{limit}"', data_parallel="-8", num_heads="7")
    told = refused(capsys, command, path)
    assert f"context.max_device_memory: '{limit}' must be" in told
    assert "nearest is '58GB'" in told
    assert "data_parallel: -8 must be a whole number of at least 1" in told
    assert "5120 is not divisible by 7 heads" in told
    assert len(re.findall(r":125\b|line 125", told)) >= 1, "where it stands"


@pytest.mark.parametrize("command", OF_A_DEVICE)
def test_a_configuration_cannot_have_more_than_its_device(command: str, tmp_path: Path, capsys):
    path = config(tmp_path, max_device_memory='"999GB"', pipeline_stage="2", data_parallel="4")
    told = refused(capsys, command, path, "--device", DEVICE)
    assert "context.max_device_memory = 999GB" in told
    assert f"more than {DEVICE} has, 64.0 GiB; nearest is 64GB" in told


@pytest.mark.parametrize("limit", [*LIMITS, "9999", "nan", "1e400", ""])
@pytest.mark.parametrize("command", OF_A_LIMIT)
def test_options_and_configuration_are_wrong_in_one_error(command: str, limit: str, tmp_path: Path, capsys):
    path = config(tmp_path, data_parallel="-8")
    if limit != "9999":
        told = refused(capsys, command, path, "--device", "Ascend-910B9", f"--memory-limit-gib={limit}")
        assert "no device is called 'Ascend-910B9'; did you mean Ascend-910B4" in told
        assert f"--memory-limit-gib = '{limit}' must be a number of GiB above 0; nearest is {LIMITS.get(limit, '58')}" in told
        assert "data_parallel: -8 must be" in told
    told = refused(capsys, command, path, "--device", DEVICE, f"--memory-limit-gib={limit}")
    assert ("is more than Ascend-910B2 has, 64.0 GiB; nearest is 64GB" if limit == "9999" else f"'{limit}' must be") in told
    assert "data_parallel: -8 must be" in told


@pytest.mark.parametrize("command", COMMANDS)
def test_every_cell_of_a_row_that_is_wrong_is_told(command: str, tmp_path: Path, capsys):
    path = table(tmp_path, **{column: value for column, (value, _) in CELLS.items()})
    if command == "estimate":
        assert cli.main(["estimate", path]) == 0, "the other rows of a table are predicted"
        told = capsys.readouterr().out
    else:
        told = refused(capsys, command, path)
    for column, (value, right) in CELLS.items():
        assert re.search(rf"{column} = '?{value}\b", told), column
        assert right in told


@pytest.mark.parametrize("command", COMMANDS)
def test_a_column_that_is_stated_twice_hides_no_other_problem(command: str, tmp_path: Path, capsys):
    told = refused(capsys, command, table(tmp_path, num_layers=41, precision="bf17", memory_limit_bytes="999GB"))
    assert "'layers' and 'num_layers' state the same (num_layers)" in told
    assert "row 1: precision = 'bf17' must be one of" in told
    assert f"row 1: column memory_limit_bytes: a memory limit of 999 GiB is more than {DEVICE} has, 64.0 GiB" in told


@pytest.mark.parametrize("command", OF_A_DEVICE)
def test_a_launcher_that_starts_other_devices_than_the_groups_need_is_told(command: str, tmp_path: Path, capsys):
    path = tmp_path / "pretrain.sh"
    path.write_text(
        "NPU_MEMORY=58G torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py --world-size 17 --num-layers 32 --hidden-size 4096 "
        "--num-attention-heads 32 --seq-length 4096 --vocab-size 32000 --tensor-model-parallel-size 3 --micro-batch-size 1 "
        "--global-batch-size 64 --bf16\n",
        encoding="utf-8",
    )
    told = refused(capsys, command, str(path), "--device", "A100-80GB-SXM")
    assert "world_size: 17 is not 2 nodes x 8 = 16 that the launcher starts; nearest is 16" in told
    assert "16 devices are not divisible by 3 of one replica; nearest is 15 or 18" in told
    assert "NPU_MEMORY: '58G' must be a size of more than 0 with its unit; nearest is '58GB'" in told


@pytest.mark.parametrize(
    ("command", "numbers"),
    [
        ("plan", {"--devices=-5": "devices = -5 must be", "--top=0": "top = 0 must be"}),
        ("balance", {"--time-limit-s=-5": "time_limit_s = -5.0 must be 0 to"}),
        ("simulate", {"--steps=0": "steps = 0 must be 1 to", "--seed=-1": "seed = -1 must be at least 0"}),
    ],
)
def test_numbers_are_wrong_in_the_error_of_all_else(command: str, numbers: dict[str, str], tmp_path: Path, capsys):
    path = config(tmp_path, data_parallel="-8")
    limit = {"--memory-limit-gib=58G": "'58G' must be a number of GiB"} if command in OF_A_LIMIT else {}
    assert cli.main([command, path, "--device", "Ascend-910B9", *COMMANDS[command], *limit, *numbers]) == 2
    told = capsys.readouterr().err
    for expected in (*numbers.values(), *limit.values(), "did you mean Ascend-910B4", "data_parallel: -8 must be"):
        assert expected in told
    assert cli.main([command, str(STAGES), "--device", DEVICE, *COMMANDS[command], *numbers]) == 2, "also where all else is right"
    told = capsys.readouterr().err
    assert all(expected in told for expected in numbers.values())


def test_a_table_tells_its_options_together(tmp_path: Path, capsys):
    told = refused(capsys, "estimate", table(tmp_path), "--device", "Ascend-910B9", "--memory-limit-gib", "58G")
    assert "did you mean" in told
    assert "'58G' must be a number of GiB above 0; nearest is 58" in told


def searched(plan: Plan, limit: float | str) -> object:
    return perfkit.search_plans(plan, devices=16, memory_limit_bytes=limit)


def balanced(plan: Plan, limit: float | str) -> object:
    efficiency = calibration("default").efficiency(labels_of(PlanColumns.of([plan])))
    return problem_of_plan(plan, efficiency, memory_limit_bytes=limit)


@pytest.mark.parametrize(
    ("limit", "right"),
    [
        ("58G", "nearest is '58GB'"),
        ("0GB", "nearest is '58GB'"),
        (-1, "more than 0; at most 64 GiB"),
        (999 * GIB, "nearest is 64GB"),
    ],
)
@pytest.mark.parametrize("door", [searched, balanced])
def test_a_limit_that_can_be_none_is_refused_in_python(door: Callable[[Plan, float | str], object], limit: float | str, right: str):
    plan = perfkit.read_config(STAGES)
    plan = changed_plan(plan, device=DEVICE)
    with pytest.raises(InputError, match=re.escape(right)):
        door(plan, limit)


@pytest.mark.parametrize(("name", "step"), [("04_memory", "does_it_fit"), ("03_parallel_strategy", "which_strategies_fit")])
def test_a_field_of_a_page_says_what_it_does_not_take(name: str, step: str):
    view = run_page(name, path=CONFIG)[step].view
    for wrong in LIMITS:
        view.set({"limit_gib": wrong})
        view.wait()
        control = next(control for control in view.controls if control["name"] == "limit_gib")
        assert re.search("not changed|is allowed|nearest of", control["note"]), control
        assert repr(wrong) in control["note"] or wrong == "-1"
