"""Pages with steps as notebooks: on a recording of the reader's own they leave objects behind that agree with the command line."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from perfkit.config.collect import GRAPH_FRAMEWORKS
from perfkit.core.errors import InputError, PerfkitError
from perfkit.core.resources import data_folder
from perfkit.explain.communication import exposed_told
from perfkit.face.cli import main
from perfkit.face.widgets.page_state import page_state
from perfkit.project import create_project, open_project
from perfkit.project.experiments import ExperimentLog, Measurement
from tests.page_cells import code_cells, run_page, views, with_steps

OWN = Path(__file__).parent / "data" / "traces" / "dlrm_8xV100"


@pytest.fixture(autouse=True)
def _own_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page_state.cache_clear()
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))


def asked(*arguments: str | Path) -> Any:
    """What the command line prints as JSON."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main([*map(str, arguments), "--json"]) == 0
    return json.loads(out.getvalue())


@pytest.mark.parametrize("name", with_steps())
def test_a_page_has_four_to_eight_steps_each_after_its_question(name: str):
    steps = [cell for cell in code_cells(name) if "@widgets.step" in "".join(cell["source"])]
    assert 4 <= len(steps) <= 8


@pytest.mark.parametrize("name", with_steps())
def test_a_step_uses_public_functions_and_is_short(name: str):
    for cell in code_cells(name):
        tree = ast.parse("".join(cell["source"]))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.body[0].lineno < 12, f"{cell['id']}: {node.name}"
            if isinstance(node, ast.ImportFrom):
                assert not any(part.startswith("_") for part in str(node.module).split(".")), node.module
                assert not any(alias.name.startswith("_") for alias in node.names)
            if isinstance(node, ast.Attribute):
                assert not node.attr.startswith("_")


@pytest.mark.parametrize("name", with_steps())
def test_a_page_without_a_recording_says_so_and_comes_back(name: str):
    shown = views(run_page(name))
    picker = shown.get("open_run")
    if picker is None:
        pytest.skip("no recording is chosen on this page")
    path = picker.state["run"]
    picker.set({"run": ""})
    for view in (picker, *shown.values()):
        with contextlib.suppress(PerfkitError):
            view.wait()
        assert view.status["state"] in ("empty", "result")
    assert picker.status["state"] == "empty"
    assert any(view.status["state"] == "empty" and "This needs “" in view.status["text"] for view in shown.values())
    picker.set({"run": path})
    assert picker.wait()


def test_page_00_makes_a_project_starts_its_first_round_and_looks_at_it(tmp_path: Path):
    page = run_page("00_start_here", path=OWN)
    stands, now, goal = (page[name] for name in ("where_the_project_stands", "the_round", "goal_and_limits"))
    assert (stands.view.status["state"], now.view.status["state"]) == ("empty", "empty")
    assert [action["label"] for action in now.view.actions] == []
    goal.set(device="H100 989", goal_value=2300).press("Save to the project")
    assert goal.wait().text.endswith("Everything is saved.")
    project = open_project(tmp_path)
    assert (project.goal_value, project.device_memory_bytes) == (2300.0, 80 * 2**30)
    goal.set(usable_gib=200)
    with pytest.raises(InputError, match="more than the device has"):
        goal.wait()
    with contextlib.suppress(PerfkitError):
        now.wait()
    assert [action["label"] for action in now.view.actions] == ["Start the round"]
    now.set(lever="pp 2", hypothesis="two stages amortise the update").press("Start the round")
    assert now.wait().text.startswith("Round 0 (pp 2) is open. Next")
    assert [action["label"] for action in now.view.actions] == ["Skip the next state", "Abandon the open round"]
    assert stands.wait().text == "1 round, none kept yet."
    now.set(reason="the queue was full for a week").press("Abandon the open round")
    assert now.wait().text.startswith("Round 0 (pp 2) was decided: revert.")
    stands.wait()
    rows = stands.value[0].to_frame()
    assert rows["verdict"].tolist() == [row["verdict"] for row in asked("log", "--folder", str(tmp_path), "show")["rounds"]]


