"""The 13B case: six published rounds from 1,860 to 2,562 tokens/s a device, each guessed before it is revealed.

The guess is kept as an event of the project's log (in a read-only project, or without one, until the page is closed). Predictions
are those of `perfkit.estimate` for every round's configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from perfkit.config.flat_keys import config_keys, difference
from perfkit.core import catalog
from perfkit.core.breakdown import Breakdown
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.robust import is_real_change
from perfkit.core.units import NS_PER_S, format_change, format_count, format_ns, format_ratio, significant
from perfkit.face.charts.case import answers, stage_work
from perfkit.face.widgets import context
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.control import Choice, Number, Text
from perfkit.face.widgets.panel import Action, Answer, Panel
from perfkit.face.widgets.table import Table
from perfkit.predict.cost.flops import training_flops
from perfkit.predict.cost.utilization import mfu
from perfkit.predict.estimate import Estimate, stage_breakdowns
from perfkit.project.experiments import ExperimentLog
from perfkit.project.experiments.writer import to_json
from perfkit.project.sample import CASE_FOLDER, METHOD, predictions, read_case, round_plans

PAGE = "30_case_13b"
SEQ_LENGTH = 4096
"""Assumed, as the batch sizes are: the guide states neither."""
GLOBAL_BATCH_SIZES = (16, 1024, 1024, 1024, 1024, 1024)
NUM_DEVICES = (8, 16, 16, 16, 16, 16)
FAR_OFF = 0.10
PARTS = {
    "forward and backward": ("computing/forward", "computing/backward"),
    "computed again": ("computing/recompute",),
    "moving data": ("communication",),
    "update and host": ("computing/optimizer", "free"),
    "waiting for the other stage": ("bubble",),
}
"""What a stage does in a step, and the leaves of its breakdown."""
ROUNDS = tuple((f"round {number}", number) for number in range(1, 6))
_kept_here: dict[int, dict[str, Any]] = {}
"""Guesses of this page where no project can keep them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """The round of the story, and the guess as it is typed; 0 is none."""

    round: int = 1
    guess: float = 0.0
    idea: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """One round with all that can be computed from it; `predicted` and `error` are None for round 0."""

    number: int
    row: dict[str, Any]
    stages: list[Breakdown]
    estimate: Estimate
    predicted: float | None
    error: float | None
    gain: float | None
    step_s: float
    mfu_full: float
    mfu_causal: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The rounds, the open one, what changed in its configuration, and the visitor's guesses by round."""

    state: State
    case: dict[str, Any]
    rounds: tuple[Told, ...]
    changed: list[dict[str, Any]]
    guesses: dict[int, dict[str, Any]]


def compute(state: State) -> Result:
    """The story up to the round of the state."""
    case = read_case()
    old, new = (
        {key: to_json(value) for key, value in config_keys(data_folder() / CASE_FOLDER / f"round{number}.yaml")[1].items()}
        for number in (state.round - 1, state.round)
    )
    return Result(state=state, case=case, rounds=told(case), changed=difference(old, new), guesses=guesses())


def told(case: dict[str, Any]) -> tuple[Told, ...]:
    """All rounds of the case with prediction, error, gain, step time and MFU in two conventions."""
    model = catalog.model("Llama2-13B")
    peak = case["device"]["peak_flops_per_s"]
    full = training_flops(model, SEQ_LENGTH)
    causal = training_flops(model, SEQ_LENGTH, "causal", head=False)
    found: list[Told] = []
    for number, (row, plan, estimate) in enumerate(zip(case["rounds"], round_plans(), predictions(), strict=True)):
        reported, predicted = float(row["reported"]), estimate.tokens_per_s_per_device if number else None
        tokens = GLOBAL_BATCH_SIZES[number] * SEQ_LENGTH
        found.append(
            Told(
                number=number,
                row=row,
                stages=stage_breakdowns(plan),
                estimate=estimate,
                predicted=predicted,
                error=None if predicted is None else predicted / reported - 1,
                gain=reported / found[-1].row["reported"] - 1 if found else None,
                step_s=tokens / (NUM_DEVICES[number] * reported),
                mfu_full=mfu(full, reported, peak),
                mfu_causal=mfu(causal, reported, peak),
            )
        )
    return tuple(found)


