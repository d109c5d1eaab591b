"""What-if: how long a recorded step would take if something in it were different, and why.

What was recorded becomes a graph of dependencies over all ranks and some steps; a change shortens pieces of it, and everything that
followed moves as far as the rest allows. Without a change the replay gives the recorded steps to the ns. Changes of the plan, which
no recording holds, scale the measured parts as the estimates of both plans change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core.breakdown import Breakdown
from perfkit.core.errors import NotMeasuredError, Problems
from perfkit.core.run import Run
from perfkit.core.source import Source
from perfkit.core.texts import say
from perfkit.core.units import format_ratio
from perfkit.explain.critical_path import path_of
from perfkit.explain.what_if._changes import CHANGES as CHANGES
from perfkit.explain.what_if._changes import HIDE, Change, parse_changes
from perfkit.explain.what_if._plans import changed_plan, overlapped, scaled
from perfkit.explain.what_if._repairs import Changed, repaired
from perfkit.explain.what_if._steps import BEGIN, END, Steps, steps_of, without_host
from perfkit.predict.calibration import Calibration

__all__ = ["CHANGES", "Change", "WhatIf", "parse_changes", "what_if"]

MODEL_ERROR = 0.05
"""Share of what a change wins that its replay may be wrong by; above the worst of 95 % of the cases in
benchmarks/simulate/bench_what_if.py."""
OVERLAP_ERROR = 0.5
"""Share of what overlap wins that may be lost to computing that shares the memory, or won beyond the prediction."""
LEAST_ERROR = 0.002
"""Least half width of an interval, as a share of the step."""
PATH_COLUMNS = ("rank", "name", "kind", "start_ns", "duration_ns")


@dataclass(frozen=True, kw_only=True, slots=True)
class WhatIf:
    """The answer: `breakdown` of the step after the changes in ns (first levels as measured), and where it may really lie.

    `step_ns` is `breakdown.total`, `before` the same parts as recorded; `low_ns` and `high_ns` hold the step with 80 % probability.
    `path` is the critical path after the changes (`rank`, `name`, `kind`, `start_ns`, `duration_ns`; empty for a change of the plan
    alone), `sentences` say what was changed and what limits the step now. `faster` has of each change of operators its words, how
    many kernels of all ranks it is of, and their share of the time of all.
    """

    changes: tuple[str, ...]
    before: Breakdown
    breakdown: Breakdown
    low_ns: int
    high_ns: int
    path: pd.DataFrame
    sentences: tuple[str, ...]
    faster: tuple[tuple[str, int, float], ...] = ()

    @property
    def before_ns(self) -> int:
        """The recorded step: the mean over steps of the rank that needs longest."""
        return int(self.before.total)

    @property
    def step_ns(self) -> int:
        """The step after the changes."""
        return int(self.breakdown.total)

    @property
    def low(self) -> int:
        """The lower end of the interval in ns."""
        return self.low_ns

    @property
    def high(self) -> int:
        """The upper end of the interval in ns."""
        return self.high_ns

    @property
    def won_ns(self) -> int:
        """What a step wins; negative if it becomes longer."""
        return self.before_ns - self.step_ns

    def to_frame(self) -> pd.DataFrame:
        """One row: `before_ns`, `step_ns`, its 80 % interval from `low_ns` to `high_ns`, `won_ns`, `won_ratio`.

        Where operators become faster also how many kernels of all ranks, `faster_kernels`, and their share of the time of all,
        `kernel_time_ratio`.
        """
        won = {"won_ns": self.won_ns, "won_ratio": self.won_ns / self.before_ns}
        bounds = {"low_ns": self.low_ns, "high_ns": self.high_ns}
        faster = {
            "faster_kernels": sum(num for _, num, _ in self.faster),
            "kernel_time_ratio": sum(share for *_, share in self.faster),
        }
        row = {"before_ns": self.before_ns, "step_ns": self.step_ns} | bounds | won | (faster if self.faster else {})
        frame = pd.DataFrame([row])
        frame.attrs = {"title": "The step before and after", "labels": {"low_ns": "80 % from", "high_ns": "80 % to"}}
        return frame

    def path_by_kind(self) -> pd.DataFrame:
        """What the critical path after the changes is made of, most first: `kind`, `duration_ns`, `share`."""
        sums = self.path.groupby("kind")["duration_ns"].sum().sort_values(ascending=False).reset_index()
        frame = sums.assign(share=sums["duration_ns"] / max(1, int(sums["duration_ns"].sum())))
        frame.attrs = {"title": "The critical path then, by kind"}
        return frame

    def to_dict(self) -> dict[str, Any]:
        """A JSON document, without the path."""
        return {
            "changes": list(self.changes),
            "before_ns": self.before_ns,
            "step_ns": self.step_ns,
            "low_ns": self.low_ns,
            "high_ns": self.high_ns,
            "breakdown_ns": dict(self.breakdown.parts),
            "before_breakdown_ns": dict(self.before.parts),
            "sentences": list(self.sentences),
        }


def what_if(
    run: Run,
    changes: str | Change | Iterable[str | Change],
    *,
    steps: Sequence[int] | None = None,
    ranks: Sequence[int] | None = None,
    calibration: str | Calibration | None = None,
) -> WhatIf:
    """How long a step of `run` takes after `changes`, spelled as in `CHANGES`.

    `steps` and `ranks` choose what is looked at: by default up to six steps after warm-up, and all ranks with kernels. Raises
    InputError with everything that is wrong with any change, NotMeasuredError if no kernels with times were recorded.
    """
    asked = tuple(_by_plan(run, change) for change in parse_changes(changes))
    recorded = steps_of(run, steps=steps, ranks=ranks)
    changed, plan_after, said = _changed(run, recorded, asked)
    after = changed.timed()
    rank, step = recorded.longest()
    before = _scaled_to(_parts(run, recorded, recorded, rank, step), recorded.step_ns)
    breakdown = _scaled_to(_parts(run, recorded, after, rank, step), after.step_ns)
    low, high = _interval(recorded, after, changed)
    if plan_after is not None and run.plan is not None:
        stage = run.placement[rank].pipeline if rank in run.placement else None
        breakdown, (least, most) = scaled(breakdown, run.plan, plan_after, calibration, stage)
        low, high = min(low / after.step_ns, 1.0) * least * breakdown.total, max(high / after.step_ns, 1.0) * most * breakdown.total
    if run.plan is not None and any(change.kind == HIDE for change in asked):
        whole = breakdown.total
        breakdown = overlapped(breakdown, run.plan if plan_after is None else plan_after, calibration)
        error = OVERLAP_ERROR * abs(whole - breakdown.total)
        low, high = low * breakdown.total / whole - error, high * breakdown.total / whole + error
    planned_only = all(change.planned for change in asked)
    path = pd.DataFrame(columns=list(PATH_COLUMNS)) if planned_only else _path(after, step)
    sentences = (*said, _summary(before, breakdown, (low, high)), *([] if planned_only else [_limit(path)]))
    if not recorded.rigid and changed.steps.graph.nodes["kind"].eq("host").any():
        sentences = (
            *sentences,
            "The host is idle for most of the step, so it is taken not to hold the device up any more than it did.",
        )
    return WhatIf(
        changes=tuple(change.text for change in asked),
        before=before,
        breakdown=breakdown,
        low_ns=round(low),
        high_ns=round(high),
        path=path,
        sentences=sentences,
        faster=changed.faster,
    )


def _by_plan(run: Run, change: Change) -> Change:
    """Overlap in a run of a known plan is told by the prediction: it knows when gradients are ready and what hiding costs."""
    return replace(change, kind=HIDE) if change.kind == "overlap" and run.plan is not None and run.plan.hardware else change


def _changed(run: Run, recorded: Steps, asked: Sequence[Change]) -> tuple[Changed, Any, tuple[str, ...]]:
    """The steps after all changes of what was recorded, the plan after the others, and what was done; all problems at once."""
    problems = Problems()
    changed = Changed.of(recorded)
    for change in asked:
        if change.planned:
            continue
        try:
            changed = repaired(run, changed, change)
        except (ValueError, NotMeasuredError) as error:
            problems.append(f"{change.text}: {error}")
    planned = [change for change in asked if change.planned and change.kind != HIDE]
    if any(change.kind == HIDE for change in asked):
        changed = replace(changed, sentences=(*changed.sentences, "gradients are reduced beside the backward pass"))
    plan, said = None, changed.sentences
    if planned and run.plan is None:
        problems += [f"{change.text}: the run does not say which plan it is of; attach one (run.plan)" for change in planned]
    elif planned and run.plan is not None:
        with problems.of():
            plan, texts = changed_plan(run.plan, planned)
            said = (*said, f"the plan changes: {', '.join(texts)}")
    problems.tell("changes")
    return changed, plan, tuple(f"{text[0].upper()}{text[1:]}." for text in said)


def _parts(run: Run, recorded: Steps, after: Steps, rank: int, step: int) -> Breakdown:
    """The first levels of a rank's step: computing and idle time from the graph, the rest divided as it was recorded.

    Idle is what was recorded as free, less the times before kernels that the changes took away.
    """
    known = run.step_breakdown(rank, step).collapse(1) if len(run.frame("step_parts", ranks=[rank], steps=[step])) else None
    length, computing, idle = _amounts(after, rank, step)
    _, computed, idled = _amounts(recorded, rank, step)
    measured = {path: int(amount) for path, amount in known.parts.items()} if known else {"computing": computed}
    free = max(0, measured.get("free", 0) - max(0, idled - idle))
    own = round(measured.get("computing", computed) * (computing / computed)) if computed else 0
    own = min(own, length)
    free = min(free, length - own)
    others = {path: amount for path, amount in measured.items() if path not in ("computing", "free")}
    rest, whole = length - own - free, sum(others.values())
    if not whole:
        others, whole = {"communication": 1}, 1
    parts = {"computing": own, **{path: rest * amount // whole for path, amount in others.items()}, "free": free}
    parts["free"] += length - sum(parts.values())
    source = Source("computed", f"{run.name}, rank {rank}, step {step}", "replay of the recorded dependencies")
    return Breakdown("ns", {path: amount for path, amount in parts.items() if amount}, source)


def _amounts(steps: Steps, rank: int, step: int) -> tuple[int, int, int]:
    """Length of a rank's step, its computing, and the idle times before its kernels, in ns."""
    nodes, graph = steps.graph.nodes, steps.graph
    row = steps.begin[(steps.begin["rank"] == rank) & (steps.begin["step"] == step)].iloc[0]
    starts = nodes["start_ns"].to_numpy(dtype=np.int64)
    mine = ((nodes["rank"] == rank) & (nodes["step"] == step)).to_numpy(dtype=bool)
    computing = int(nodes["duration_ns"].to_numpy(dtype=np.int64)[mine & (nodes["kind"] == "computing").to_numpy(dtype=bool)].sum())
    device = mine & ~nodes["kind"].isin([BEGIN, END, "host"]).to_numpy(dtype=bool)
    idle = int(np.clip(graph.lag_ns[device[graph.targets]], 0, None).sum())
    return int(starts[row["end"]] - starts[row["begin"]]), computing, idle


