"""A run as parts of a report: what was read, where the step went, what is wrong with it, its kernels and collectives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from perfkit.core import quantity, robust
from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import Run
from perfkit.core.units import format_ns, format_ratio
from perfkit.explain.diagnose import diagnose, to_dict
from perfkit.explain.guide_terms import TERMS, guide_terms
from perfkit.explain.ledger import Ledger
from perfkit.explain.steps import parts_told
from perfkit.explain.summary import summarize
from perfkit.explain.training_log import step_statistics, timed
from perfkit.face.charts.ledger import waterfall, waterfall_rows
from perfkit.face.charts.steps import PATHS, part_rows, rank_bars, step_time_rows, step_times, step_trend
from perfkit.face.charts.theme import MAX_MARKS
from perfkit.face.report._parts import Drawing, Part, shown, table_part
from perfkit.project.experiments.export import Section

MOST_RANKS = 64
"""Ranks in one chart: of more, the slowest."""
MOST_STEPS = MAX_MARKS // len(PATHS)
MOST_ROWS = 40


def run_parts(run: Run) -> tuple[Part, ...]:
    """The whole report of a run."""
    summary = summarize(run)
    return (
        _title(run, summary),
        *step_parts(run),
        *_log(run),
        *_findings(run),
        *_kernels(summary),
        *_recording(run, summary),
    )


def step_parts(run: Run, *, level: int = 2, title: str = "Where the step went") -> Iterator[Part]:
    """The step of every rank by part, and the steps of the slowest rank; nothing if the run does not tell parts."""
    if not run.has("step_parts"):
        return
    steps = typical_steps(run)
    slowest = steps.nlargest(MOST_RANKS, "duration_ns")
    shown = sorted(int(rank) for rank in slowest["rank"])
    parts = part_rows(steps[["rank", "step"]].merge(run.frame("step_parts", ranks=shown), on=["rank", "step"]))
    order = {str(rank): place for place, rank in enumerate(shown)}
    parts = parts.sort_values(["rank", "order"], key=lambda column: column.map(order) if column.name == "rank" else column)
    rank = int(slowest.iloc[0]["rank"])
    sentence = _step_sentence(run, rank, int(slowest.iloc[0]["step"]))
    count = f"{len(shown)} ranks" if len(shown) == len(steps) else f"the {len(shown)} slowest of {len(steps)} ranks"
    source = (f"{run.kind}: {run.name}, table step_parts",)
    drawings = [Drawing(rank_bars(parts, unit="ms"), title=f"By rank: {count}", alt=sentence, sources=source)]
    trend = part_rows(run.frame("step_parts", ranks=[rank]))
    numbers = trend["step"].drop_duplicates()
    if len(numbers) > 1:
        kept = trend[trend["step"].isin(numbers.tail(MOST_STEPS))]
        alt = f"{min(len(numbers), MOST_STEPS)} steps of rank {rank}, the slowest rank, by part."
        drawings.append(Drawing(step_trend(kept), title=f"Steps of rank {rank}", alt=alt, sources=source))
    yield Part(Section(title=title, level=level, text=(sentence,)), tuple(drawings))
    yield table_part("Ranks", _RANK_HEADER, (_rank_row(row) for row in steps.to_dict("records")), folded=len(steps) > MOST_ROWS)
    yield _in_words(run, steps)


def _in_words(run: Run, steps: pd.DataFrame) -> Part:
    """The same steps in the terms with which the tuning guides begin."""
    terms = steps[["rank", "step"]].merge(guide_terms(run, steps=set(steps["step"].astype(int))), on=["rank", "step"])
    by_rank = terms.groupby("rank", sort=False)
    rows = ((int(str(rank)), *(None if pd.isna(ns) else format_ns(int(ns)) for ns in own["ns"])) for rank, own in by_rank)
    return table_part("In the words of the tuning guides", ("rank", *TERMS["guide"]), rows, folded=len(steps) > MOST_ROWS)


_RANK_HEADER = ("rank", "stage", "step", "duration", "computing", "exposed communication", "hidden", "bubble", "free")


def typical_steps(run: Run) -> pd.DataFrame:
    """One row a rank: the step with parts whose duration is nearest to the rank's median."""
    told = run.frame("step_parts", columns=["rank", "step"]).drop_duplicates()
    steps = run.steps().merge(told, on=["rank", "step"])
    distance = (steps["duration_ns"] - steps.groupby("rank")["duration_ns"].transform("median")).abs()
    return steps.loc[distance.groupby(steps["rank"]).idxmin()].reset_index(drop=True)


def _rank_row(row: Mapping[Any, Any]) -> tuple[Any, ...]:
    times = ("duration_ns", "computing_ns", "exposed_communication_ns", "overlapped_ns", "bubble_ns", "free_ns")
    stage = None if pd.isna(row["pipeline_stage"]) else int(row["pipeline_stage"])
    return (int(row["rank"]), stage, int(row["step"]), *(None if pd.isna(row[name]) else shown(name, row[name]) for name in times))


def _step_sentence(run: Run, rank: int, step: int) -> str:
    breakdown = run.step_breakdown(rank, step)
    rest = f" Not told apart by this recording: {', '.join(sorted(breakdown.unmeasured))}." if not breakdown.complete else ""
    took = format_ns(int(breakdown.total))
    return f"Step {step} of rank {rank}, the slowest rank, took {took}: {parts_told(breakdown)}.{rest}"


