"""Pages on plans as notebooks: on a configuration of the reader's own they leave the numbers that the command line gives."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perfkit.core.errors import InputError
from perfkit.core.params import count_params
from perfkit.core.units import GIB, NS_PER_S, format_bytes, format_ns
from perfkit.face.cli import main
from perfkit.face.report.notebook import run_notebook
from perfkit.face.widgets.page_state import page_state
from perfkit.face.widgets.status import NothingYet
from perfkit.predict.changes import AS_PLANNED
from perfkit.predict.plans.balance.laid_out import AS_CONFIGURED, FASTEST
from perfkit.project import create_project, open_project, save
from perfkit.project.experiments import ExperimentLog
from perfkit.project.sample import demo
from tests.page_cells import code_cells, run_page, views, with_steps

CONFIGS = Path(__file__).parent / "data" / "configs"
ROUND_4 = Path(__file__).parents[1] / "data" / "case13b" / "round4.yaml"
CASES = Path(__file__).parents[1] / "data" / "plans"
OWN = [
    CONFIGS / "mindformers" / "v1.7.0" / "configs" / "qwen3" / "pretrain_qwen3_32b_4k.yaml",
    CONFIGS / "mindformers" / "v1.5.0" / "research" / "llama3_1" / "llama3_1_70b" / "finetune_llama3_1_70b.yaml",
    CONFIGS / "torchtitan" / "deepseek_v3_671b.toml",
]


@pytest.fixture(autouse=True)
def _own_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page_state.cache_clear()
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))


def predicted(path: Path, device: str, *more: str) -> dict[str, Any]:
    """What `perfkit estimate` says of a configuration."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["estimate", str(path), "--device", device, *more, "--json"]) in (0, 1)
    return json.loads(out.getvalue())


SOLVED_S = 300
"""Enough to prove every answer that is compared: two that the clock ended may differ."""


