"""Compare: what changed between two runs, two plans, a run and its plan, two graph dumps or two series of losses, and by how much.

`compare(a, b)` takes paths or what was read from them, finds out what they are, and gives one `Comparison`: a total, the parts that
it is the sum of, whether the change is beyond noise, and the settings that differ. b is the new side: `delta` is b - a.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from perfkit.core import catalog, robust
from perfkit.core.answer import Answer
from perfkit.core.breakdown import Amount, Breakdown
from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.looks import folded
from perfkit.core.run import Run
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.core.spec.plan import Plan
from perfkit.core.texts import joined, say
from perfkit.core.units import NS_PER_S, format_change, format_ns, significant
from perfkit.explain.alignment import Alignment, LossSeries, align_losses, series_of_run
from perfkit.explain.compare._graphs import graphs_document
from perfkit.explain.compare._measure import Measure, as_read, beyond_noise, measure
from perfkit.explain.compare._parts import Part, common, parts
from perfkit.explain.compare._planned import Beside, Finding, beside
from perfkit.explain.compare.names import compare_names, names_document
from perfkit.explain.compare.operators import OPERATOR_COLUMNS, OperatorComparison, compare_operators
from perfkit.explain.compare.settings import changed, comparable
from perfkit.explain.compare.sides import Kind, Side, kind_of, name_of, open_side
from perfkit.explain.graph import GraphReport
from perfkit.predict.calibration import Calibration
from perfkit.predict.estimate import estimate
from perfkit.record.format import Progress

FAR_OFF = 5
"""No prediction of a run of the plan itself is off by more than this factor."""

__all__ = [
    "OPERATOR_COLUMNS",
    "Comparison",
    "Finding",
    "OperatorComparison",
    "Part",
    "compare",
    "compare_names",
    "compare_operators",
    "measure",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Two sides compared; amounts are in `unit` (int ns, float s, or bytes for graphs), `beyond_noise` is None if undecidable.

    `parts` sum to the totals. `config` has the settings that differ (`key`, `old`, `new`, `group`). `alignment` is there for
    losses, `beside` for a run and its plan, `operators` and `names` where asked for; `extra` is what the kind has more in JSON.
    """

    a: str
    b: str
    kind: Kind
    unit: str
    total_a: Amount | None
    total_b: Amount | None
    parts: tuple[Part, ...]
    beyond_noise: bool | None
    sentences: tuple[str, ...]
    config: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    alignment: Alignment | None = None
    beside: Beside | None = None
    operators: OperatorComparison | None = None
    names: Answer | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """Ratio of b to a; None if a is 0 or one of them is not known."""
        return self.total_b / self.total_a if self.total_a and self.total_b is not None else None

    @property
    def slower_percent(self) -> float | None:
        """By how many percent b is worse than a: longer steps, or for losses the largest relative difference; None if not known.

        For a run and its plan: by how much the run is slower than planned, on whichever side it stands.
        """
        if self.kind == "losses" and self.alignment is not None:
            found = self.alignment.max_relative
            return None if found is None else 100 * found
        if self.beside is not None:
            return 100 * (float(self.beside.measured.total) / float(self.beside.planned.total) - 1)
        return None if self.ratio is None else 100 * (self.ratio - 1)

    def worse_than(self, percent: float) -> bool:
        """Whether b is more than `percent` worse than a; losses also if they diverged, graphs if any amount grew by more."""
        if self.kind == "losses" and self.alignment is not None and self.alignment.verdict == "diverged":
            return True
        if self.kind == "graphs":
            return any(part.delta > percent / 100 * part.a for part in self.parts)
        return self.slower_percent is not None and self.slower_percent > percent

    def to_frame(self) -> pd.DataFrame:
        """The parts, the largest change first, then their total where there is one, each named by the unit.

        Columns: `part`, `a_ns`, `b_ns`, `delta_ns` (of plans `_s`, of graphs `_bytes`), `change` (relative, in words).
        """
        rows = sorted(self.parts, key=lambda part: -abs(part.delta))
        if self.total_a is not None and self.total_b is not None:
            rows.append(Part("total", self.total_a, self.total_b))
        frame = pd.DataFrame([part.row(self.unit) for part in rows])
        if self.kind == "graphs":
            frame.attrs = {"title": "Amounts, the largest change first"}
        elif self.kind == "runs" or self.alignment is not None:
            frame.attrs = {"title": "Parts of the mean step, the largest change first"}
        else:
            frame.attrs = {"title": "Parts of the step, the largest change first"}
        return folded(frame)

    def to_json(self) -> dict[str, Any]:
        """The document that `perfkit compare --json` prints."""
        if self.kind == "graphs":
            return {"a": self.a, "b": self.b, **self.extra}
        known = self.total_a is not None and self.total_b is not None
        return {
            "a": self.a,
            "b": self.b,
            "kind": self.kind,
            "unit": self.unit,
            "total": {
                "a": self.total_a,
                "b": self.total_b,
                "delta": self.total_b - self.total_a if known else None,  # type: ignore[operator]
                "ratio": self.ratio,
            },
            "parts": [{"path": part.path, "a": part.a, "b": part.b, "delta": part.delta} for part in self.parts],
            "beyond_noise": self.beyond_noise,
            "config": [dict(row) for row in self.config],
            "sentences": list(self.sentences),
            **self.extra,
            **({"operators": self.operators.to_json()} if self.operators is not None else {}),
            **({"names": names_document(self.names)} if self.names is not None else {}),
            "notes": list(self.notes),
        }