def _title(run: Run, summary: Mapping[str, Any]) -> Part:
    steps = run.frame("steps" if run.has("steps") else "log", columns=["rank", "step"])
    ranks = _count(summary["ranks_found"], "rank")
    text = [f"{run.kind.capitalize()} run, format {run.format}: {ranks}, {_count(steps['step'].nunique(), 'step')}."]
    text += [*run.lost_told, "What was lost is listed at the end."] if run.dropped else []
    return Part(Section(title=run.name, level=1, text=(*text, *run.notes)))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _log(run: Run) -> Iterator[Part]:
    if not run.has("log"):
        return
    try:
        log = timed(run.frame("log"))
    except NotMeasuredError:
        return
    num_warmup = len(robust.warm_up(log))
    found = step_statistics(log, num_warmup)
    sentence = (
        f"After the first {num_warmup} the median of {found.num_steps} steps is {quantity.text('step_time_ns', found.median_ns)} "
        f"with a median absolute deviation of {format_ns(found.mad_ns)}."
    )
    rows = step_time_rows(log, found)
    drawing = Drawing(step_times(rows), title="Time of every step", alt=sentence, sources=(f"measured: {run.name}",))
    yield Part(Section(title="Step times of the log", text=(sentence,)), (drawing,))


def _accounted(ledger: Ledger) -> Iterator[Part]:
    """The mean step of a rank by cause, down to what is unexplained; nothing without steps."""
    if ledger.explained_share is None:
        return
    said = ledger.told()
    source = (f"{ledger.kind}: {ledger.name}, all judged steps",)
    rows = {"ledger": waterfall_rows(ledger.waterfall())}
    # A kept page fits its charts to its width, which Vega-Lite does for a height in pixels alone.
    chart = waterfall(rows).properties(height=22 * len({row["cause"] for row in rows["ledger"]}))
    drawing = Drawing(chart, title="The mean step by cause", alt=said, sources=source)
    yield Part(Section(title="Where every nanosecond went", level=3, text=(said,)), (drawing,))


def _findings(run: Run) -> Iterator[Part]:
    diagnosis = diagnose(run)
    document = to_dict(diagnosis)
    found = document["findings"]
    text = [*document["notes"]] if found else ["Nothing was found that costs time.", *document["notes"]]
    header = ("severity", "what", "cost a step", "share of the step", "rule")
    rows = [
        (
            item["severity"],
            item["title"],
            shown("cost_ns", item["cost_ns"]),
            None if item["share_of_step"] is None else format_ratio(item["share_of_step"]),
            item["rule"],
        )
        for item in found
    ]
    yield table_part("Findings", header, rows, level=2, told=text)
    yield from _accounted(diagnosis.ledger)
    for number, item in enumerate(found, start=1):
        subject = "; ".join(f"{name} {', '.join(map(str, values))}" for name, values in item["subject"].items() if values)
        text = [f"Concerns: {subject}."] if subject else []
        text += [f"Evidence: {quantity.listed(item['evidence'])}."] if item["evidence"] else []
        yield Part(Section(title=f"{number}. {item['title']}", level=3, text=(*text, *(f"→ {what}" for what in item["actions"]))))
    healthy = [(item["rule"], quantity.listed(item["evidence"])) for item in document["healthy"]]
    if healthy:
        yield table_part("Healthy", ("rule", "evidence"), healthy, folded=True)
    missing = [(item["how_to_collect"], ", ".join(item["rules"])) for item in document["to_collect"]]
    if missing:
        yield table_part("Not measured", ("one more recording", "would answer"), missing, folded=True)
    if document["failed"]:
        failed = [(item["rule"], item["error"]) for item in document["failed"]]
        yield table_part("Rules that failed, which is a bug of perfkit", ("rule", "error"), failed)


def _kernels(summary: Mapping[str, Any]) -> Iterator[Part]:
    if summary["kernels"]:
        total = sum(row["total_ns"] for row in summary["kernels"]) or 1
        rows = [
            (row["name"], row["count"], shown("total_ns", row["total_ns"]), format_ratio(row["total_ns"] / total))
            for row in summary["kernels"][:MOST_ROWS]
        ]
        text = [f"The {MOST_ROWS} largest of {len(summary['kernels'])}."] if len(summary["kernels"]) > MOST_ROWS else []
        yield table_part("Kernels, all ranks", ("kernel", "count", "total", "share"), rows, level=2, told=text)
    if summary["collectives"]:
        collectives = [
            (row["name"], row["group_size"], row["count"], shown("total_ns", row["total_ns"]), shown("bytes", row["bytes"]))
            for row in summary["collectives"][:MOST_ROWS]
        ]
        header = ("operation", "group size", "count", "total", "bytes")
        yield table_part("Communication, all ranks", header, collectives, level=2)


def _recording(run: Run, summary: Mapping[str, Any]) -> Iterator[Part]:
    facts = [(name, fact.value, str(fact.source)) for name, fact in sorted(run.facts.items())]
    if facts:
        yield table_part("What the recording says about the job", ("setting", "value", "source"), facts, level=2, folded=True)
    if summary["dropped"]:
        lost = [(item["what"], item["count"], item["file"]) for item in summary["dropped"]]
        yield table_part("What could not be read", ("what", "count", "file"), lost, level=2)
