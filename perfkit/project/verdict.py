"""Verdict: a recording in one sentence, four figures beside what they are measured against, and what to change first.

Throughput and MFU need the configuration of the run: they are the predicted ones of its plan, scaled by predicted over measured
step time, so that a prediction that is right gives the same numbers. Each figure stands against the project's goal where that
is of it, else against the prediction, memory against its limit; where there is neither, against what the last kept round of the
project measured. What was not measured is said, and never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import pandas as pd

from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.figure import Figure, computed, figure
from perfkit.core.run import Run
from perfkit.core.spec.plan import Plan
from perfkit.core.texts import say, told
from perfkit.core.units import NS_PER_S, format_change
from perfkit.explain.baseline import baseline
from perfkit.explain.diagnose import Diagnosis, Finding, diagnose
from perfkit.explain.diagnose.told import briefly, step_told
from perfkit.explain.memory_use import MODULE
from perfkit.predict.estimate import Estimate, estimate
from perfkit.project import Project
from perfkit.project.experiments import ExperimentLog
from perfkit.project.findings import Answers, left_to_do

NO_PLAN = "needs the configuration of this run"
OTHER_PLAN = "open configuration is another run's"
GOALS = {"step_time_ns": "step time", "tokens_per_s_per_device": "throughput", "mfu": "MFU"}
MEAN = "mean of the judged steps"
MOST = (
    ("reserved_bytes", "most that was reserved on any rank"),
    ("allocated_bytes", "most that was allocated on any rank"),
)
METRICS = {name: metric for metric, name in GOALS.items()} | {"peak memory": "peak_memory_bytes"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """A run with its diagnosis and the four figures, each with what it stands against in words ("" for nothing).

    `left` are the findings that nobody has dismissed or done, by name.
    """

    run: Run
    diagnosis: Diagnosis
    figures: tuple[tuple[Figure, str], ...]
    left: Mapping[str, Finding]

    def told(self) -> tuple[str, ...]:
        """The verdict in one sentence."""
        return (sentence_of(self.diagnosis, list(self.left.values())),)

    def causes_told(self) -> tuple[str, ...]:
        """What most of the mean step of a rank is, and why that is shorter than the step above where it is."""
        causes = self.diagnosis.ledger.waterfall()
        mean_ns = int(causes["ns"].sum())
        most = causes.iloc[int(causes["ns"].to_numpy(dtype="int64").argmax())]
        form = "Of the mean step of a rank, {mean_ns}, the largest part is {ns} ({share}): {what}."
        share, words = float(most["share"]), say(str(most["words"]))
        first = say(form, mean_ns=mean_ns, ns=int(most["ns"]), share=share, what=words)
        notes = self.larger_loss_told() if str(most["cause"]).startswith("work") else ()
        return (first, *step_told(self.diagnosis), *notes)

    def larger_loss_told(self) -> tuple[str, ...]:
        """What takes more of the mean step than any finding costs and is no work, in a sentence; else nothing."""
        losses = self.diagnosis.ledger.waterfall()
        losses = losses[~losses["cause"].str.startswith("work").to_numpy(dtype=bool)]
        if losses.empty:
            return ()
        most = losses.iloc[int(losses["ns"].to_numpy(dtype="int64").argmax())]
        costs = [finding.cost_ns or 0 for finding in self.diagnosis.findings]
        if int(most["ns"]) <= max(costs, default=0) or float(most["share"]) == 1:  # a log has nothing but durations
            return ()
        form = "The largest part that is no work: {what}, {share} of the mean step of a rank."
        return (say(form, what=say(str(most["words"])), share=float(most["share"])),)

    def to_frame(self) -> pd.DataFrame:
        """The figures, one row each: `figure`, `value` and `against`, as text."""
        rows = [
            {
                "figure": told(_with_statistic(found)),
                "value": found.text(),
                "against": told(against or found.source),
            }
            for found, against in self.figures
        ]
        frame = pd.DataFrame(rows, columns=["figure", "value", "against"])
        frame.attrs |= {"look": "tiles", "title": "Figures"}
        return frame


def verdict(
    run: Run,
    plan: Plan | None = None,
    project: Project | None = None,
    *,
    diagnosis: Diagnosis | None = None,
    made: Answers = MappingProxyType({}),
    without_plan: str = NO_PLAN,
) -> Verdict:
    """Judge a run; `plan` is its configuration, `project` states the goal. What a run does not hold is absent, not an error.

    `diagnosis` is the run's, where it is known already, `made` what was made of its findings so far; `without_plan` says what the
    rates lack where there is no plan.
    """
    diagnosis = diagnosis or diagnose(run)
    step, predicted = _step_time(run, diagnosis), _predicted(plan)
    tokens, mfu = _rates(step, predicted, without_plan)
    memory = peak_memory(run)
    limit = predicted.memory_limit if predicted is not None else None
    kept = _last_kept(project)
    expected = (
        (step, predicted.step_time_s * NS_PER_S if predicted else None),
        (tokens, predicted.tokens_per_s_per_device if predicted else None),
        (mfu, predicted.mfu if predicted else None),
    )
    limit_bytes = limit.limit_bytes if limit else project.usable_limit_bytes if project else None
    figures = (
        *((found, _goal(found, project) or _against(found, wanted) or _since(found, kept)) for found, wanted in expected),
        (memory, _limit(memory, limit_bytes) or _since(memory, kept)),
    )
    return Verdict(run=run, diagnosis=diagnosis, figures=figures, left=left_to_do(diagnosis, made))


def sentence_of(diagnosis: Diagnosis, left: Sequence[Finding]) -> str:
    """What a diagnosis says and what to begin with of the findings that are `left`, in one line."""
    ns = diagnosis.step_ns
    step = say("No step was recorded") if ns is None else say("The mean step takes {step_ns}", step_ns=ns)
    if left:
        first = left[0]
        if first.cost_ns is None or ns is None:
            return say("{step}. Look first at this: {title}.", step=step, title=briefly(first))
        return say("{step}. Begin with {share} of it: {title}.", step=step, share=first.cost_ns / ns, title=briefly(first))
    if diagnosis.findings:
        return say("{step}; every finding was dismissed or is done: page 20 lists them.", step=step)
    if not diagnosis.healthy:
        return say("{step}, and no rule could judge this recording: page 10 says what to record.", step=step)
    form = "{step}; rules that judged it and found no problem: {count}. Page 11 shows where it goes."
    if ns is None or not diagnosis.ledger.explained_share:
        form = "{step}; rules that judged it and found no problem: {count}. Page 10 says what to record."
    return say(form, step=step, count=len(diagnosis.healthy))


def _with_statistic(found: Figure) -> str:
    """The name of a figure with the statistic that it is of steps."""
    if found.name != "step time" or found.known is None:
        return found.name
    return "step time (mean)" if found.source == MEAN else "step time (median)"


def peak_memory(run: Run) -> Figure:
    """The most that any rank held: by its memory over time, else as the framework printed it."""
    name = "peak memory"
    if run.has("memory_curve"):
        rows = run.frame("memory_curve", columns=["component", "allocated_bytes", "reserved_bytes"])
        whole = rows[~rows["component"].astype(str).str.startswith(MODULE)]
        for column, words in MOST:
            if whole[column].notna().any():
                return figure(name, float(whole[column].max()), "bytes", "measured", say(words))
    if run.has("memory_reports"):
        peaks = run.frame("memory_reports")["used_peak_bytes"].dropna()
        if len(peaks):
            return figure(name, float(peaks.max()), "bytes", "reported", "printed by the framework")
    return figure(name, None, "bytes", "absent", "memory was not recorded")


def _step_time(run: Run, diagnosis: Diagnosis) -> Figure:
    if diagnosis.step_ns is not None:
        return figure("step time", diagnosis.step_ns, "ns", "measured", MEAN)
    try:
        return baseline(run).step_time
    except NotMeasuredError as error:
        return figure("step time", None, "ns", "absent", error.missing)


def _predicted(plan: Plan | None) -> Estimate | None:
    """What is predicted of a plan; None without one, or where it names no device."""
    try:
        return None if plan is None else estimate(plan)
    except InputError:
        return None


def _rates(step: Figure, predicted: Estimate | None, without_plan: str) -> tuple[Figure, Figure]:
    if predicted is None:
        missing = (("throughput", "tokens/s per device"), ("MFU", "ratio"))
        tokens, mfu = (figure(name, None, unit, "absent", without_plan) for name, unit in missing)
        return tokens, mfu
    work = figure("tokens of a step", predicted.tokens_per_s_per_device * predicted.step_time_s, "tokens", "computed", "the plan")
    share = figure("MFU x step time", predicted.mfu * predicted.step_time_s, "s", "computed", "the plan")
    speed = computed("throughput", "tokens/s per device", "tokens / step time", _per_second, amount=work, step=step)
    return speed, computed("MFU", "ratio", "model FLOP / (step time x peak)", _per_second, amount=share, step=step).within(0, 1)


def _per_second(amount: float, step: float) -> float:
    return amount / step * NS_PER_S


def _goal(found: Figure, project: Project | None) -> str:
    """How a figure stands to the project's goal; "" where that is of another figure."""
    if project is None or project.goal_value is None or GOALS[project.goal_metric] != found.name or found.known is None:
        return ""
    reached = found.known >= project.goal_value if project.goal_op == ">=" else found.known <= project.goal_value
    goal = figure(found.name, project.goal_value, found.unit, "reported", "the project's goal").text()
    form = "goal {goal}: reached" if reached else "goal {goal}: missed by {share}"
    return say(form, goal=goal, share=abs(found.known / project.goal_value - 1))