def compare(
    a: Any,
    b: Any,
    *,
    kind: Kind | None = None,
    noise_ratio: float = robust.NOISE_RATIO,
    device: HardwareSpec | str | None = None,
    calibration: str | Calibration | None = None,
    operators: bool = False,
    names: tuple[str, str] | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare b with a: paths, runs, plans, graph reports or series of losses.

    `kind` forces one where two would do: training logs are "losses", and "runs" compares their step times. `device` is used for
    plans that name none, `calibration` for their estimates; `operators` also matches the kernels of two runs.
    `names` are what the sides are called.
    Raises InputError if the two do not go together or cannot be read.
    """
    if not 0 <= noise_ratio < 1:
        raise InputError("compare", [f"noise_ratio = {noise_ratio} must be between 0 and 1"])
    left, right = (_on_device(open_side(given, progress), device) for given in (a, b))
    chosen = kind or kind_of(left, right)
    names = names or (name_of(left, a), name_of(right, b))
    try:
        found = _compared(chosen, left, right, noise_ratio, calibration)
    except KeyError as error:
        raise InputError("compare", [f"kind = {chosen!r} does not fit: {names[0]} and {names[1]} are of other kinds"]) from error
    if operators and isinstance(left, Run) and isinstance(right, Run):
        matched = compare_operators(left, right, noise_ratio=noise_ratio)
        found = replace(found, operators=matched, names=compare_names(left, right), notes=(*found.notes, *matched.notes))
    return replace(found, a=names[0], b=names[1])


def _compared(kind: Kind, a: Side, b: Side, noise_ratio: float, calibration: str | Calibration | None) -> Comparison:
    if kind == "graphs" and isinstance(a, GraphReport) and isinstance(b, GraphReport):
        return _graphs(a, b)
    if kind == "plans" and isinstance(a, Plan) and isinstance(b, Plan):
        return _plans(a, b, noise_ratio, calibration)
    if kind == "run_plan" and isinstance(a, Run) and isinstance(b, Plan):
        return _run_plan(a, b, noise_ratio, calibration)
    if kind == "run_plan" and isinstance(a, Plan) and isinstance(b, Run):
        return _swapped(_run_plan(b, a, noise_ratio, calibration))
    if kind == "losses" and isinstance(a, Run | LossSeries) and isinstance(b, Run | LossSeries):
        return _losses(a, b, noise_ratio)
    if kind == "runs" and isinstance(a, Run) and isinstance(b, Run):
        return _runs(a, b, noise_ratio)
    raise KeyError(kind)


def _runs(a: Run, b: Run, noise_ratio: float) -> Comparison:
    old, new = measure(a), measure(b)
    left, right, notes = common(old.breakdown, new.breakdown)
    rows, decided = parts(left, right), beyond_noise(old, new, noise_ratio)
    per_token, more = _per_token(a, b, old, new)
    return Comparison(
        a=a.name,
        b=b.name,
        kind="runs",
        unit="ns",
        total_a=left.total,
        total_b=right.total,
        parts=rows,
        beyond_noise=decided,
        sentences=_sentences(rows, left, right, decided, (old.median_ns, new.median_ns)),
        config=tuple(changed(a, b)),
        notes=tuple(dict.fromkeys((*old.notes, *new.notes, *notes, *more))),
        extra={"samples": {"a": _samples(old), "b": _samples(new)}, **per_token},
    )


def _plans(a: Plan, b: Plan, noise_ratio: float, calibration: str | Calibration | None) -> Comparison:
    old, new = (estimate(plan, calibration=calibration) for plan in (a, b))
    left, right, notes = common(old.breakdown, new.breakdown)
    rows = parts(left, right)
    decided = beyond_noise(old.step_time_s * NS_PER_S, new.step_time_s * NS_PER_S, noise_ratio)
    figures = ("tokens_per_s_per_device", "mfu", "hfu", "peak_memory_bytes")
    return Comparison(
        a="a",
        b="b",
        kind="plans",
        unit="s",
        total_a=left.total,
        total_b=right.total,
        parts=rows,
        beyond_noise=decided,
        sentences=_sentences(rows, left, right, decided),
        config=tuple(changed(a, b)),
        notes=(*notes, *_other_work(a, b)),
        extra={"figures": {name: {"a": getattr(old, name), "b": getattr(new, name)} for name in figures}},
    )


def _run_plan(run: Run, plan: Plan, noise_ratio: float, calibration: str | Calibration | None) -> Comparison:
    found = beside(run, plan, calibration=calibration)
    return Comparison(
        a=run.name,
        b="plan",
        kind="run_plan",
        unit="ns",
        total_a=found.measured.total,
        total_b=found.planned.total,
        parts=parts(found.measured, found.planned),
        beyond_noise=beyond_noise(found.run, float(found.planned.total), noise_ratio),
        sentences=(*_other_job(run, plan, found), *(finding.sentence for finding in found.findings)),
        config=tuple(comparable(run, plan)),
        notes=found.notes,
        beside=found,
        extra={**found.to_json(), "samples": {"a": _samples(found.run), "b": None}},
    )


def _swapped(found: Comparison) -> Comparison:
    """The same with the plan as the first side."""
    samples = found.extra.get("samples", {"a": None})
    return replace(
        found,
        total_a=found.total_b,
        total_b=found.total_a,
        parts=tuple(Part(part.path, part.b, part.a) for part in found.parts),
        config=tuple({**row, "old": row["new"], "new": row["old"]} for row in found.config),
        extra={**found.extra, "samples": {"a": None, "b": samples["a"]}},
    )


def _losses(a: Run | LossSeries, b: Run | LossSeries, noise_ratio: float) -> Comparison:
    config = changed(a, b) if isinstance(a, Run) and isinstance(b, Run) else []
    left, right = (side if isinstance(side, LossSeries) else series_of_run(side) for side in (a, b))
    found = align_losses(left, right, changes=config)
    timed: Comparison | None = None
    if isinstance(a, Run) and isinstance(b, Run):
        try:
            timed = _runs(a, b, noise_ratio)
        except NotMeasuredError:
            timed = None
    told = timed.notes if timed else tuple(note for side in (a, b) if isinstance(side, Run) for note in as_read(side))
    return Comparison(
        a=left.name,
        b=right.name,
        kind="losses",
        unit="ns",
        total_a=timed.total_a if timed else None,
        total_b=timed.total_b if timed else None,
        parts=timed.parts if timed else (),
        beyond_noise=timed.beyond_noise if timed else None,
        sentences=(
            say("{verdict}: {reason}", verdict=found.verdict, reason=found.judgement.reasons[0]),
            *(timed.sentences if timed else ()),
        ),
        config=tuple(config),
        notes=tuple(dict.fromkeys((*found.notes, *told))),
        alignment=found,
        extra=found.to_json(),
    )


def _graphs(a: GraphReport, b: GraphReport) -> Comparison:
    document = graphs_document(a, b)
    counts = {name: str(len(document[name])) for name in ("added", "removed", "moved", "changed")}
    return Comparison(
        a=a.path,
        b=b.path,
        kind="graphs",
        unit="bytes",
        total_a=document["total"]["a"],
        total_b=document["total"]["b"],
        parts=tuple(Part(row["path"], row["a"], row["b"]) for row in document["parts"] if row["delta"] is not None),
        beyond_noise=document["beyond_noise"],
        sentences=(say("operators: {added} added, {removed} removed, {moved} moved, {changed} changed", **counts),),
        notes=tuple(document["notes"]),
        extra=document,
    )


def _on_device(side: Side, device: HardwareSpec | str | None) -> Side:
    if not device or not isinstance(side, Plan) or side.hardware:
        return side
    return replace(side, hardware=catalog.hardware_named(device) if isinstance(device, str) else device)


def _samples(found: Measure) -> dict[str, Any]:
    return {
        "steps": len(found.durations_ns),
        "median_ns": round(found.median_ns),
        "median_abs_dev_ns": round(found.mad_ns),
        "ranks": len(found.ranks),
    }


def _sentences(
    rows: tuple[Part, ...], a: Breakdown, b: Breakdown, decided: bool | None, medians_ns: tuple[float, float] | None = None
) -> tuple[str, ...]:
    """The change of the whole, and the part that changed most.

    The parts of recorded steps are means, which sum to the mean step; what is judged are the medians, so both are said.
    """
    delta, scale = float(b.total - a.total), 1 if a.unit == "ns" else NS_PER_S
    times = "" if not a.total else say(" ({change})", change=format_change(delta / float(a.total)))
    how = {True: "beyond noise", False: "no measurable change", None: "too few steps to tell it from noise"}[decided]
    changed = "{step} is {change} longer{times}: {how}" if delta > 0 else "{step} is {change} shorter{times}: {how}"
    if decided is None and a.source.kind == b.source.kind == "computed":
        times = "" if not a.total else say(" ({change_ratio})", change_ratio=abs(delta / float(a.total)))
        longer, shorter = "{step} is predicted to be {change}{times} longer", "{step} is predicted to be {change}{times} shorter"
        changed = longer if delta > 0 else shorter
    step = "a step" if medians_ns is None else "the mean step"
    if medians_ns is not None:
        old, new = (format_ns(median_ns, 4) for median_ns in medians_ns)
        how = say("{sure} by the medians, {old} and {new}", sure=how, old=old, new=new)
    form = changed if delta else "{step} takes as long as before"
    found = [say(form, step=step, change=format_ns(abs(delta) * scale), times=times, how=how)]
    most = max(rows, key=lambda part: abs(part.delta), default=None)
    if most is not None and most.delta and len(rows) > 1:
        grew = "{part} changed most: {change} more" if most.delta > 0 else "{part} changed most: {change} less"
        found.append(say(grew, part=most.path, change=format_ns(abs(float(most.delta)) * scale)))
    return tuple(found)


def _per_token(a: Run, b: Run, old: Measure, new: Measure) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Time per token of both sides where their steps hold other amounts of data, as the runs state."""
    tokens = [_tokens(run) for run in (a, b)]
    if None in tokens or tokens[0] == tokens[1]:
        return {}, ()
    times = [found.breakdown.total / count for found, count in zip((old, new), tokens, strict=True) if count]
    note = f"a step holds {tokens[0]} tokens in a and {tokens[1]} in b: compare the time per token"
    return {"ns_per_token": {"a": times[0], "b": times[1], "ratio": times[1] / times[0]}}, (note,)


def _tokens(run: Run) -> int | None:
    sizes = [run.facts.get(name) for name in ("global_batch_size", "seq_length")]
    values = [fact.value for fact in sizes if fact is not None and isinstance(fact.value, int) and fact.value > 0]
    return values[0] * values[1] if len(values) == 2 else None


def _other_job(run: Run, plan: Plan, found: Beside) -> tuple[str, ...]:
    """Why the run may not be one of the plan: what it states about itself, or a step that is far from any prediction."""
    form = "{key} is {old} in the run and {new} in the plan"
    differing = [say(form, **{name: str(row[name]) for name in ("key", "old", "new")}) for row in comparable(run, plan)]
    if differing:
        return (say("the run is not of this plan: {differing}", differing=joined(differing[:5], ", ")),)
    ratio = float(found.measured.total) / float(found.planned.total)
    if 1 / FAR_OFF <= ratio <= FAR_OFF:
        return ()
    form = "the step takes {times} times as long as planned: this is hardly a run of this plan"
    return (say(form, times=significant(ratio, 2)),)


def _other_work(a: Plan, b: Plan) -> tuple[str, ...]:
    if a.tokens_per_step == b.tokens_per_step:
        return ()
    form = "a step holds {old} tokens in a and {new} in b: compare the time per token"
    return (say(form, old=str(a.tokens_per_step), new=str(b.tokens_per_step)),)
