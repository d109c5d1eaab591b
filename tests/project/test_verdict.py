"""The verdict on a run: one sentence, four figures that are measured or say why not, and what they stand against."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perfkit.config.dialects import read_config
from perfkit.core import catalog
from perfkit.core.resources import data_folder
from perfkit.core.spec.plan import Plan
from perfkit.core.units import format_ratio
from perfkit.predict.estimate import estimate
from perfkit.project import create_project
from perfkit.project.experiments import ExperimentLog, Measurement
from perfkit.project.verdict import NO_PLAN, verdict
from perfkit.record.load import load

TRACES = data_folder() / "traces"
SAMPLES = sorted(path for path in TRACES.iterdir() if path.is_dir() and path.name != "logs") + sorted(
    (TRACES / "logs").glob("*.log")
)


def plan() -> Plan:
    """A plan that is not that of the sample: it is only scaled."""
    return replace(read_config(data_folder() / "case13b" / "round5.yaml"), hardware=catalog.hardware_named("Ascend-910B2"))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_every_sample_has_a_verdict_of_one_sentence_and_four_figures(path: Path):
    found = verdict(load(path))
    (sentence,) = found.told()
    larger = found.larger_loss_told()
    assert sentence.endswith(".")
    losses = found.diagnosis.ledger.waterfall()
    losses = losses[~losses["cause"].str.startswith("work").to_numpy(dtype=bool)]
    costs = max((one.cost_ns or 0 for one in found.diagnosis.findings), default=0)
    # The largest loss is told: as the first finding, or above the causes.
    assert len(larger) == bool(((losses["ns"] > costs) & (losses["share"] < 1)).any())
    frame = found.to_frame()
    first, *others = frame["figure"]
    assert first in ("step time (mean)", "step time (median)", "step time")
    assert others == ["throughput", "MFU", "peak memory"]
    for figure, _ in found.figures:
        assert (figure.value is None) == (figure.text() == "not measured")
        assert figure.value != 0
    absent = frame[frame["value"] == "not measured"]
    assert (absent["against"] != "").all()


def test_a_run_that_goes_as_predicted_has_the_predicted_rates():
    predicted = estimate(plan())
    found = verdict(load(TRACES / "torch_npu_2rank"), plan())
    step, tokens, mfu, _ = (figure for figure, _ in found.figures)
    assert step.known is not None
    assert tokens.value == pytest.approx(predicted.tokens_per_s_per_device * predicted.step_time_s * 1e9 / step.known)
    assert mfu.value == pytest.approx(predicted.mfu * predicted.step_time_s * 1e9 / step.known)


def test_a_utilization_above_one_is_impossible_and_not_a_rate():
    found = verdict(load(TRACES / "torch_npu_2rank"), plan())
    mfu = found.figures[2][0]
    assert (mfu.state, "impossible" in mfu.text()) == ("impossible", True)


def test_without_a_configuration_rates_say_what_they_need():
    found = verdict(load(TRACES / "torch_npu_2rank"))
    assert [figure.source for figure, _ in found.figures[1:3]] == [NO_PLAN, NO_PLAN]


def test_the_goal_of_the_project_stands_beside_the_figure_that_it_is_of(tmp_path: Path):
    project = create_project(tmp_path / "p", "mine", goal_metric="step_time_ns", goal_op="<=", goal_value=100e6)
    run = load(TRACES / "torch_npu_2rank")
    assert verdict(run, project=project).figures[0][1].startswith("goal 100 ms: missed by ")
    assert verdict(run, project=replace(project, goal_value=1e9)).figures[0][1] == "goal 1.00 s: reached"
    assert verdict(run, project=project).figures[3][1] == ""


def test_without_goal_and_prediction_the_last_kept_round_stands_beside_the_figure(tmp_path: Path):
    project = create_project(tmp_path / "p", "mine")
    log = ExperimentLog(project.folder)
    run = load(TRACES / "torch_npu_2rank")
    assert [against for _, against in verdict(run, project=project).figures] == ["", "", "", ""]
    for value, decision in ((100e6, "keep"), (50e6, "revert")):
        number = log.start(f"{value:g} ns", "the step of another day")
        if number:
            log.predict(number, "tokens_per_s_per_device", 1000.0, method="as before")
        metrics = {"step_time_ns": value, "peak_memory_bytes": 2**30, "tokens_per_s_per_device": 1000.0}
        log.add_run(
            number, [Measurement(metric=name, value=each, source="a test") for name, each in metrics.items()], kind="measured"
        )
        log.record_accuracy(number, "not_checked", note="a test of figures")
        log.decide(number, decision, "to compare with it", confirmation="not checked")
    (step_time, beside), *_, (memory, memory_beside) = verdict(run, project=project).figures
    assert step_time.known is not None
    change = step_time.known / 100e6 - 1
    assert beside == f"round 0 kept 100 ms (+{format_ratio(change)})", "a round that was reverted is none to be measured by"
    assert memory_beside.startswith("round 0 kept 1.00 GiB (") or memory.known is None
    with_goal = replace(project, goal_metric="step_time_ns", goal_op="<=", goal_value=100e6)
    assert verdict(run, project=with_goal).figures[0][1].startswith("goal 100 ms"), "a goal comes first"
    assert verdict(run, plan(), project).figures[0][1].startswith("predicted "), "a prediction comes before a round"