def test_page_01_agrees_with_what_the_command_line_keeps_of_the_log(tmp_path: Path):
    for name in ("project", "other"):
        create_project(tmp_path / name, "made by a test", peak_flops_per_s=376e12)
    own = shutil.copy(data_folder() / "traces" / "logs" / "llama2_13b_8card_worker_0.log", tmp_path)
    folder = str(tmp_path / "project")
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["log", "--folder", folder, "start", "base"]) == 0
        assert main(["log", "--folder", folder, "attach", str(own), "--as", "run"]) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFKIT_PROJECT", str(tmp_path / "other"))
        page = run_page("01_baseline", path=own)
        assert "Saved to round 0" in page["baseline_of_the_project"].press().wait().text
        with pytest.raises(InputError, match="same bytes and figures"):
            page["baseline_of_the_project"].press().wait()
        page["how_it_scales"].set(source="rounds")
        assert page["how_it_scales"].wait().text.startswith("No runs yet")
    rounds = [ExperimentLog(tmp_path / name, read_only=True).show("json")["rounds"][0] for name in ("project", "other")]
    ((by_hand,), (by_page,)) = (row["runs"] for row in rounds)
    kept = [{item["metric"]: item["value"] for item in run["measurements"]} for run in (by_hand, by_page)]
    assert kept[0] == kept[1]
    assert kept[0]["step_time_ns"] == page["baseline"].step_time.value
    told = asked("summary", own)["ranks"][0]["steps"]
    assert page["log"]["duration_ns"].tolist() == [step["duration_ns"] for step in told]
    assert "59 times the median" in " ".join(page["how_long_a_step_is"].set(suggested=False, own=0).wait().notes)


def test_page_11_agrees_with_the_summary():
    page = run_page("11_step_breakdown", path=OWN)
    steps = page["where_the_step_went"].value[1]["Ranks, slowest first"]
    told = {(rank["rank"], step["step"]): step for rank in asked("summary", OWN)["ranks"] for step in rank["steps"]}
    assert len(steps) == 8
    for row in steps.to_dict("records"):
        assert row["duration_ns"] == told[row["rank"], row["step"]]["duration_ns"]
    assert page["slowest"] == max(steps.to_dict("records"), key=lambda row: row["duration_ns"])["rank"]
    kernels = asked("ask", OWN, "kernels", "--rank", str(page["slowest"]))
    assert kernels["rows"][0]["total_ns"] == int(page["run"].kernels(rank=page["slowest"])["total_ns"].iloc[0])


def test_page_12_agrees_with_the_command_line():
    page = run_page("12_operators", path=OWN)
    totals = page["which_take_most"].set(core="all").value[1]["Operators; choose one to ask about it"]
    rows = asked("ask", OWN, "kernels", "--rank", "0")["rows"]
    assert totals.set_index("name")["total_ns"].to_dict().items() <= summed(rows, "name", "total_ns").items()
    answer = page["what_a_faster_one_wins"].value
    assert page["which_take_most"].chosen["name"] == page["operator"] or page["which_take_most"].chosen["name"] == totals["name"][0]
    assert "times faster" in answer[1]


def test_page_10_agrees_with_the_summary_and_remembers_a_recording_of_the_project(tmp_path: Path):
    create_project(tmp_path, "made by a test")
    page = run_page("10_load_run", path=OWN)
    told = asked("summary", OWN)
    answer = page["what_was_recorded"].wait()
    assert f"{told['ranks_found']} ranks" in answer.text
    assert answer.tables["Ranks"].frame["rank"].tolist() == [rank["rank"] for rank in told["ranks"]]
    lost = page["what_could_not_be_read"].value
    assert (lost == "Nothing was dropped.") == (not told["dropped"])
    assert open_project(tmp_path).open_run == OWN
    page["open_run"].choose(data_folder() / "traces" / "torch_npu_2rank").view.wait()
    assert open_project(tmp_path).open_run == OWN, "a sample is not remembered"