def guesses() -> dict[int, dict[str, Any]]:
    """The last guess of every round: `value` and `idea`."""
    project = context.current_project()
    found = dict(_kept_here)
    if project is not None:
        for event in ExperimentLog(project.folder, read_only=True).events():
            if event["action"] == "guess" and event["page"] == PAGE:
                found[int(event["detail"]["round"])] = event["detail"]
    return found


def reveal(state: State) -> str:
    """Keep the guess and open the round; raises InputError without a guess."""
    problems = [] if state.guess > 0 else ["guess: type what you expect, in tokens/s/device, before the round is opened"]
    if not state.idea.strip():
        problems.append("next: say in a few words what you would try, or what limits this round")
    if problems:
        raise InputError(f"round {state.round}", problems)
    detail = {"round": state.round, "value": state.guess, "idea": state.idea}
    if context.can_save():
        project = context.current_project()
        assert project is not None
        ExperimentLog(project.folder).record_event("guess", detail, page=PAGE)
        return f"Your guess of {significant(state.guess, 4)} tokens/s for round {state.round} is kept in the log."
    _kept_here[state.round] = detail
    return f"Your guess for round {state.round} is kept until this page is closed: no project can be written here."


def view(result: Result) -> Answer:
    """The change and its evidence; after the guess also the prediction, what was reported and the lesson."""
    state = result.state
    before, now = result.rounds[state.round - 1], result.rounds[state.round]
    guess = result.guesses.get(state.round)
    charts = {"stages": _stages(before, now)}
    tables = {
        "config": Table(
            frame=pd.DataFrame([{**row, "old": _short(row["old"]), "new": _short(row["new"])} for row in result.changed]),
            title=f"Configuration: round {before.number} to round {now.number}",
            labels={"key": "setting", "old": f"round {before.number}", "new": f"round {now.number}"},
        )
    }
    if guess is not None:
        charts["answers"] = _answers(now, guess)
        tables["story"] = Table(frame=_story(result), title="The story so far (reported figures; step time and MFU from them)")
    return Answer(charts, tables, _sentence(result, before, now, guess), _notes(result, now, guess))


def _stages(before: Told, now: Told) -> Figure:
    rows = [row for told_round in (before, now) for row in _stage_rows(told_round)]
    shares = [[format_ratio(1 - float(stage.amount("bubble") / stage.total), 2) for stage in item.stages] for item in (before, now)]
    worked = (f"round {item.number}: {', '.join(own)}" for item, own in zip((before, now), shares, strict=True))
    return Figure(
        chart=stage_work({"stages": rows}),
        title="What a step takes on every stage, as estimated",
        alt=f"Share of a step in which a stage works, {'; '.join(worked)}.",
        sources=["the breakdown of perfkit.estimate, stage by stage"],
        wide=True,
    )


def _stage_rows(item: Told) -> list[dict[str, Any]]:
    return [
        {"place": f"round {item.number}, stage {number}", "work": work, "seconds": amount, "order": order}
        for number, stage in enumerate(item.stages)
        for order, (work, paths) in enumerate(PARTS.items())
        if (amount := sum(float(stage.amount(path)) for path in paths))
    ]


def _answers(now: Told, guess: dict[str, Any]) -> Figure:
    reported = float(now.row["reported"])
    assert now.predicted is not None
    rows = []
    for who, value in (("your guess", float(guess["value"])), ("perfkit estimate", now.predicted), ("reported", reported)):
        error = value / reported - 1
        judged = "reported" if who == "reported" else "within 10 %" if abs(error) <= FAR_OFF else "more than 10 % off"
        label = significant(value, 4) if who == "reported" else f"{significant(value, 4)} ({format_change(error)})"
        room = 1.35 * max(reported, float(guess["value"]), now.predicted)
        rows.append({"who": who, "value": value, "label": label, "judged": judged, "why": "", "room": room})
    return Figure(
        chart=answers({"answers": rows}),
        title=f"Round {now.number}: guessed, predicted, reported",
        alt="; ".join(f"{row['who']} {row['label']} {row['why']}".strip() for row in rows),
        sources=["the guide's figure", METHOD, "your guess, an event of the log"],
        wide=True,
    )


