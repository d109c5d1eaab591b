"""Acceptance walks: what a visitor does from door to door, with the words and figures that have to come, computed here by hand."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
import statistics
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perfkit.core.errors import InputError, PerfkitError
from perfkit.core.resources import data_folder
from perfkit.core.spreadsheet import safe_frame
from perfkit.core.units import format_ns
from perfkit.explain.baseline import baseline
from perfkit.explain.compare.sides import open_losses
from perfkit.face.cli import main
from perfkit.face.widgets.header_view import CLASSIC, STATES, standing
from perfkit.face.widgets.page_state import page_state
from perfkit.face.widgets.table import table_content
from perfkit.project import create_project, open_project, save
from perfkit.project.experiments import ExperimentLog, Measurement, artefacts
from perfkit.record.load import load
from tests.page_cells import run_page, views

DATA = data_folder()
LOG = DATA / "traces" / "logs" / "llama2_13b_8card_worker_0.log"
CONFIG = DATA / "case13b" / "round1.yaml"
GOAL = "tokens_per_s_per_device"
REASON = "faster by more than the noise"
STEPS_MS = (103_328, 1752, 1754, 1756, 1758)
"""What the log prints, step by step; the first one compiles."""


@pytest.fixture(autouse=True)
def _own_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page_state.cache_clear()
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path / "project"))
    return create_project(tmp_path / "project", "walked", goal_value=2200.0, peak_flops_per_s=376e12)


@pytest.fixture
def log(project: Any) -> ExperimentLog:
    log = ExperimentLog(project.folder, author="Ada")
    log.set_project("walked", goal_metric=GOAL, goal_value=2200.0, peak_flops_per_s=376e12)
    return log


def figure(value: float, metric: str = GOAL) -> Measurement:
    return Measurement(metric=metric, value=value, source="log.txt")


def kept(log: ExperimentLog, value: float) -> None:
    """A round from start to decision."""
    number = log.start("one lever", "it should be a little faster")
    if number:
        log.predict(number, GOAL, value, method="by hand")
    log.add_run(number, [figure(value)])
    log.record_accuracy(number, "pass", steps=100)
    log.decide(number, "keep", REASON)


def told(command: Callable[[], int], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    command()
    captured = capsys.readouterr()
    return captured.out + captured.err


def losses(path: Path, change: Callable[[pd.DataFrame], pd.DataFrame] = lambda frame: frame) -> str:
    """A copy of the bundled losses, changed: what is not a sample may be saved."""
    change(pd.read_csv(DATA / "losses" / "reference.csv")).to_csv(path, index=False, na_rep="nan")
    return str(path)


def test_01_a_log_is_read_and_its_figures_are_those_of_the_log():
    page = run_page("01_baseline", path=LOG)
    assert page["baseline"].statistics.median_ns == statistics.median(STEPS_MS[1:]) * 1_000_000
    assert "1.755 s (median of 4, 1 warm-up step left out" in page["how_long_a_step_is"].wait().text


def test_02_without_a_configuration_no_rate_is_shown_and_what_is_missing_is_named():
    figures = run_page("01_baseline", path=LOG)["what_a_device_makes"].value.to_frame().set_index("quantity")
    for name in ("throughput in tokens", "devices"):
        assert not any(character.isdigit() for character in "".join(figures.loc[[name], "value"])), name
    assert figures.loc[["throughput in tokens"], "origin"].str.contains("devices").any()


def test_03_a_configuration_is_chosen_taken_away_and_given_back():
    step = run_page("01_baseline", path=LOG)["what_a_device_makes"]
    without = step.wait().text
    assert "tokens/s/device" not in without
    chosen = step.set(config=str(CONFIG)).wait().text
    assert "tokens/s/device" in chosen
    assert step.set(config="").wait().text == without
    assert step.set(config=str(CONFIG)).wait().text == chosen


def test_04_a_number_field_is_emptied_and_a_wrong_entry_leaves_what_was_there():
    step = run_page("01_baseline", path=LOG)["what_a_device_makes"]
    before = step.set(num_devices=8, global_batch_size=8, seq_length=4096).wait().text
    rate = 8 * 4096 / (1.755 * 8)
    assert f"{rate:,.0f}".replace(",", "\u2009")[:3] in before
    emptied = step.set(num_devices="").wait()
    assert emptied.text != before
    (table,) = emptied.tables.values()
    row = table.frame.set_index("quantity").loc["devices"]
    assert row["value"] == "not known", "an emptied field is empty, not what was in it before"
    assert row["origin"] == "neither the log nor a configuration states it; enter it"
    step.set(num_devices=8).set(num_devices="eight")
    assert step.wait().text == before
    assert "eight" in note(step, "num_devices")
    assert step.set(peak="").wait().text == before
    assert "empty" in note(step, "peak")


def note(step: Any, control: str) -> str:
    return next(drawn["note"] for drawn in step.view.controls if drawn["name"] == control)


def test_05_the_last_change_is_taken_back():
    step = run_page("01_baseline", path=LOG)["what_a_device_makes"]
    before = step.wait().text
    step.view.on_message({"type": "set", "values": {"config": str(CONFIG)}, "seq": 1})
    assert step.wait().text != before
    step.view.on_message({"type": "undo"})
    assert step.wait().text == before


def _tables(view: Any) -> list[tuple[str, Any]]:
    """What a view shows; a button that nobody pressed shows nothing."""
    with suppress(PerfkitError):
        return list(view.wait().tables.items())
    return []


def test_06_page_04_sums_its_table_to_the_peak_that_it_shows():
    shown = views(run_page("04_memory", path=str(CONFIG)))
    tables = {name: table for view in shown.values() for name, table in _tables(view)}
    fit = shown["does_it_fit"].result.wait()[0]
    total = float(fit.estimate.peak.total)
    assert sum(map(float, fit.estimate.peak.parts.values())) == pytest.approx(total)
    parts = next(table for table in tables.values() if {"part", "peak_bytes"} <= set(getattr(table, "frame", table).columns))
    column = next(column for column in table_content("t", parts)["columns"] if column["unit"].endswith("iB"))
    size = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10}[column["unit"]]
    assert sum(value for value in column["values"] if isinstance(value, int | float)) * size == pytest.approx(total, rel=1e-9)


def test_07_a_run_attaches_after_its_prediction_only(log: ExperimentLog):
    kept(log, 2000.0)
    number = log.start("pp 2", "two stages amortise the update")
    with pytest.raises(InputError, match="comes before"):
        log.attach(number, LOG, "run", run=load(LOG))
    assert log.show("json")["rounds"][1]["runs"] == []
    log.predict(number, GOAL, 2250, method="by hand")
    log.attach(number, LOG, "run", run=load(LOG))
    with pytest.raises(InputError, match="before the measurement"):
        log.predict(number, GOAL, 2200, method="afterwards")


def test_08_attaching_a_log_keeps_the_figures_that_page_01_shows(project: Any, tmp_path: Path):
    own = shutil.copy(LOG, tmp_path / "worker_0.log")
    folder = str(project.folder)
    assert main(["log", "--folder", folder, "start", "base"]) == 0
    assert main(["log", "--folder", folder, "attach", str(own), "--as", "run"]) == 0
    (run,) = ExperimentLog(project.folder).show("json")["rounds"][0]["runs"]
    stored = {item["metric"]: item["value"] for item in run["measurements"]}
    shown = run_page("01_baseline", path=own)["baseline"]
    assert stored["step_time_ns"] == shown.step_time.value == 1_755_000_000
    assert stored["mfu"] == pytest.approx(170.421 / 376, rel=1e-4)


def test_08_a_run_is_counted_once_and_gets_what_its_configuration_adds(
    project: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    own, config = shutil.copy(LOG, tmp_path / "worker_0.log"), shutil.copy(DATA / "case13b" / "round0.yaml", tmp_path)
    folder = ["log", "--folder", str(project.folder)]
    main([*folder, "start", "base"])
    lacking = told(lambda: main([*folder, "attach", str(own), "--as", "run"]), capsys)
    assert f"step time 1.755 s; no {GOAL}" in lacking
    assert "same bytes and figures" in told(lambda: main([*folder, "attach", str(own), "--as", "run"]), capsys)
    main([*folder, "attach", str(config), "--as", "config"])
    rate = 16 * 4096 / (1.755 * 8)
    assert f"{round(rate):,} tokens/s/device".replace(",", "\u2009") in told(
        lambda: main([*folder, "attach", str(own), "--as", "run"]), capsys
    )
    (run,) = ExperimentLog(project.folder).show("json")["rounds"][0]["runs"]
    stored = {item["metric"]: item["value"] for item in run["measurements"]}
    page = run_page("01_baseline", path=own)["what_a_device_makes"]
    figures = page.set(config=str(config)).wait().tables["Figures and where they come from"].frame
    assert f"{round(rate):,} tokens/s/device".replace(",", "\u2009") in set(figures["value"])
    assert stored[GOAL] == pytest.approx(rate)
    assert [path.name for path in sorted((project.folder / "rounds" / "00").iterdir())] == ["config.yaml", "worker_0.log"]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_09_a_training_that_is_nan_from_step_51_is_not_kept(project: Any, log: ExperimentLog, tmp_path: Path, bad: float):
    log.start("base", "as it is")
    log.add_run(0, [figure(2000.0)])
    reference = losses(tmp_path / "a.csv")
    candidate = losses(tmp_path / "b.csv", lambda frame: frame.assign(loss=frame["loss"].where(frame["step"] < 51, bad)))
    page = run_page("22_accuracy_alignment", path=candidate, reference_path=reference)
    answer = page["is_it_the_same"].wait()
    assert answer.text.startswith("Diverged")
    assert "51" in answer.text
    assert "stored as fail" in page["accuracy_of_the_round"].press().wait().text
    with pytest.raises(InputError, match="accuracy"):
        log.decide(0, "keep", REASON, confirmation="not checked")


def test_10_a_training_of_fewer_steps_is_not_called_aligned(project: Any, tmp_path: Path):
    fewer = losses(tmp_path / "b.csv", lambda frame: frame.head(50))
    page = run_page("22_accuracy_alignment", path=fewer, reference_path=losses(tmp_path / "a.csv"))
    assert page["found"].verdict != "aligned"
    assert "50" in " ".join(page["found"].told())


@pytest.mark.parametrize("column", ["global_batch_size", "gbs", "seq_length"])
def test_10_a_table_that_states_another_batch_is_not_called_aligned(project: Any, tmp_path: Path, column: str):
    sizes = {"global_batch_size": 16, "seq_length": 4096} if column == "seq_length" else {column: 16}
    before = losses(tmp_path / "a.csv", lambda frame: frame.assign(**sizes))
    after = losses(tmp_path / "b.csv", lambda frame: frame.assign(**{**sizes, column: 2 * sizes[column]}))
    assert run_page("22_accuracy_alignment", path=after, reference_path=before)["found"].verdict != "aligned"
    assert run_page("22_accuracy_alignment", path=before, reference_path=before)["found"].verdict == "aligned"


def test_10_a_change_of_the_exact_class_is_equal_bit_for_bit_or_it_is_not_kept(project: Any, log: ExperimentLog, tmp_path: Path):
    log.start("recompute", "as it is")
    log.add_run(0, [figure(2000.0)])
    after = losses(tmp_path / "b.csv", lambda frame: frame.assign(loss=frame["loss"] * (1 + 1e-12)))
    page = run_page("22_accuracy_alignment", path=after, reference_path=losses(tmp_path / "a.csv"))
    assert page["is_it_the_same"].wait().text.startswith("Aligned")
    answer = page["is_it_the_same"].set(change_class="exact").wait().text
    assert not answer.startswith("Aligned")
    assert "step 1 is not equal bit for bit" in answer
    page["accuracy_of_the_round"].press().wait()
    with pytest.raises(InputError, match="accuracy"):
        log.decide(0, "keep", REASON, confirmation="not checked")


def test_10_a_table_without_rows_says_so(project: Any, tmp_path: Path):
    empty = losses(tmp_path / "b.csv", lambda frame: frame.head(0))
    with pytest.raises(InputError, match=r"has a header \(step, loss, grad_norm\) and no row under it"):
        open_losses(empty)


def test_11_an_export_names_no_place_of_the_machine_and_says_what_is_gone(
    log: ExperimentLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(artefacts, "LARGEST_COPY_BYTES", 100)
    outside = Path(shutil.copy(LOG, tmp_path / "elsewhere.log"))
    number = log.start("x", "as it is")
    log.attach(number, outside, "log")
    outside.unlink()
    for suffix in ("md", "html"):
        text = log.export(tmp_path / f"out.{suffix}", suffix).read_text(encoding="utf-8")
        assert str(tmp_path) not in text
        assert str(Path.home()) not in text
        assert "elsewhere.log" in text
        assert "not found, last seen on" in text


def test_12_three_small_gains_advise_to_stop_and_a_large_one_does_not(log: ExperimentLog):
    for value in (2000.0, 2010.0, 2020.0):
        kept(log, value)
        assert log.show("json")["stop_advice"] is None
    kept(log, 2030.0)
    advice = log.show("json")["stop_advice"]
    gains = [2010 / 2000 - 1, 2020 / 2010 - 1, 2030 / 2020 - 1]
    assert all(f"+{100 * gain:.3f} %" in advice for gain in gains)
    kept(log, 2100.0)
    assert log.show("json")["stop_advice"] is None


def test_13_the_goal_says_what_is_missing_until_it_is_met(log: ExperimentLog, capsys: pytest.CaptureFixture[str]):
    kept(log, 2189.0)
    shown = told(lambda: main(["log", "--folder", str(log.folder), "show"]), capsys)
    assert "not reached yet (11.00 tokens/s/device missing)" in shown
    kept(log, 2230.0)
    shown = told(lambda: main(["log", "--folder", str(log.folder), "show"]), capsys)
    assert ", reached." in shown
    assert "missing" not in shown


def test_14_the_classic_order_leads_through_the_same_states(project: Any, log: ExperimentLog):
    log.start("base", "as it is")
    before = standing(open_project(project.folder)).missing
    save(replace(open_project(project.folder), cycle_order="classic"))
    again = open_project(project.folder)
    assert again.cycle_order == "classic"
    assert standing(again).missing == before
    assert sorted(CLASSIC) == sorted(STATES)
    assert CLASSIC.index("measure") < CLASSIC.index("memory") < CLASSIC.index("strategy")


def test_15_compare_says_what_is_a_mean_and_that_it_judges_the_medians(capsys: pytest.CaptureFixture[str]):
    pair = [str(DATA / "traces" / name) for name in ("torch_npu_2rank", "kineto_resnet")]
    document = json.loads(told(lambda: main(["compare", *pair, "--json"]), capsys))
    shown = told(lambda: main(["compare", *pair]), capsys)
    medians = [document["samples"][side]["median_ns"] for side in ("a", "b")]
    assert document["total"]["a"] == pytest.approx(sum(part["a"] for part in document["parts"]))
    assert "the mean step is 115 ms shorter" in shown
    assert f"by the medians, {format_ns(medians[0], 4)} and {format_ns(medians[1], 4)}" in shown
    assert "Parts of the mean step" in shown


@pytest.mark.parametrize("cell", ["=cmd|'/c calc'!A1", "+1+1", "-2+3", "@SUM(A1)"])
def test_16_what_a_spreadsheet_would_run_is_quoted_in_every_table(cell: str):
    saved = safe_frame(pd.DataFrame({"name": [cell], "total_ns": [-5]})).to_csv(index=False)
    ((name, amount),) = list(csv.reader(io.StringIO(saved)))[1:]
    assert (name, amount) == (f"'{cell}", "-5")


def test_17_a_log_that_is_still_written_gives_what_is_complete(tmp_path: Path):
    whole = LOG.read_bytes()
    cut = whole.rindex(b"per_step_time: 1758ms")
    growing = tmp_path / "growing.log"
    growing.write_bytes(whole[: cut + len("per_step_time: 17")])
    assert baseline(load(growing)).statistics.median_ns == statistics.median(STEPS_MS[1:4]) * 1_000_000
    growing.write_bytes(whole)
    assert baseline(load(growing)).statistics.median_ns == 1_755_000_000


def test_18_a_rank_that_is_recorded_twice_is_read_once_and_said(tmp_path: Path):
    one = DATA / "traces" / "torch_npu_2rank"
    both = tmp_path / "both"
    for name in ("first", "second"):
        shutil.copytree(one, both / name)
    alone = load(one)
    run = load(both)
    assert len(run.ranks) == len(alone.ranks)
    assert run.dropped or run.notes
    assert int(run.frame("steps")["duration_ns"].sum()) == int(alone.frame("steps")["duration_ns"].sum())


def test_19_the_goal_of_the_project_file_is_that_of_its_log(project: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = ["--folder", str(project.folder)]
    main(["log", *folder, "start", "pp 2", "--hypothesis", "two stages amortise the update"])
    main(["log", *folder, "predict", GOAL, "2250", "--low", "2150", "--high", "2350", "--method", "by hand"])
    main(["log", *folder, "measure", GOAL, "2189", "--source", "log.txt"])
    main(["log", *folder, "accuracy", "not_checked", "--note", "no reference"])
    with pytest.raises(InputError, match="not checked"):
        ExperimentLog(project.folder).decide(0, "keep", REASON)
    main(["log", *folder, "decide", "keep", "--reason", REASON, "--confirm", "not checked"])
    shown = told(lambda: main(["log", *folder, "show"]), capsys)
    assert "walked" in shown
    assert "not reached yet (11.00 tokens/s/device missing)" in shown
    document = ExperimentLog(project.folder).show("json")
    assert document["goal_met"] is False
    assert document["missing_to_goal"] == 2200.0 - 2189.0
    assert document["rounds"][0]["error_ratio"] == pytest.approx(2250 / 2189 - 1)
    assert "+2.79 %" in ExperimentLog(project.folder).export(tmp_path / "log.md", "md").read_text()