RECORDED_WITH = {
    "torch_npu_pp2dp2": "torch-npu",
    "synthetic_ms": "mindspore",
    "mindinsight/run_3": "mindspore",
    "kineto_h100": "pytorch",
    "logs/megatron/meg_gpt2_perf_n16.log": "megatron",
    "logs/mindformers/llama3_1_8b_skip_data.log": "mindformers",
    "msprof_export/alexnet": "mindformers",
}
"""By recording the framework whose lines record more of it; the first one where nothing tells."""


def test_the_lines_of_page_10_are_of_the_framework_that_recorded_what_is_open():
    page = run_page("10_load_run")
    for name, framework in RECORDED_WITH.items():
        page["open_run"].choose(OWN.parent / name).view.wait()
        for step in ("lines_that_record_a_profile", "lines_that_save_the_graphs"):
            assert framework in page[step].wait().text.removesuffix(".").split(), (name, step)
        assert bool(page["lines_that_save_the_graphs"].wait().code) == (framework in GRAPH_FRAMEWORKS)
    page["open_run"].choose("")
    assert RECORDED_WITH["msprof_export/alexnet"] in page["lines_that_record_a_profile"].wait().text


def test_the_lines_of_page_10_are_those_that_were_asked_for():
    page = run_page("10_load_run", path=OWN)
    profile = page["lines_that_record_a_profile"]
    keys = yaml.safe_load(profile.set(framework="mindformers", start=6, stop=8).wait().code[0].text)
    assert (keys["profile"], keys["profile_start_step"], keys["profile_stop_step"]) == (True, 6, 8)
    notes = profile.set(start=1, stop=10).wait().notes
    assert any("profile-start-compile" in note for note in notes)
    assert any("profile-window-long" in note for note in notes)
    with pytest.raises(InputError):
        profile.set(start=7, stop=5).wait()
    dry = page["lines_that_compile_without_devices"].wait().code
    assert len(dry) == 2
    assert "MS_SIMULATION_LEVEL=1" in dry[0].text


def test_page_16_agrees_with_the_summary_and_takes_the_time_of_own_code(tmp_path: Path):
    own = shutil.copytree(data_folder() / "traces" / "mindinsight_feed", tmp_path / "own")
    page = run_page("16_data_feed", path=own)
    feed = page["feed"]
    told = next(rank for rank in asked("summary", own)["ranks"] if rank["rank"] == feed.rank)
    waits = {step["step"]: step["breakdown_ns"]["free/data"] for step in told["steps"]}
    assert feed.intervals.set_index("step")["interval_ns"].to_dict() == waits
    assert "perf_counter_ns" in page["time_your_own_code"].wait().code[0].text
    page["what_slows_the_feed"].set(custom_ms=3.0)
    assert page["time_your_own_code"].wait().text == "Entered: 3 ms a step."


def test_page_13_agrees_with_the_summary():
    page = run_page("13_communication", path=OWN)
    told = {row["rank"]: row for row in asked("summary", OWN)["waiting"]}
    table = page["who_waits_for_whom"].value[1]["Ranks: waiting, and what others waited for them (all steps)"]
    assert {row["rank"]: row["wait_ns"] for row in table.to_dict("records")} == {rank: row["wait_ns"] for rank, row in told.items()}
    assert page["hidden_and_exposed"].value[0] == exposed_told(page["run"])