def _against(found: Figure, predicted: float | None) -> str:
    if predicted is None or found.known is None:
        return ""
    change = found.known / predicted - 1
    expected = figure(found.name, predicted, found.unit, "computed", "the plan").text()
    return say("predicted {figure} ({change})", figure=expected, change=format_change(change))


def _last_kept(project: Project | None) -> Mapping[str, tuple[int, float]]:
    """By metric the number of the last kept round that measured it, and the value."""
    if project is None:
        return {}
    try:
        rounds = [row for row in ExperimentLog(project.folder).show("json")["rounds"] if row["verdict"] == "keep"]
    except InputError:  # the rounds of the page say what is wrong with the log
        return {}
    measured = ((row["number"], run) for row in rounds for run in row["runs"] if run["kind"] != "simulated")
    return {one["metric"]: (number, one["value"]) for number, run in measured for one in run["measurements"]}


def _since(found: Figure, kept: Mapping[str, tuple[int, float]]) -> str:
    """How a figure stands to the last kept round; "" where that measured none."""
    number, value = kept.get(METRICS[found.name], (0, 0.0))
    if found.known is None or not value:
        return ""
    change = found.known / value - 1
    before = figure(found.name, value, found.unit, "reported", "the last kept round").text()
    form = "round {number} kept {figure} ({change})"
    return say(form, number=number, figure=before, change=format_change(change))


def _limit(found: Figure, limit_bytes: int | None) -> str:
    if found.known is None or limit_bytes is None:
        return ""
    share = found.known / limit_bytes
    return say("{share} of the limit of {limit_bytes}", share=share, limit_bytes=limit_bytes)
