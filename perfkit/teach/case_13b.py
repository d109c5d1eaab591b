"""The 13B case: six published rounds from 1,860 to 2,562 tokens/s a device, each guessed before it is told.

A guess is kept as an event of the project's log; where no project can be written, as long as the process lives. Predictions are
those of `perfkit.estimate` for every round's configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd

from perfkit.config.flat_keys import config_keys, difference
from perfkit.core import catalog
from perfkit.core.breakdown import Breakdown
from perfkit.core.errors import InputError
from perfkit.core.looks import brief
from perfkit.core.resources import data_folder
from perfkit.core.robust import is_real_change
from perfkit.core.settings import find_project
from perfkit.core.shortening import enumerated
from perfkit.core.texts import joined, say
from perfkit.core.units import NS_PER_S, format_change, format_count, format_ns, format_ratio, significant
from perfkit.predict.cost.flops import training_flops
from perfkit.predict.cost.utilization import mfu
from perfkit.predict.estimate import Estimate, estimates, stage_breakdowns
from perfkit.project import open_project
from perfkit.project.experiments import ExperimentLog
from perfkit.project.experiments.writer import to_json
from perfkit.project.keep import own_project
from perfkit.project.sample import CASE_FOLDER, read_case, round_plans

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
REPORTED = "Figures are reported by a guide, not measured here. Assumed: sequences of 4096, global batch 1024 from round 1 on."
_kept_here: dict[int, dict[str, Any]] = {}
"""Guesses where no project can keep them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseRound:
    """One round with all that can be computed from it; `predicted`, `error` and `gain` are None for round 0, which is given."""

    number: int
    title: str
    hypothesis: str
    lesson: str
    reported: float
    stages: tuple[Breakdown, ...]
    estimate: Estimate
    predicted: float | None
    error: float | None
    gain: float | None
    step_s: float
    mfu_full: float
    mfu_causal: float

    def work(self) -> list[dict[str, Any]]:
        """What 1,000 tokens of a device take on every stage: rows with `place`, `work`, `seconds`, `order`.

        Steps of rounds differ by their batch as 1 and 128.
        """
        tokens = self.estimate.tokens_per_s_per_device * self.estimate.step_time_s
        return [
            {"place": f"round {self.number}, stage {number}", "work": work, "seconds": amount * 1000 / tokens, "order": order}
            for number, stage in enumerate(self.stages)
            for order, (work, paths) in enumerate(PARTS.items())
            if (amount := sum(float(stage.amount(path)) for path in paths))
        ]


@cache
def case_rounds() -> tuple[CaseRound, ...]:
    """All rounds of the case with prediction, error, gain, step time and MFU in two conventions."""
    case, model = read_case(), catalog.model("Llama2-13B")
    peak = case["device"]["peak_flops_per_s"]
    full = training_flops(model, SEQ_LENGTH)
    causal = training_flops(model, SEQ_LENGTH, "causal", head=False)
    found: list[CaseRound] = []
    plans = round_plans()
    for number, (row, plan, estimate) in enumerate(zip(case["rounds"], plans, estimates(plans), strict=True)):
        reported, predicted = float(row["reported"]), estimate.tokens_per_s_per_device if number else None
        found.append(
            CaseRound(
                number=number,
                title=row["title"],
                hypothesis=row["hypothesis"],
                lesson=row["lesson"],
                reported=reported,
                stages=tuple(stage_breakdowns(plan)),
                estimate=estimate,
                predicted=predicted,
                error=None if predicted is None else predicted / reported - 1,
                gain=reported / found[-1].reported - 1 if found else None,
                step_s=GLOBAL_BATCH_SIZES[number] * SEQ_LENGTH / (NUM_DEVICES[number] * reported),
                mfu_full=mfu(full, reported, peak),
                mfu_causal=mfu(causal, reported, peak),
            )
        )
    return tuple(found)


def changed_settings(number: int) -> pd.DataFrame:
    """The settings that round `number` changed: `setting`, `before`, `now`, as text."""
    old, new = (
        {key: to_json(value) for key, value in config_keys(data_folder() / CASE_FOLDER / f"round{which}.yaml")[1].items()}
        for which in (number - 1, number)
    )
    rows = [{"setting": row["key"], "before": _short(row["old"]), "now": _short(row["new"])} for row in difference(old, new)]
    return pd.DataFrame(rows, columns=["setting", "before", "now"])


def asked(number: int) -> str:
    """What round `number` tried and what the one before reported, in a sentence; nothing of its own figure."""
    now, before = case_rounds()[number], case_rounds()[number - 1]
    form = "The round before reported {reported} tokens/s/device. What will this one reach?"
    return joined([_begun(now), say(form, reported=format_count(round(before.reported)))])


def keep_guess(number: int, tokens_per_s: float, idea: str) -> str:
    """Keep a guess, and say where. Raises InputError for one without a number or an idea."""
    problems = [] if tokens_per_s > 0 else ["guess: type what you expect, in tokens/s/device, before the round is opened"]
    if not idea.strip():
        problems.append("next: say in a few words what you would try, or what limits this round")
    if problems:
        raise InputError(f"round {number}", problems)
    detail = {"round": number, "value": tokens_per_s, "idea": idea}
    try:
        project = own_project("guess")
    except InputError:
        _kept_here[number] = detail
        return say(
            "Your guess for round {number} is kept until this page is closed: no project can be written here.", number=number
        )
    ExperimentLog(project.folder).record_event("guess", detail, page=PAGE)
    guess = significant(tokens_per_s, 4)
    return say("Your guess of {guess} tokens/s for round {number} is kept in the log.", guess=guess, number=number)