def balanced_by_command(path: Path, *more: str) -> dict[str, Any]:
    """What `perfkit balance` says of a configuration or case, but for the time it took."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main(["balance", str(path), *more, "--time-limit-s", str(SOLVED_S), "--json"])
    return {**json.loads(out.getvalue()), "seconds": 0}


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_page_04_agrees_with_the_estimate(path: Path):
    page = run_page("04_memory", path=path)
    told = predicted(path, page["plan"].hardware.name)
    memory = {name: amount for name, amount in told["breakdown_bytes"].items() if amount}
    assert page["estimate"].peak.parts == memory
    assert page["fit"].limit_bytes == told["memory_limit_bytes"]
    assert page["fit"].fits == told["fits"]


def test_page_04_changes_what_is_set_and_fills_it_anew_for_another_plan(tmp_path: Path):
    shutil.copy(OWN[0], tmp_path / "own.yaml")
    page = run_page("04_memory", path=tmp_path / "own.yaml")
    fits = page["does_it_fit"]
    first = fits.value[0]
    fits.set(recompute="all layers", pipeline_parallel_size=2 * first.plan.parallel.pipeline_parallel_size)
    assert fits.value[0].plan.recompute.all_layers
    assert fits.value[0].estimate.peak.total != first.estimate.peak.total
    fits.set(limit_gib=30.0)
    assert fits.value[0].limit_bytes == 30 * GIB
    fits.set(device="A100-40GB-SXM")
    assert fits.value[0].limit_bytes == 40 * GIB, "another device brings its own limit"
    page["open_plan"].choose("llama2-7b")
    assert fits.value[0].plan.model.name == "llama2-7b"
    assert fits.value[0].plan.parallel.pipeline_parallel_size == 2
    fits.set(tensor_parallel_size=64)
    with pytest.raises(InputError, match="num_attention_heads"):
        fits.wait()
    with pytest.raises(NothingYet, match="Does it fit"):
        page["what_stays"].wait()


def test_page_04_opens_against_the_limit_of_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERFKIT_PROJECT", str(demo(tmp_path / "demo").folder))
    assert run_page("04_memory")["fit"].limit_bytes == pytest.approx(57.2 * GIB, rel=1e-6), "of its open configuration"
    assert run_page("04_memory", path="llama2-7b")["fit"].limit_bytes == pytest.approx(58 * GIB, rel=1e-6), "the project's"


def test_page_04_writes_its_peak_to_the_open_round(tmp_path: Path):
    project = create_project(tmp_path, "made by a test")
    keep = run_page("04_memory", path="llama2-7b")["the_peak_of_the_round"]
    with pytest.raises(InputError, match="no round is open"):
        keep.press().wait()
    number = ExperimentLog(tmp_path).start("a first round")
    save(replace(open_project(project.folder), open_round=number))
    assert keep.press().value.startswith(f"Round {number} now predicts peak memory bytes")


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_page_02_agrees_with_the_estimate(path: Path):
    page = run_page("02_model_cost", path=path)
    found = page["predicted"]
    told = predicted(path, "Ascend-910B2")
    assert json.loads(json.dumps(found.to_dict())) == told
    assert found.to_frame()["duration_ns"].sum() == pytest.approx(told["step_time_s"] * 1e9)
    assert page["what_a_token_costs"].value[0].parameters.total == count_params(page["model"]).total


def test_page_02_follows_its_sizes_and_asks_the_plan_above():
    page = run_page("02_model_cost", path="llama2-13b")
    costs = page["what_a_token_costs"]
    costs.set(num_layers=20)
    assert costs.value[0].model.num_layers == 20
    assert page["which_mfu_is_that"].wait().text.startswith("At 2\u2009562 tokens/s/device MFU is 30.04 %")
    page["open_plan"].choose("llama2-70b")
    assert (costs.value[0].model.num_layers, costs.value[0].model.num_key_value_heads) == (80, 8)
    step = page["how_long_a_step"]
    before = step.value[0].step_time_s
    step.set(recompute="all layers")
    assert step.value[0].step_time_s > before
    assert page["what_matters_most"].wait().text.startswith("What matters most is the peak of bfloat16")
    step.set(tensor_parallel_size=1024, pipeline_parallel_size=1024)
    with pytest.raises(InputError) as error:
        step.wait()
    assert len(error.value.problems) >= 2


@pytest.mark.parametrize("name", ["02_model_cost", "04_memory"])
def test_no_figure_of_the_sample_project_stands_beside_a_configuration_of_one_s_own(name: str, tmp_path: Path, monkeypatch):
    demo(tmp_path / "demo")
    filled = []
    for project in ("demo", "none"):
        monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path / project))
        objects = run_page(name, path=OWN[2])
        for view in views(objects).values():
            with contextlib.suppress(NothingYet):
                view.result.wait()
        filled.append({name: dict(view.state) for name, view in views(objects).items()})
    assert filled[0] == filled[1]


def test_page_02_has_no_measured_speed_of_another_configuration_and_no_peak_of_another_device(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("PERFKIT_PROJECT", str(demo(tmp_path / "demo").folder))
    page = run_page("02_model_cost", path=OWN[0])
    utilization = page["which_mfu_is_that"]
    assert utilization.wait().text.startswith("Nobody measured this configuration")
    page["open_plan"].choose(tmp_path / "demo" / "rounds" / "03" / "config.yaml")
    assert utilization.wait().text.startswith("At 2\u2009210 tokens/s/device MFU is 51.24 %")
    utilization.set(device="A100-80GB-SXM")
    assert utilization.wait().text.endswith("of 312 TFLOP/s.")


def test_page_02_locks_its_prediction_and_its_convention(tmp_path: Path):
    create_project(tmp_path, "made by a test")
    page = run_page("02_model_cost", path="llama2-7b")
    lock = page["what_the_round_predicts"]
    with pytest.raises(InputError, match="no round is open"):
        lock.press().wait()
    number = ExperimentLog(tmp_path).start("a first round")
    expected = page["predicted"].tokens_per_s_per_device
    assert lock.press().value[0].startswith(f"Round {number} now predicts")
    (kept,) = ExperimentLog(tmp_path).show("json")["rounds"][-1]["predictions"]
    assert kept["value"] == pytest.approx(expected, rel=1e-3)
    with pytest.raises(InputError) as error:
        lock.set(value=5.0, method=" ").press().wait()
    assert len(error.value.problems) == 2
    page["what_a_token_costs"].set(attention="causal", head=False)
    page["which_mfu_is_that"].set(peak=313.0)
    assert "causal attention without head, of 313 TFLOP/s" in page["how_the_project_counts"].press().value
    project = open_project(tmp_path)
    assert (project.attention, project.count_head, project.peak_flops_per_s) == ("causal", False, 313e12)
    assert run_page("02_model_cost", path="llama2-7b")["attention"].value == "causal"


@pytest.mark.parametrize("path", OWN[:2], ids=lambda path: path.stem)
def test_page_05_agrees_with_the_estimate_and_writes_its_choice(path: Path):
    page = run_page("05_recompute", path=path)
    choice = page["what_the_choice_does"].set(choice=AS_PLANNED)
    told = predicted(path, "Ascend-910B2")
    assert choice.value[0].estimate.to_dict()["step_time_s"] == told["step_time_s"]
    assert choice.value[0].estimate.peak_memory_bytes == told["peak_memory_bytes"]
    assert "nothing changes" in page["the_choice_as_configuration"].wait().code[0].text
    choice.set(choice="all layers")
    assert choice.value[0].estimate.step_time_s > page["predicted"].step_time_s * 0.9
    assert page["the_choice_as_configuration"].wait().code[0].language == "diff"


def test_page_03_agrees_with_the_search_of_the_command(tmp_path: Path):
    path = ROUND_4
    page = run_page("03_parallel_strategy", path=path)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["plan", str(path), "--device", "Ascend-910B2", "--json"]) == 0
    told = json.loads(out.getvalue())
    found = page["which_strategies_fit"].value[0]
    assert {**json.loads(json.dumps(found.to_dict())), "seconds": 0} == {**told, "seconds": 0}
    assert page["predicted"].step_time_s == told["plans"][0]["estimate"]["step_time_s"]
    assert len(page["candidates"]) == told["feasible"]
    compared = page["the_plans_compared"]
    for row in (3, 2):
        compared.wait()
        compared.view.on_message({"type": "row", "table": next(reversed(compared.wait().tables)), "row": row})
    assert [one.estimate.step_time_s for one in compared.value[0].plans] == [
        told["plans"][row]["estimate"]["step_time_s"] for row in (2, 3)
    ]
    compared.set(own=True, tp=2, pp=2)
    assert compared.value[0].plans[-1].name.startswith("3 by hand: data 4 × tensor 2 × pipeline 2")
    page["which_strategies_fit"].set(limit_gib=40.0)
    assert page["which_strategies_fit"].value[0].feasible < told["feasible"]
    assert [one["plan"] for one in compared.chosen], "what was chosen stays chosen"
    page["which_strategies_fit"].set(devices=97)
    with pytest.raises(InputError) as raised:
        page["which_strategies_fit"].wait()
    assert len(raised.value.problems) >= 3


def test_page_03_writes_its_first_plan_in_every_dialect_and_keeps_it_in_the_round(tmp_path: Path):
    create_project(tmp_path, "made by a test")
    page = run_page("03_parallel_strategy", path="llama2-7b")
    written = page["the_plan_as_configuration"]
    for dialect, mark in (
        ("megatron", "--pipeline-model-parallel-size"),
        ("perfkit", "[parallel]"),
        ("mindformers", "data_parallel"),
    ):
        assert mark in written.set(dialect=dialect).wait().code[0].text
    saved = page["the_plan_of_the_round"].press().value
    assert saved.startswith("Saved to round 0 of made by a test: 1 plan: data ")
    (round_0,) = ExperimentLog(tmp_path).show("json")["rounds"]
    assert round_0["prediction"] == pytest.approx(page["predicted"].tokens_per_s_per_device)
    assert round_0["configs"]


def test_page_06_agrees_with_the_balance_of_the_command(tmp_path: Path):
    case = shutil.copy(CASES / "dense_moe_4_stages.json", tmp_path / "own.json")
    page = run_page("06_pipeline_balance", path=case)
    told = balanced_by_command(case)
    best = page["the_best_layout"].set(time_limit_s=SOLVED_S).press()
    assert {**json.loads(json.dumps(best.value[0].to_dict())), "seconds": 0} == told
    assert [one.title for one in best.wait().code] == ["MindFormers", "Megatron"]
    drawn = page["what_the_pipeline_does"]
    assert page["schedule"].makespan_ns == drawn.value[1].even_ns
    moves = page["what_moving_one_layer_changes"]
    change_ns = moves.wait().tables["What moving one layer changes (choose a row to do it)"].frame["change_ns"].iloc[0]
    moves.view.on_message({"type": "row", "table": next(iter(moves.wait().tables)), "row": 0})
    assert drawn.value[1].schedule.makespan_ns == page["schedule"].makespan_ns + change_ns
    drawn.set(num_stages=2)
    assert page["sizes"]["layers"].value == "14 14", "another number of stages begins with its even split"
    drawn.set(num_chunks=2)
    assert drawn.value[1].problem.schedule == "vpp"
    with pytest.raises(NothingYet):  # the best layout is that of other sizes
        best.wait()
    drawn.set(layers="1 2")
    with pytest.raises(InputError, match="rows of"):
        drawn.wait()


@pytest.mark.parametrize("path", [ROUND_4, OWN[1]], ids=lambda path: path.stem)
def test_page_06_balances_a_configuration_as_the_command_does(path: Path):
    page = run_page("06_pipeline_balance", path=path)
    told = balanced_by_command(path, "--device", "Ascend-910B2")
    best = page["the_best_layout"].set(time_limit_s=SOLVED_S).press()
    found = {**json.loads(json.dumps(best.value[0].to_dict())), "seconds": 0}
    assert found == {name: value for name, value in told.items() if name in found}
    assert found["memory_limit_bytes"] == page["problem"].memory_limit_bytes is not None
    assert best.wait().code[-1].text == told["config"], "the whole file that the command writes with --out"
    assert best.wait().code[-1].folded
    stages = next(frame for frame in best.wait().tables.values()).frame
    assert stages["memory_bytes"].tolist() == told["peak_bytes"], "what is drawn is what was found"
    own = format_ns(predicted(path, "Ascend-910B2")["step_time_s"] * NS_PER_S, 4)
    assert best.value[1].endswith(f"As it is configured it takes {own}.")
    opened, estimated = page["what_the_pipeline_does"].value[1], page["how_long_a_step"].value[0]
    assert opened.step_ns == pytest.approx(estimated.step_time_s * NS_PER_S, rel=1e-6), "a page says one step of a plan"
    assert max(opened.peak_bytes) == pytest.approx(estimated.peak_memory_bytes)
    fastest = page["what_the_pipeline_does"].set(recompute=FASTEST).value[1]
    assert fastest.step_ns <= opened.step_ns
    page["what_the_pipeline_does"].set(recompute=AS_CONFIGURED)
    drawn = page["what_the_pipeline_does"].set(layers="; ".join(" ".join(map(str, row)) for row in told["layers"])).value[1]
    assert drawn.step_ns >= told["makespan_ns"]
    assert page["open_plan"].path == str(path), "the estimate below is that of the same configuration"
    page["what_the_pipeline_does"].set(limit_gib=30.0)
    limited = balanced_by_command(path, "--device", "Ascend-910B2", "--memory-limit-gib", "30")
    best = page["the_best_layout"].press()
    assert [one.text for one in best.wait().code][2:] == ([limited["config"]] if "config" in limited else [])
    assert best.value[0].makespan_ns == limited.get("makespan_ns")
    assert best.value[0].smallest_feasible_limit_mib == limited.get("smallest_feasible_limit_mib")


def test_page_06_follows_the_configuration_that_the_project_has_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    project = demo(tmp_path / "demo")
    monkeypatch.setenv("PERFKIT_PROJECT", str(project.folder))
    page = run_page("06_pipeline_balance")
    assert page["open_case"].path == str(project.open_config)
    assert page["problem"].memory_limit_bytes == pytest.approx(57.2 * GIB, rel=1e-6), "of its open configuration"
    drawn = page["what_the_pipeline_does"]
    drawn.set(num_stages=4)
    assert page["sizes"]["layers"].value == "10 10 10 10"
    four = drawn.value[1]
    assert four.pipeline.plan.parallel.pipeline_parallel_size == 4, "other stages are those of another plan"
    assert len(four.peak_bytes) == 4
    drawn.set(num_microbatches=64)
    assert drawn.value[1].pipeline.plan.num_micro_batches == 64


def test_page_06_says_what_a_file_lacks(tmp_path: Path):
    with pytest.raises(InputError, match="there is only one stage"):
        run_page("06_pipeline_balance", path=ROUND_4.parent / "round0.yaml")
    page = run_page("06_pipeline_balance", path=ROUND_4)
    for path, missing in (
        (ROUND_4.parent / "round0.yaml", "there is only one stage; balance needs at least two"),
        (CASES / "schedules_4_stages.json", "perfkit.plans.plan/1"),
        (CASES / "README.md", "in no configuration dialect that perfkit reads"),
        (tmp_path / "gone.yaml", "gone.yaml"),
    ):
        page["open_case"].choose(path)
        with pytest.raises(InputError, match=missing):
            page["open_case"].source.wait()
    assert page["open_case"].choose(ROUND_4).value.plan.hardware.name == "Ascend-910B2"
    page["open_case"].view.set({"device": "A100-40GB-SXM"})
    assert page["open_case"].value.plan.hardware.name == "A100-40GB-SXM"


def test_page_06_stops_a_solve_with_its_gap():
    page = run_page("06_pipeline_balance", path=CASES / "gpt_175b_16_stages_3_chunks.json")
    solve = page["the_best_layout"]
    begun = threading.Event()
    solve.view.observe(
        lambda change: change["new"].get("state") == "loading" and "gap" in str(change["new"]) and begun.set(), "status"
    )
    solve.press()
    assert begun.wait(120)
    solve.view.on_message({"type": "cancel"})
    assert solve.value[0].status == "time_limit"
    assert "leaves a gap of" in solve.wait().text


@pytest.mark.slow
@pytest.mark.parametrize("name", with_steps())
def test_a_page_on_plans_runs_in_a_plain_kernel_on_a_configuration_of_ones_own(name: str, tmp_path: Path):
    pickers = [cell for cell in code_cells(name) if "choose_configuration(path" in "".join(cell["source"])]
    if not pickers:
        pytest.skip("no page on a plan")
    own = shutil.copy(OWN[0], tmp_path / "own.yaml")
    finished = run_notebook(name[:2], {"path": str(own)})
    assert finished.failed == ()
    told = predicted(OWN[0], "Ascend-910B2")
    shown = {"02": format_ns(told["step_time_s"] * NS_PER_S, 4), "04": format_bytes(told["peak_memory_bytes"])}
    assert shown.get(name[:2], "") in finished.page