def _scaled_to(parts: Breakdown, total_ns: int) -> Breakdown:
    """The parts of one step at the length of the mean one: whole ns that sum to it exactly."""
    whole = int(parts.total)
    amounts = {path: int(amount) * total_ns // whole for path, amount in parts.parts.items()}
    largest = max(amounts, key=lambda path: amounts[path])
    amounts[largest] += total_ns - sum(amounts.values())
    return replace(parts, parts=amounts)


def _interval(recorded: Steps, after: Steps, changed: Changed) -> tuple[float, float]:
    """Where the step may lie: the spread between steps, the error of the replay, and a host that holds up less than it did."""
    step = float(after.step_ns)
    lengths = after.durations_ns.astype(np.float64)
    spread = 1.2816 * float(lengths.std(ddof=1)) / math.sqrt(len(lengths)) if len(lengths) > 1 else 0.0
    error = max(MODEL_ERROR * abs(recorded.step_ns - step), LEAST_ERROR * step)
    half = math.hypot(spread, error)
    low = step - half
    if changed.steps.rigid:
        free = without_host(changed.steps)
        low = min(low, float(free.timed(changed.duration_ns, None).step_ns) - half)
    return max(0.0, low), step + half


def _path(after: Steps, step: int) -> pd.DataFrame:
    """The critical path within one step."""
    path = path_of(after.graph)
    starts = after.graph.nodes["start_ns"].to_numpy(dtype=np.int64)
    mine = after.begin[after.begin["step"] == step]
    first, last = int(starts[mine["begin"].to_numpy()].min()), int(starts[mine["end"].to_numpy()].max())
    ends = (path["start_ns"] + path["duration_ns"]).clip(upper=last)
    begins = path["start_ns"].clip(lower=first)
    inside = path.assign(start_ns=begins, duration_ns=ends - begins)
    return inside[inside["duration_ns"] > 0].reset_index(drop=True)


def _summary(before: Breakdown, after: Breakdown, bounds: tuple[float, float]) -> str:
    old, new = int(before.total), int(after.total)
    low_ns, high_ns = map(round, bounds)
    less = "The step would take {new_ns} instead of {old_ns}, {change_ratio} less (80 % interval {low_ns} to {high_ns})."
    more = "The step would take {new_ns} instead of {old_ns}, {change_ratio} more (80 % interval {low_ns} to {high_ns})."
    form = less if new <= old else more
    return say(form, new_ns=new, old_ns=old, change_ratio=abs(old - new) / old, low_ns=low_ns, high_ns=high_ns)


def _limit(path: pd.DataFrame) -> str:
    """What the critical path after the changes consists of."""
    if path.empty:
        return "No critical path is known."
    sums = path.groupby("kind")["duration_ns"].sum().sort_values(ascending=False)
    ranks = path.groupby("rank")["duration_ns"].sum().sort_values(ascending=False)
    whole = max(1, int(path["duration_ns"].sum()))
    listed = ", ".join(f"{kind} {format_ratio(amount / whole)}" for kind, amount in sums.head(3).items())
    waited = "The critical path (what the step waited for, not all that ran beside it)"
    return f"{waited} is then {listed}; most of it runs on rank {ranks.index[0]}."
