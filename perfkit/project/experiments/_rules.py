"""Rules: what a decision needs, and which evidence each state of the cycle asks for. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perfkit.core.robust import NOISE_RATIO
from perfkit.core.units import format_bytes, format_change

SHORTEST_REASON = 15
CONFIRMATION = "not checked"
"""What a user types to keep a round whose accuracy was not checked."""

FEWEST_PASS_STEPS = 10
LITTLE_GAINS = 3
"""So many kept rounds in a row that gain less than the noise of a repeated job: what is left is not worth a cluster's time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """What the log holds about one round, as far as a decision or a state asks for it."""

    hypothesis: str
    has_plan: bool
    has_run: bool
    has_finding_answer: bool
    predicts_goal: bool
    goal_value: float | None
    accuracy: str | None
    peak_bytes: float | None
    limit_bytes: int | None
    verdict: str | None
    goal_missing: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Reason by state that somebody passed over on purpose."""


def order_problems(number: int, state: str, evidence: Evidence) -> list[str]:
    """What must be in the log of round `number` before it may come to `state`; empty if nothing stands against it.

    A figure that is written down after the measurement is no prediction, and an accuracy check is one of a run. Round 0 is what
    the tuning begins with: there is nothing to predict. A state that was skipped with a reason asks for nothing.
    """
    missing = {
        "measure": {"predict": evidence.predicts_goal or evidence.has_run or number == 0},
        "align": {"measure": evidence.has_run},
    }[state]
    what = {"predict": "a prediction of the goal metric", "measure": "a run"}
    return [
        f"{what[earlier]} comes before the state {state!r}; round {number} has none (or skip {earlier!r} with a reason)"
        for earlier, is_there in missing.items()
        if not is_there and earlier not in evidence.skipped
    ]


def skip_problems(state: str, reason: str, evidence: Evidence) -> list[str]:
    """Everything that stands against passing over `state` of a round."""
    missing = missing_evidence(evidence)
    skippable = [name for name in missing if name not in ("goal", "decide")]
    problems = []
    if state not in skippable:
        problems.append(f"state {state!r} cannot be skipped; these can: {', '.join(skippable)}")
    elif state in evidence.skipped:
        problems.append(f"{state!r} is skipped already: {evidence.skipped[state]!r}")
    elif not missing[state]:
        problems.append(f"{state!r} has its evidence; there is nothing to skip")
    if len(reason.strip()) < SHORTEST_REASON:
        problems.append(f"reason {reason!r} must have at least {SHORTEST_REASON} characters, so that it helps later")
    return problems


def decision_problems(verdict: str, reason: str, evidence: Evidence, confirmation: str) -> list[str]:
    """Everything that stands against deciding `verdict` now; empty if it may be written."""
    problems = []
    if len(reason.strip()) < SHORTEST_REASON:
        problems.append(f"reason {reason!r} must have at least {SHORTEST_REASON} characters, so that it helps later")
    if evidence.accuracy == "fail" and verdict in ("keep", "stop"):
        problems.append(f"accuracy: the check failed, so {verdict!r} is not possible; revert or repeat")
    if verdict != "keep":
        return problems
    if evidence.goal_value is None:
        problems.append(
            "measurement: no run of this round has a value of the goal metric; attach its configuration and then the run (again), "
            "or note the figure: perfkit log measure"
        )
    if evidence.accuracy is None:
        problems.append("accuracy: not recorded; record 'pass', or 'not_checked' and confirm it")
    if evidence.accuracy == "not_checked" and confirmation.strip().lower() != CONFIRMATION:
        problems.append(f"accuracy: not checked; type {CONFIRMATION!r} to keep the round all the same")
    if evidence.peak_bytes is not None and evidence.limit_bytes is not None and evidence.peak_bytes > evidence.limit_bytes:
        peak, limit = format_bytes(evidence.peak_bytes), format_bytes(evidence.limit_bytes)
        problems.append(f"memory: the peak of {peak} is above the limit of {limit}")
    return problems


def missing_evidence(evidence: Evidence) -> dict[str, list[str]]:
    """Missing evidence by state of the cycle, in its order; a state with an empty list is done or was skipped with a reason."""
    fits = evidence.peak_bytes is not None and (evidence.limit_bytes is None or evidence.peak_bytes <= evidence.limit_bytes)
    has_hypothesis = len(evidence.hypothesis.strip()) >= SHORTEST_REASON
    found = {
        "goal": list(evidence.goal_missing),
        "strategy": _names({"plan config": evidence.has_plan, f"hypothesis of {SHORTEST_REASON} characters": has_hypothesis}),
        "memory": _names({"peak memory below the limit": fits}),
        "predict": _names({"prediction of the goal metric": evidence.predicts_goal}),
        "measure": _names({"run": evidence.has_run}),
        "analyse": _names({"answer to a finding": evidence.has_finding_answer}),
        "align": _names({"accuracy": evidence.accuracy is not None}),
        "decide": _names({"decision": evidence.verdict is not None}),
    }
    return {state: [] if state in evidence.skipped else missing for state, missing in found.items()}


def stop_advice(gain_ratios: Sequence[float | None], op: str) -> str | None:
    """Why to stop, if the last three kept rounds gained less than 1 % each; `gain_ratios` are theirs, oldest first."""
    last = [0.0 if gain is None else gain if op == ">=" else -gain for gain in gain_ratios[-LITTLE_GAINS:]]
    if len(last) < LITTLE_GAINS or gain_ratios[-LITTLE_GAINS] is None or max(last) >= NOISE_RATIO:
        return None
    told = ", ".join(format_change(gain) for gain in last)
    return f"The last {LITTLE_GAINS} kept rounds gained {told}: less than 1 % each. Consider to stop."


def goal_met(value: float | None, op: str, goal: float | None) -> bool | None:
    """Whether `value` reaches `goal`; None if one of them is unknown."""
    if value is None or goal is None:
        return None
    return value >= goal if op == ">=" else value <= goal


def _names(found: Mapping[str, bool]) -> list[str]:
    return [name for name, is_there in found.items() if not is_there]