def guesses() -> dict[int, dict[str, Any]]:
    """The last guess of every round: `value` and `idea`."""
    folder, found = find_project(), dict(_kept_here)
    if folder is not None:
        for event in ExperimentLog(open_project(folder).folder, read_only=True).events():
            if event["action"] == "guess" and event["page"] == PAGE:
                found[int(event["detail"]["round"])] = event["detail"]
    return found


def revealed(number: int) -> str:
    """What was predicted and reported of a round, and its lesson."""
    now = case_rounds()[number]
    assert now.predicted is not None
    assert now.error is not None
    told = say(
        "perfkit predicted {predicted}, the guide reports {reported}: error {error}.",
        predicted=significant(now.predicted, 4),
        reported=format_count(round(now.reported)),
        error=format_change(now.error),
    )
    total = format_change(now.reported / case_rounds()[0].reported - 1)
    whole = say("In total {change}.", change=total) if number == len(case_rounds()) - 1 else ""
    return joined([_begun(now), told, say("Lesson: {lesson}", lesson=now.lesson), whole])


def revealed_notes(number: int, idea: str) -> tuple[str, ...]:
    """What made the difference, whether it is more than noise, and what the visitor had said."""
    now, parent = case_rounds()[number], case_rounds()[number - 1]
    notes: list[str] = [REPORTED]
    if number == 1:
        before, after = (_once_a_step(item.estimate) for item in (parent, now))
        form = (
            "128 micro batches share one gradient synchronization and update; round 0 pays both each step: as estimated {before} "
            "of its step, {after} of that of round 1."
        )
        notes.append(say(form, before=format_ratio(before), after=format_ratio(after, 4)))
    else:
        old, new = (format_ns(item.estimate.step_time_s * NS_PER_S) for item in (parent, now))
        notes.append(say("Step as estimated: {old} before, {new} now.", old=old, new=new))
    if not is_real_change(parent.reported, now.reported, num_samples=1, median_abs_devs=(None, None)):
        form = "{gain} is below the noise limit of 1 %: no measurable change by rule, although the guide kept it."
        notes.append(say(form, gain=format_change(now.gain)))
    if number == len(case_rounds()) - 1:
        errors = [abs(item.error) for item in case_rounds()[2:] if item.error is not None]
        form = "Mean error of rounds 2 to 5: {mean} without sign. Bubble: {bubble}."
        notes.append(say(form, mean=format_ratio(sum(errors) / len(errors)), bubble=format_ratio(1 / 129)))
    return (*notes, say("You said: {idea}", idea=idea))


def answer_rows(number: int, guess: float) -> list[dict[str, Any]]:
    """The guess, the prediction and what was reported beside each other, as rows of a chart."""
    now = case_rounds()[number]
    assert now.predicted is not None
    rows = []
    for who, value in (("your guess", guess), ("perfkit estimate", now.predicted), ("reported", now.reported)):
        error = value / now.reported - 1
        judged = "reported" if who == "reported" else "within 10 %" if abs(error) <= FAR_OFF else "more than 10 % off"
        label = significant(value, 4) if who == "reported" else f"{significant(value, 4)} ({format_change(error)})"
        room = 1.35 * max(now.reported, guess, now.predicted)
        rows.append({"who": who, "value": value, "label": label, "judged": judged, "why": "", "room": room})
    return rows


def story(last: int) -> pd.DataFrame:
    """The rounds up to `last`: reported figures, what perfkit predicts, step time and MFU from them, and the lesson."""
    told = pd.DataFrame(
        [
            {
                "round": item.number,
                "predicted_tokens_per_s_per_device": item.predicted,
                "reported_tokens_per_s_per_device": item.reported,
                "error_ratio": item.error,
                "against_round_before_ratio": item.gain,
                "step_s": item.step_s,
                "full_mfu": item.mfu_full,
                "causal_no_head_mfu": item.mfu_causal,
                "lesson": item.lesson,
            }
            for item in case_rounds()[: last + 1]
        ]
    )
    figures = ("predicted_tokens_per_s_per_device", "reported_tokens_per_s_per_device", "against_round_before_ratio")
    return brief(told, "round", *figures, "lesson")


def _begun(now: CaseRound) -> str:
    return say("Round {number} ({title}). {hypothesis}", number=now.number, title=now.title, hypothesis=now.hypothesis)


def _once_a_step(estimate: Estimate) -> float:
    """The share of a step that its micro batches pay together: exposed gradient synchronization and the update."""
    parts = estimate.breakdown
    return float(parts.amount("communication/exposed/dp") + parts.amount("computing/optimizer")) / estimate.step_time_s


def _short(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, dict | list) and len(value) > 6:
        return f"{len(value)} entries: {enumerated(value, 3)}"
    return str(value)