def _story(result: Result) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "round": item.number,
                "predicted_tokens_per_s_per_device": item.predicted,
                "reported_tokens_per_s_per_device": item.row["reported"],
                "error_ratio": item.error,
                "gain_ratio": item.gain,
                "step_s": item.step_s,
                "full_mfu": item.mfu_full,
                "causal_no_head_mfu": item.mfu_causal,
                "lesson": item.row["lesson"],
            }
            for item in result.rounds[: result.state.round + 1]
        ]
    )


def _sentence(result: Result, before: Told, now: Told, guess: dict[str, Any] | None) -> str:
    start = f"Round {now.number}, {now.row['title']}: {now.row['hypothesis']}"
    if guess is None:
        return (
            f"{start} The round before reported {format_count(before.row['reported'])} tokens/s/device. What will this one "
            "reach? Type your guess and what you would try, then reveal."
        )
    assert now.predicted is not None
    assert now.error is not None
    text = (
        f"{start} perfkit predicted {significant(now.predicted, 4)}, the guide reports {format_count(now.row['reported'])}: "
        f"error {format_change(now.error)}. Lesson: {now.row['lesson']}"
    )
    if now.number == len(result.rounds) - 1:
        text += f" In total {format_change(now.row['reported'] / result.rounds[0].row['reported'] - 1)}."
    return text


def _notes(result: Result, now: Told, guess: dict[str, Any] | None) -> tuple[str, ...]:
    notes = ["Figures are reported by a guide, not measured here. Assumed: sequences of 4096, global batch 1024 from round 1 on."]
    if guess is None:
        return tuple(notes)
    parent = result.rounds[now.number - 1]
    if now.number == 1:
        before, after = (_once_a_step(item.estimate) for item in (parent, now))
        notes.append(
            "128 micro batches share one gradient synchronization and update; round 0 pays both each step: as estimated "
            f"{format_ratio(before)} of its step, {format_ratio(after, 4)} of that of round 1."
        )
    else:
        steps = [format_ns(item.estimate.step_time_s * NS_PER_S) for item in (parent, now)]
        notes.append(f"Step as estimated: {steps[0]} before, {steps[1]} now.")
    if not is_real_change(parent.row["reported"], now.row["reported"], num_samples=1, median_abs_devs=(None, None)):
        notes.append(
            f"{format_change(now.gain)} is below the noise limit of 1 %: no measurable change by rule, although the guide kept it."
        )
    if now.number == len(result.rounds) - 1:
        errors = [abs(item.error) for item in result.rounds[2:] if item.error is not None]
        mean = format_ratio(sum(errors) / len(errors))
        notes.append(f"Mean error of rounds 2 to 5: {mean} without sign. Bubble: {format_ratio(1 / 129)}.")
    notes.append(f"You said: {guess['idea']}")
    return tuple(notes)


def _once_a_step(estimate: Estimate) -> float:
    """The share of a step that its micro batches pay together: exposed gradient synchronization and the update."""
    parts = estimate.breakdown
    return float(parts.amount("communication/exposed/dp") + parts.amount("computing/optimizer")) / estimate.step_time_s


def _short(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, dict | list) and len(value) > 6:
        return f"{len(value)} entries: {', '.join(map(str, list(value)[:3]))}, …"
    return str(value)


PANEL = Panel(
    title="Guess, predict, reveal",
    start=State,
    compute=compute,
    view=view,
    shared=("round",),
    controls=(
        Choice(path="round", options=ROUNDS, buttons=True, label="Round"),
        Number(path="guess", low=0, high=100_000, label="Your guess", unit="tokens/s/device"),
        Text(path="idea", label="What would you try next?", placeholder="one change, and what it should win"),
    ),
    actions=(
        Action(
            name="reveal",
            label="Keep my guess and reveal",
            run=reveal,
            help="writes your guess to the log before the figure is shown",
        ),
    ),
)