def summed(rows: list[dict[str, Any]], key: str, amount: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in rows:
        found[row[key]] = found.get(row[key], 0) + row[amount]
    return found


def test_page_17_agrees_with_the_diagnosis_and_a_rank_opens_its_groups():
    page = run_page("17_cluster", path=OWN)
    told = asked("diagnose", OWN)
    named = [rank for found in told["findings"] if found["rule"] == "slow-rank" for rank in found["subject"]["ranks"]]
    assert sorted(page["judged"].slow_ranks) == sorted(named)
    ranks = page["every_rank"].set(metric="step").wait()
    assert "metric" in page_state().values
    (table,) = ranks.tables.values()
    durations = {rank["rank"]: [step["duration_ns"] for step in rank["steps"]] for rank in asked("summary", OWN)["ranks"]}
    assert table.frame.set_index("rank")["mean_of_its_steps_ns"].isin([steps[-1] for steps in durations.values()]).all()
    page["groups_of_the_rank"].view.set({"rank": "3"})
    page["groups_of_the_rank"].wait()
    assert page["every_rank"].chosen["rank"] == 3
    assert "Parallel layout, and the groups of rank 3" in page["groups_of_the_rank"].wait().charts
    with pytest.raises(InputError, match="no project"):
        page["findings_of_the_cluster"].press().wait()


def test_page_23_agrees_with_the_lint_of_the_command_line(tmp_path: Path):
    shutil.copy(data_folder() / "code" / "train_slow.py", tmp_path / "own.py")
    (tmp_path / "broken.py").write_text("def f(:\n")
    page = run_page("23_user_code", path=tmp_path)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main(["lint", str(tmp_path), "--json"])
    told = json.loads(out.getvalue())["problems"]
    assert [problem["rule"] for problem in told] == page["problems"]["rule"].tolist()
    found = page["what_was_found"]
    assert "syntax-error" in found.chosen["rule"], "of broken.py, which comes first"
    assert page["how_to_write_it"].wait().text
    found.set(rule="bprop-keeps-all")
    bad, good = page["how_to_write_it"].wait().code
    assert "used_bprop_inputs" not in bad.text
    assert "used_bprop_inputs = [2]" in good.text
    found.set(level="error")
    assert any("are not shown" in note for note in found.wait().notes)
    page["open_files"].choose(data_folder() / "code" / "train_tuned.py")
    assert found.wait().text == "Nothing was found in 1 file."
    assert page["how_to_write_it"].wait().text.startswith("Nothing was found")


def test_page_18_agrees_with_the_graphs_of_the_command_line(tmp_path: Path):
    for name in ("strategy_mismatch.ir", "silu_mul_not_in_effect.ir"):
        shutil.copy(data_folder() / "ir" / name, tmp_path)
    page = run_page("18_graph_ir", path=tmp_path)
    told = asked("graph", tmp_path)["files"]
    for file, entries in told.items():
        page["open_graph"].view.set({"file": file})
        communication = page["which_communication_is_not_needed"].wait()
        needless = [entry for entry in entries["communication"] if entry["verdict"] != "expected"]
        assert communication.text.startswith("All communication follows") == (not needless)
        (table,) = communication.tables.values()
        assert sorted(table.frame["node"]) == sorted(entry["node"] for entry in entries["communication"])
        recomputed = page["which_recomputation_is_in_effect"].wait().tables.values()
        assert sum(table.frame["in effect"].sum() for table in recomputed) == sum(one["in_effect"] for one in entries["recompute"])
    page["open_graph"].view.set({"file": "strategy_mismatch.ir"})
    page["what_is_around"].set(search="w2.*AllGather", show="communication")
    assert page["which_operators_there_are"].wait().text == "Operators found: 2"


def test_a_row_of_page_18_puts_its_operator_in_the_middle(tmp_path: Path):
    page = run_page("18_graph_ir", path=data_folder() / "ir" / "strategy_mismatch.ir")
    around, rows = page["what_is_around"], page["which_communication_is_not_needed"]
    assert "Operator %56" in around.wait().tables
    rows.view.on_message({"type": "row", "table": "one that is no longer there", "row": 2})
    rows.wait()
    rows.view.on_message({"type": "row", "table": "Communication, avoidable first", "row": 2})
    rows.wait()
    assert "Operator %207" in around.wait().tables
    assert page_state().values["node"] == "%207"
    page["open_graph"].choose("")
    with pytest.raises(PerfkitError, match="needs “"):
        around.wait()


def test_page_31_asks_a_graph_of_the_readers_own_the_same_questions(tmp_path: Path):
    own = shutil.copy(data_folder() / "ir" / "strategy_mismatch.ir", tmp_path / "own.ir")
    page = run_page("31_case_silu_mul", path=own)
    told = asked("graph", own)["files"]["own.ir"]
    pair, check = page["pair"], page["is_it_in_effect"]
    assert (pair.name, len(pair.forward), len(pair.entries)) == ("own.ir", 4, len(told["recompute"]))
    assert page["what_could_come_back"].wait().text.startswith("No: nothing is configured to be computed again.")
    assert check.wait().text == page["pair"].checks()[0].told()
    assert check.wait().text.startswith("\u2717 Are SiLU and Mul tagged")
    assert not check.wait().notes
    assert list(page["the_four_checks"].value["The four checks on the three graphs"])[1:] == list(page["GRAPHS"])
    page["what_could_come_back"].set(variant="silu_mul_not_in_effect.ir")
    check.set(step=3)
    assert page["what_could_come_back"].wait().text.startswith("Only in part: 2 SiLU are computed again, 2 Mul are not.")
    assert "8.00 KiB of 16.0 KiB saved" in check.wait().text
    assert any("tiny network" in note for note in check.wait().notes), "a graph of the case is told from the reader's own"
    (code,) = page["the_list_to_write"].wait().code
    assert list(yaml.safe_load(code.text)["recompute_config"]["select_recompute"]) == list(
        page["what_could_come_back"].value[0].patterns
    )
    assert page_state().values["step"] == "3"


def test_page_20_agrees_with_the_diagnosis_and_a_dismissal_shows_at_once(tmp_path: Path):
    create_project(tmp_path, "made by a test")
    log = ExperimentLog(tmp_path)
    log.set_project("made by a test")
    log.start("Baseline", "what the training does before anything is changed")
    page = run_page("20_findings", path=OWN)
    told, listed = asked("diagnose", OWN), page["what_to_change_first"]
    (table,) = listed.wait().tables.values()
    keys = ["cost_ns", "share_of_step", "title"]
    assert json.loads(table.frame[keys].to_json(orient="records")) == [{key: one[key] for key in keys} for one in told["findings"]]
    assert page["findings"].ledger.waterfall().to_dict("records") == told["waterfall"]
    last = table.frame["finding"].iloc[-1]
    listed.set(finding=last)
    assert told["findings"][-1]["title"] in page["what_shows_it"].wait().text
    answer = page["answer_to_the_finding"].set(status="dismissed")
    with pytest.raises(InputError, match="say why"):
        answer.press().wait()
    said = f"Noted: {told['findings'][-1]['rule']} is dismissed."
    assert answer.set(reason="the disk is shared with others").press().wait().text == said
    assert len(listed.wait().tables.popitem()[1].frame) == len(told["findings"]) - 1, "a step that follows the log runs again"
    assert "because the disk is shared with others" in " ".join(listed.wait().notes)
    assert answer.value == said, "what a step has written itself does not take its answer away"
    assert page["findings_of_the_round"].press().wait().text.startswith(f"Saved to round 0: {len(told['findings'])} finding")


def test_page_21_agrees_with_the_comparison_and_the_round_is_decided_beside_it(tmp_path: Path):
    create_project(tmp_path, "made by a test")
    log = ExperimentLog(tmp_path)
    log.set_project("made by a test")
    log.start("other tensor parallel size", "fewer exposed collectives in every layer")
    own = [shutil.copy(data_folder() / "case13b" / f"round{number}.yaml", tmp_path) for number in (1, 5)]
    page = run_page("21_compare", old_path=own[0], path=own[1])
    told, found = asked("compare", *own, "--device", "Ascend-910B2"), page["comparison"].to_json()
    assert {key: found[key] for key in ("total", "parts", "config", "sentences")} == {
        key: told[key] for key in ("total", "parts", "config", "sentences")
    }
    assert page["what_changed"].wait().text.partition(": ")[2].startswith(told["sentences"][0])
    assert page_state().values.get("a", own[0]) == str(own[0])
    with pytest.raises(InputError, match="needs a run and its plan"):
        page["prediction_fitted_to_the_run"].press().wait()
    assert "Saved to round 0" in page["comparison_of_the_round"].press().wait().text
    event = log.events()[-1]
    assert (event["action"], event["detail"]["kind"]) == ("compare", "plans")
    waits = page["what_the_round_has_to_show"]
    assert waits.wait().text.startswith("Round 0 (other tensor parallel size) waits for its decision")
    decision = page["decision_of_the_round"]
    with pytest.raises(InputError, match="choose a verdict"):
        decision.press().wait()
    decision.set(verdict="revert", reason="the collectives took longer than before")
    assert [action["name"] for action in views(page)["decision_of_the_round"].actions] == ["run"]
    assert decision.press().wait().text == "Round 0 is decided: revert."
    assert views(page)["decision_of_the_round"].actions == [], "what is decided is not decided again"
    assert waits.wait().text.startswith("All 1 rounds are decided"), "a step that follows the log runs again"


def test_page_22_agrees_with_the_comparison_and_never_keeps_a_sample(tmp_path: Path):
    create_project(tmp_path, "made by a test")
    log = ExperimentLog(tmp_path)
    log.set_project("made by a test")
    log.start("other tensor parallel size", "fewer exposed collectives in every layer")
    log.add_run(0, [Measurement(metric="step_time_ns", value=1e9, source="log")], kind="measured")
    own = {name: shutil.copy(data_folder() / "losses" / f"{name}.csv", tmp_path) for name in ("reference", "diverged")}
    page = run_page("22_accuracy_alignment", path=own["diverged"], reference_path=own["reference"])
    told = asked("compare", own["reference"], own["diverged"])
    found = page["found"].to_json()
    assert {key: told[key] for key in found} == found
    assert page["is_it_the_same"].wait().text.startswith("Diverged: the losses part from step 120")
    keep = page["accuracy_of_the_round"]
    assert "stored as fail" in keep.press().wait().text
    row = log.show("json")["rounds"][0]
    assert (row["accuracy"], row["accuracy_checks"][0]["steps"]) == ("fail", 300)
    page["open_reference"].choose(data_folder() / "losses" / "reference.csv")
    page["is_it_the_same"].wait()
    with pytest.raises(InputError, match="sample"):
        keep.press().wait()
    page["open_reference"].choose("")
    with pytest.raises(PerfkitError, match="needs “"):
        page["is_it_the_same"].wait()


def test_page_14_picks_a_range_that_the_steps_below_follow():
    page = run_page("14_timeline", path=OWN)
    lanes, run = page["lanes"], page["run"]
    timeline = lanes.wait()
    with pytest.raises(PerfkitError, match="Click a slice"):
        _ = lanes.chosen
    with pytest.raises(PerfkitError, match="Click a slice"):
        page["what_was_computed"].wait()
    step = run.steps().iloc[0]
    rank, start_ns = int(step["rank"]), int(step["start_ns"]) + run.clock.get(int(step["rank"]), 0)
    lanes.select(rank, start_ns=start_ns, end_ns=start_ns + int(step["duration_ns"]))
    parts = page["what_the_range_is_made_of"].wait().tables["The range, by rank"].frame.iloc[0]
    told = next(one for one in asked("summary", OWN)["ranks"] if one["rank"] == rank)["steps"][0]
    assert parts[["computing_ns", "exposed_communication_ns", "free_ns"]].sum() == told["duration_ns"]
    assert page["what_the_range_is_made_of"].wait().text.endswith(f"of rank {rank}.")
    unit = next(unit for unit in timeline.units if unit.process == "device")
    start = timeline.offset(unit.lanes[0].start_ns)
    lanes.on_message({"type": "walk", "mode": "lane", "direction": 1, "unit": unit.id, "lane": 0, "start": start - 1, "name": ""})
    lanes.on_message({"type": "detail", "unit": unit.id, "lane": 0, "start": start, "end": start + 10, "count": 1, "busy": 10})
    lanes.wait()
    assert (lanes.chosen.ranks, lanes.chosen.start_ns) == ((unit.rank,), unit.lanes[0].start_ns)
    assert lanes.chosen.name
    device = [unit.id for unit in timeline.units if unit.process == "device"]
    lanes.on_message({"type": "select", "start": start, "end": start + 1e6, "units": device})
    lanes.wait()
    assert lanes.chosen.ranks == tuple(sorted({timeline.unit(number).rank for number in device}))
    assert lanes.chosen.duration_ns == 1_000_000
    page["open_run"].choose(data_folder() / "traces" / "torch_npu_2rank").view.wait()
    lanes.wait()
    assert timeline.run.name != lanes.wait().run.name
    with pytest.raises(PerfkitError, match="Click a slice"):
        _ = lanes.chosen
