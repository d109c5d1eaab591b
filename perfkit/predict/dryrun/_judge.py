"""Judged: logs of simulated ranks and a plan, together and against the limit: rows, what to do, and both in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.looks import brief
from perfkit.core.run import Run
from perfkit.core.spec.plan import Plan
from perfkit.core.units import MIB, format_bytes, format_change, format_ratio
from perfkit.predict.dryrun._advice import Advice, advise
from perfkit.predict.dryrun._peaks import LoggedPeak, Meaning, has_several, read_peaks
from perfkit.predict.dryrun._substitute import Substitute, substitute
from perfkit.predict.dryrun._table import PREDICTED, Row, fullest, rank_rows

IN_MIB = {"used_mib": "without gaps", "actual_mib": "with gaps", "limit_mib": "limit", "headroom_mib": "headroom"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """Every rank against the limit. `likely` is None without a plan, `advice` where no rank has both a peak and a limit.

    `several` says that one file holds several statistics, of which `meaning` tells what they are.
    """

    peaks: tuple[LoggedPeak, ...]
    meaning: Meaning
    several: bool
    likely: Substitute | None
    rows: tuple[Row, ...]
    advice: Advice | None

    @property
    def fullest(self) -> Row | None:
        """The row with the least room."""
        return fullest(self.rows)

    @property
    def limit_bytes(self) -> int | None:
        """The lowest limit of a rank."""
        return min((row.limit_bytes for row in self.rows if row.limit_bytes is not None), default=None)

    def told(self) -> tuple[str, ...]:
        """The answer, then what there is to know about it."""
        return (_answer(self), _note(self))

    @property
    def bars(self) -> list[dict[str, Any]]:
        """A bar a rank for `perfkit.face.charts.dryrun.rank_bar_rows`."""
        return [_bar(row, self.likely) for row in self.rows]

    def to_frame(self) -> pd.DataFrame:
        """One row a rank in whole MiB, as the logs print: `rank`, `stage`, `origin`, peaks, limit, headroom, shares and note."""
        sizes = ("used_bytes", "actual_bytes", "limit_bytes", "headroom_bytes")
        frame = pd.DataFrame(
            [
                {
                    "rank": row.label,
                    "stage": row.stage,
                    "origin": row.origin,
                    **{name: _whole_mib(getattr(row, size)) for name, size in zip(IN_MIB, sizes, strict=True)},
                    "headroom_ratio": row.headroom_bytes / row.limit_bytes if row.headroom_bytes and row.limit_bytes else None,
                    "fragmentation_ratio": row.fragmentation_ratio,
                    "note": row.note,
                }
                for row in self.rows
            ]
        ).astype(dict.fromkeys(("stage", *IN_MIB), "object"))
        frame.attrs |= {"title": "By rank, in MiB as the logs print", "labels": IN_MIB, "units": dict.fromkeys(IN_MIB, "MiB")}
        return brief(frame, "rank", "origin", *IN_MIB, "note")


def judge(
    run: Run | None, plan: Plan | None = None, *, meaning: Meaning = "not said", ranks: str = "", limit_bytes: int | None = None
) -> Judged:
    """Read the statistics of `run` and predict the ranks of `plan` that have none; one of both may be None.

    `ranks` names those of several statistics ("0, 4, 8"); of statistics before and after a change the last one is that of the plan.
    Raises InputError with every rank that is none, and without run and plan.
    """
    if run is None and plan is None:
        raise InputError("dry run", ["neither a log nor a plan is given; give one of them"])
    several = run is not None and has_several(run)
    peaks = () if run is None else read_peaks(run, meaning, _numbers(ranks))
    present = peaks[-1:] if several and meaning == "before and after" else peaks
    likely = None if plan is None else substitute(plan, present)
    told = () if several and meaning == "not said" else rank_rows(present, likely, limit_bytes)
    rows = rank_rows(peaks, likely, limit_bytes)
    return Judged(peaks=peaks, meaning=meaning, several=several, likely=likely, rows=rows, advice=_advice(told, likely))


def steps_table(advice: Advice | None) -> pd.DataFrame:
    """Changes to try, the cheapest for its bytes first: `change`, `peak_bytes`, `saved_bytes`, `enough` and `price`."""
    names = ("change", "peak_bytes", "saved_bytes", "enough", "price")
    steps = () if advice is None else advice.steps
    frame = pd.DataFrame([{name: getattr(step, name) for name in names} for step in steps], columns=list(names))
    return frame.assign(enough=["yes" if step.enough else "no" for step in steps])


def correction_table(likely: Substitute) -> pd.DataFrame:
    """What the logs correct of the calculator, in words: `correction` and `value`."""
    found = likely.calibration
    gaps = "not measured" if found.fragments_ratio is None else format_ratio(found.fragments_ratio)
    rows = [(f"factor of {name}", f"{factor:.3f}") for name, factor in found.factors.items()]
    apart = (("largest error before", found.uncalibrated_error), ("largest error, each log from the others", found.largest_error))
    rows += [(name, "not measured" if error is None else format_ratio(error)) for name, error in apart]
    rows += [("offset of every rank", format_bytes(round(found.offset_bytes))), ("gaps over blocks in use", gaps)]
    return pd.DataFrame(rows, columns=["correction", "value"])


def correction_told(likely: Substitute) -> str:
    """How far the calculator was off, in a sentence."""
    found = likely.calibration
    if found.num_logs == 0 or found.uncalibrated_error is None:
        return "No log corrects the prediction: the calculator alone, with a wide range."
    text = f"Before the correction the calculator missed the logs by up to {format_ratio(found.uncalibrated_error)}"
    left = "" if found.largest_error is None else f"; each log predicted from the others by {format_ratio(found.largest_error)}"
    return f"{text}{left}. Lines on predicted bars hold four of five cases."


def _advice(rows: Sequence[Row], likely: Substitute | None) -> Advice | None:
    try:
        return advise(rows, likely)
    except NotMeasuredError:
        return None


def _numbers(text: str) -> tuple[int, ...]:
    words = [word for word in re.split(r"[\s,;]+", text) if word]
    wrong = [f"{word!r} is no rank; write for example 0, 7, 8" for word in words if not re.fullmatch(r"[0-9]{1,7}", word)]
    if wrong:
        raise InputError("ranks of the statistics", wrong)
    return tuple(int(word) for word in words)


def _bar(row: Row, likely: Substitute | None) -> dict[str, Any]:
    guess = likely.stages[row.stage] if likely is not None and row.stage is not None and row.origin == PREDICTED else None
    return {
        "label": row.label if row.stage is None else f"{row.label}, stage {row.stage}",
        "predicted": row.origin == PREDICTED,
        "used_bytes": row.used_bytes,
        "actual_bytes": row.actual_bytes,
        "headroom_bytes": row.headroom_bytes,
        "low_bytes": guess.low_bytes if guess else None,
        "high_bytes": guess.high_bytes if guess else None,
    }


def _answer(judged: Judged) -> str:
    peaks = judged.peaks
    if judged.several and judged.meaning == "not said":
        return (
            f"{len(peaks)} statistics in one file: say whether they are one of each rank, or before and after a change. "
            "The file does not tell, and perfkit does not guess."
        )
    if judged.several and judged.meaning == "before and after":
        first, last = peaks[0].peak_bytes, peaks[-1].peak_bytes
        if first and last:
            return (
                f"The change took the peak from {format_bytes(first)} to {format_bytes(last)}: {format_change(last / first - 1)}."
            )
    row = judged.fullest
    if row is None:
        return "The logs state no peak; set MS_MEMORY_STATISTIC=1 and run again."
    gaps = f", {format_ratio(row.fragmentation_ratio)} of it gaps between blocks" if row.fragmentation_ratio else ""
    gaps = ", none of it gaps between blocks" if row.fragmentation_ratio == 0 else gaps
    verb = "is predicted to peak" if row.origin == PREDICTED else "peaks"
    text = f"{row.begun} {verb} at {format_bytes(row.actual_bytes or row.used_bytes or 0)}{gaps}"
    if row.headroom_bytes is None or row.limit_bytes is None:
        return f"{text}. No limit is known: set one above."
    if row.headroom_bytes < 0:
        return f"{text}: {format_bytes(-row.headroom_bytes)} above its limit of {format_bytes(row.limit_bytes)}. It does not fit."
    return f"{text}: {format_bytes(row.headroom_bytes)} below its limit of {format_bytes(row.limit_bytes)}."


def _note(judged: Judged) -> str:
    if judged.likely is None:
        return "With the plan of these logs the page predicts the ranks without one, and names the change that frees enough."
    return "A dry run leaves out the workspace of operators: keep some room (published: 0.1 to 1.3 % of the peak)."


def _whole_mib(size: int | None) -> int | None:
    return None if size is None else round(size / MIB)
