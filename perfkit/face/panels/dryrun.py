"""Dry run: what simulated ranks say about memory, what the ranks without a log would say, and the commands to simulate more."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from perfkit.config.collect import Snippet
from perfkit.core import catalog
from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.core.units import GIB, MIB, format_ratio
from perfkit.face.charts.dryrun import rank_bar_rows, rank_bars
from perfkit.face.panels._plan_state import preset_plan
from perfkit.face.widgets import context
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.control import Choice, Number, PathPicker, Text
from perfkit.face.widgets.panel import Action, Answer, Code, Empty, Panel
from perfkit.face.widgets.status import NothingYet
from perfkit.face.widgets.table import Table
from perfkit.predict import dryrun
from perfkit.project.experiments import ExperimentLog

SAMPLES = {
    "Qwen2.5-7B, rank 0 of 4": ("qwen2.5_7b/as_trained", "qwen2.5_7b/as_trained/pretrain.sh"),
    "Qwen2.5-7B, recomputed": ("qwen2.5_7b/full_recompute", "qwen2.5_7b/full_recompute/pretrain.sh"),
    "Log of the guides (HBM)": ("guide.log", ""),
    "Simulation level 1 (MOC)": ("sim_level1.log", ""),
    "Two statistics in one file": ("recompute_before_after.log", ""),
    "Four stages, one too full (made up)": ("pp4", ""),
}
NO_PLAN = "none"
VERSIONS = ("2.7", "2.6", "2.5", "2.4", "2.3", "2.2")
COLUMNS = ("without gaps", "with gaps", "limit", "headroom")


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """The logs, what several statistics of one file are, and the plan. A sample brings its own plan; `plan_of` is its log."""

    log: str = ""
    meaning: dryrun.Meaning = "not said"
    ranks: str = ""
    plan: str = NO_PLAN
    plan_of: str = ""
    limit_gib: float = 0.0
    version: str = VERSIONS[0]
    more_ranks: str = ""
    command: str = dryrun.TRAIN

    def __post_init__(self) -> None:
        if self.plan_of != self.log:
            partners = {_sample(log): plan for log, plan in SAMPLES.values()}
            if self.log in partners:
                object.__setattr__(self, "plan", _sample(partners[self.log]) if partners[self.log] else NO_PLAN)
            object.__setattr__(self, "plan_of", self.log)


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """All that the page shows."""

    state: State
    peaks: tuple[dryrun.LoggedPeak, ...]
    several: bool
    likely: dryrun.Substitute | None
    rows: tuple[dryrun.Row, ...]
    advice: dryrun.Advice | None
    commands: tuple[Snippet, ...]


def start() -> State:
    """The published dry run of Qwen2.5-7B."""
    return State(log=_sample(next(iter(SAMPLES.values()))[0]))


def compute(state: State, progress: context.Progress | None = None) -> Result:
    """Read the logs and predict the ranks that have none; raises InputError with every rank and setting that does not fit."""
    if not state.log and state.plan == NO_PLAN:
        raise NothingYet("Choose a log of a dry run, or a plan whose memory to predict.")
    peaks: tuple[dryrun.LoggedPeak, ...] = ()
    several = False
    if state.log:
        run = context.read_run(state.log, progress)
        several = dryrun.has_several(run)
        peaks = dryrun.read_peaks(run, state.meaning, _numbers(state.ranks, "ranks of the statistics"))
    plan = None if state.plan == NO_PLAN else preset_plan(state.plan)
    # Of statistics before and after a change the last one is that of the present plan.
    present = peaks[-1:] if several and state.meaning == "before and after" else peaks
    likely = None if plan is None else dryrun.substitute(plan, present)
    limit = round(state.limit_gib * GIB) or None
    rows = dryrun.rank_rows(peaks, likely, limit)
    judged = () if several and state.meaning == "not said" else dryrun.rank_rows(present, likely, limit)
    asked = _numbers(state.more_ranks, "ranks to simulate")
    commands = () if plan is None else dryrun.commands(plan, state.version, asked or None, command=state.command)
    return Result(
        state=state, peaks=peaks, several=several, likely=likely, rows=rows, advice=_advice(judged, likely), commands=commands
    )


def _advice(rows: tuple[dryrun.Row, ...], likely: dryrun.Substitute | None) -> dryrun.Advice | None:
    try:
        return dryrun.advise(rows, likely)
    except NotMeasuredError:
        return None


def _numbers(text: str, what: str) -> tuple[int, ...]:
    words = [word for word in re.split(r"[\s,;]+", text) if word]
    wrong = [f"{word!r} is no rank; write for example 0, 7, 8" for word in words if not re.fullmatch(r"[0-9]{1,7}", word)]
    if wrong:
        raise InputError(what, wrong)
    return tuple(int(word) for word in words)


def view(result: Result) -> Answer:
    """Ranks against the limit, the figures by rank, what to try, and the commands."""
    state, rows = result.state, result.rows
    limits = {row.limit_bytes for row in rows if row.limit_bytes is not None}
    sources = [f"measured: {name}" for name in sorted({peak.file for peak in result.peaks})[:4]]
    if result.likely is not None:
        sources.append("computed: perfkit.predict.dryrun.substitute" + (" corrected by the logs" if result.peaks else ""))
    text = _sentence(result)
    charts = {
        "ranks": Figure(
            chart=rank_bars(rank_bar_rows([_bar(row, result.likely) for row in rows], min(limits, default=None))),
            title=context.marked(state.log, "Peak of every rank, without and with gaps between blocks"),
            alt=text,
            sources=sources,
            table="ranks",
            wide=True,
        )
    }
    tables = {"peaks": Table(frame=_frame(result), title="By rank, in MiB as the logs print", units=dict.fromkeys(COLUMNS, "MiB"))}
    if result.advice is not None and result.advice.steps:
        tables["steps"] = Table(frame=_steps(result.advice), title="What to try, the cheapest for its bytes first")
    if result.likely is not None and result.peaks:
        tables["correction"] = Table(frame=_correction(result.likely), title="What the logs correct of the calculator")
    code = tuple(Code(part.text, part.language, f"Dry run in {part.file_hint}") for part in result.commands)
    return Answer(charts, tables, text, _notes(result), code)


def _bar(row: dryrun.Row, likely: dryrun.Substitute | None) -> dict[str, object]:
    guess = likely.stages[row.stage] if likely is not None and row.stage is not None and row.origin == "predicted" else None
    return {
        "label": row.label if row.stage is None else f"{row.label}, stage {row.stage}",
        "predicted": row.origin == "predicted",
        "used_bytes": row.used_bytes,
        "actual_bytes": row.actual_bytes,
        "headroom_bytes": row.headroom_bytes,
        "low_bytes": guess.low_bytes if guess else None,
        "high_bytes": guess.high_bytes if guess else None,
    }


def _sentence(result: Result) -> str:
    peaks, rows = result.peaks, result.rows
    if result.several and result.state.meaning == "not said":
        return (
            f"{len(peaks)} statistics in one file: say whether they are one of each rank, or before and after a change. "
            "The file does not tell, and perfkit does not guess."
        )
    if result.several and result.state.meaning == "before and after":
        first, last = peaks[0].peak_bytes, peaks[-1].peak_bytes
        if first and last:
            return f"The change took the peak from {_mib(first)} to {_mib(last)}: {(last / first - 1) * 100:+.1f} %."
    row = dryrun.fullest(rows)
    if row is None:
        return "The logs state no peak; set MS_MEMORY_STATISTIC=1 and run again."
    peak = row.actual_bytes or row.used_bytes or 0
    gaps = "" if row.fragmentation_ratio is None else f", {_share(row.fragmentation_ratio)} of it gaps between blocks"
    text = f"{row.label[:1].upper()}{row.label[1:]} is {row.origin} to peak at {_mib(peak)}{gaps}"
    if row.origin == "logged":
        text = f"{row.label[:1].upper()}{row.label[1:]} peaks at {_mib(peak)}{gaps}"
    if row.headroom_bytes is None or row.limit_bytes is None:
        return f"{text}. No limit is known: set one above."
    if row.headroom_bytes < 0:
        return f"{text}: {_mib(-row.headroom_bytes)} above its limit of {_mib(row.limit_bytes)}. It does not fit."
    return f"{text}: {_mib(row.headroom_bytes)} below its limit of {_mib(row.limit_bytes)}."


def _notes(result: Result) -> tuple[str, ...]:
    notes = [] if result.advice is None else [result.advice.reason]
    if result.likely is not None:
        found = result.likely.calibration
        if found.num_logs == 0:
            notes.append("No log corrects the prediction: the calculator alone, with a wide range.")
        elif found.uncalibrated_error is not None:
            text = f"Before the correction the calculator missed the logs by up to {format_ratio(found.uncalibrated_error)}"
            left = (
                ""
                if found.largest_error is None
                else f"; each log predicted from the others by {format_ratio(found.largest_error)}"
            )
            notes.append(f"{text}{left}. Lines on predicted bars hold four of five cases.")
        notes.append("A dry run leaves out the workspace of operators: keep some room (published: 0.1 to 1.3 % of the peak).")
    elif result.peaks:
        notes.append("With the plan of these logs the page predicts the ranks without one, and names the change that frees enough.")
    return tuple(notes)


def _frame(result: Result) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "rank": row.label,
                "stage": row.stage,
                "origin": row.origin,
                "without gaps": _whole_mib(row.used_bytes),
                "with gaps": _whole_mib(row.actual_bytes),
                "fragmentation_ratio": row.fragmentation_ratio,
                "limit": _whole_mib(row.limit_bytes),
                "headroom": _whole_mib(row.headroom_bytes),
                "note": row.note,
            }
            for row in result.rows
        ]
    ).astype(dict.fromkeys(("stage", *COLUMNS), "object"))


def _steps(advice: dryrun.Advice) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "change": step.change,
                "peak_bytes": step.peak_bytes,
                "saved_bytes": step.saved_bytes,
                "enough": "yes" if step.enough else "no",
                "price": step.price,
            }
            for step in advice.steps
        ]
    )


def _correction(likely: dryrun.Substitute) -> pd.DataFrame:
    found = likely.calibration
    rows = [(f"factor of {name}", f"{factor:.3f}") for name, factor in found.factors.items()]
    rows.append(("offset of every rank", _mib(round(found.offset_bytes))))
    rows.append(
        ("gaps over blocks in use", "not measured" if found.fragments_ratio is None else format_ratio(found.fragments_ratio))
    )
    return pd.DataFrame(rows, columns=["correction", "value"])


def _share(ratio: float) -> str:
    return format_ratio(ratio) if ratio else "none"


def _whole_mib(size: int | None) -> int | None:
    return None if size is None else round(size / MIB)


def _mib(size: int) -> str:
    return f"{round(size / MIB):,} MiB"


def _sample(name: str) -> str:
    return str(data_folder() / "dryrun" / name)


def _logs(_state: object = None) -> list[tuple[str, str, str]]:
    return [*context.log_options(), *((label, _sample(log), "Samples of dry runs") for label, (log, _) in SAMPLES.items())]


def _plans(_state: object = None) -> list[tuple[str, str, str]]:
    own = [("no plan: the logs only", NO_PLAN, "")]
    samples = [(f"{label}: its plan", _sample(plan), "Samples of dry runs") for label, (_, plan) in SAMPLES.items() if plan]
    configs = [(label, path, f"Configuration ({group})") for label, path, group in context.config_options()]
    return [*own, *samples, *configs, *((name, name, "Published models on 16 devices") for name in catalog.models())]


def _one_file(state: State) -> bool:
    return bool(state.log) and Path(state.log).is_file()


def save_peak(state: State) -> str:
    """Write the peak of the fullest rank to the open round as its prediction of peak memory, in bytes.

    Raises InputError without a round that can take it; the log refuses it once the round has a run.
    """
    project = context.current_project()
    result = compute(state)
    row = dryrun.fullest(result.rows)
    peak = None if row is None else row.actual_bytes or row.used_bytes
    problems = [] if project is not None and project.open_round is not None else ["no round is open; start one on page 00"]
    problems += [] if peak else ["no rank of these logs has a peak"]
    if problems or project is None or project.open_round is None or row is None or not peak:
        raise InputError("dry run", problems)
    method = f"dry run, {row.label}: {row.origin}"
    ExperimentLog(project.folder).predict(project.open_round, "peak_memory_bytes", peak, method=method)
    return f"Round {project.open_round} now predicts a peak of {peak / MIB:,.0f} MiB.".replace(",", "\u2009")


PANEL = Panel(
    title="Memory of simulated ranks",
    start=start,
    compute=compute,
    view=view,
    empty=Empty(action="Use the sample dry run", fill=lambda _state: start()),
    shared=("log", "plan"),
    actions=(
        Action(
            name="save",
            label="Predict this peak in the round",
            run=save_peak,
            help="writes the peak of the fullest rank to the log, as a prediction",
            visible=context.can_save,
        ),
    ),
    controls=(
        PathPicker(path="log", options=_logs, label="Logs", help="a log, or the folder output_dryrun with rank_N.log"),
        Choice(
            path="meaning",
            options=(("not said", "not said"), ("one of each rank", "ranks"), ("before and after", "before and after")),
            buttons=True,
            label="Several statistics in one file are",
            visible=_one_file,
        ),
        Text(path="ranks", label="Their ranks", placeholder="0, 4, 8, 12", visible=lambda state: state.meaning == "ranks"),
        Choice(path="plan", options=_plans, label="Plan of the job"),
        Number(
            path="limit_gib",
            low=0,
            high=2048,
            label="Limit",
            empty=0,
            placeholder="as logged",
            unit="GiB",
            key="context.max_device_memory",
        ),
        Choice(path="version", options=VERSIONS, label="MindSpore", help="decides which variables come first"),
        Text(path="more_ranks", label="Ranks to simulate", placeholder="first and last of every stage"),
        Text(path="command", label="Command that trains"),
    ),
)
