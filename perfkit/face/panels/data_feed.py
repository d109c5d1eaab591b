"""Data feed: whether the device waits for data, and which part of the pipeline is too slow, question by question."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.core.units import NS_PER_MS, format_ratio
from perfkit.explain.data_feed import Feed, judge_feed
from perfkit.face.charts.data_feed import interval_bars, interval_rows, queue_points, queue_rows, usage_bars, usage_rows
from perfkit.face.widgets import context
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.control import Choice, Number, PathPicker
from perfkit.face.widgets.panel import Action, Answer, Code, Empty, Panel
from perfkit.face.widgets.table import Table
from perfkit.project.experiments import ExperimentLog

SAMPLE = "traces/mindinsight_feed"
TIMED_BY_HAND = "Time your own code between iterator and network: no profiler sees it. Enter the mean at the right"
TIMER = """import time

spent_ns, steps = 0, 0
for batch in dataset_iterator:
    begin_ns = time.perf_counter_ns()
    batch = prepare(batch)  # what you do with a batch before the network gets it
    spent_ns += time.perf_counter_ns() - begin_ns
    steps += 1
    train_step(batch)
print(f"{spent_ns / steps / 1e6:.3f} ms a step")
"""
VERDICTS = {
    "healthy": "The device does not wait for data",
    "processing": "Processing the data is too slow",
    "transfer": "The transfer from host to device is too slow",
    "getnext": "GetNext itself is slow",
    "custom-code": "Code of your own between iterator and network takes the time",
    "host": "Data waits, so the host is late for another reason",
    "unknown": "Steps wait before they begin; what was recorded does not tell for what",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """The recording, the rank (-1: the one that waits longest), and the self-timed code in ms a step (0: not timed)."""

    run: str
    rank: int = -1
    custom_ms: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The judgement of one rank."""

    state: State
    run: Run
    feed: Feed


def start() -> State:
    """The project's open recording if it is one of its own, else the sample with queues."""
    project = context.current_project()
    own = project.open_run if project is not None else None
    if own is not None and own.exists() and not context.is_sample(own):
        return State(run=str(own))
    return State(run=str(data_folder() / SAMPLE))


def compute(state: State, progress: context.Progress | None = None) -> Result:
    """Judge the rank; raises NotMeasuredError where the recording has no steps."""
    run = context.read_run(state.run, progress)
    custom_ns = round(state.custom_ms * NS_PER_MS) if state.custom_ms else None
    ranks = list(run.ranks)
    if not ranks:
        raise InputError("recording", [f"{run.name} has no rank"])
    if state.rank in ranks:
        return Result(state=state, run=run, feed=judge_feed(run, state.rank, custom_ns=custom_ns))
    feeds = [judge_feed(run, rank, custom_ns=custom_ns) for rank in ranks[:16]]
    return Result(state=state, run=run, feed=max(feeds, key=lambda feed: feed.interval_share))


def view(result: Result) -> Answer:
    """Intervals, queues and operators as charts; the way to the judgement and the operators as tables."""
    run, feed = result.run, result.feed
    source = [f"measured: {run.name}, tables step_parts, kernels and queues"]
    charts = {
        "intervals": Figure(
            chart=interval_bars(interval_rows(feed.intervals)),
            title=context.marked(result.state.run, f"Wait before every step of rank {feed.rank}"),
            sources=source,
            table="intervals",
            wide=True,
        )
    }
    if feed.queues:
        charts["queues"] = Figure(
            chart=queue_points(queue_rows(run.frame("queues", ranks=[feed.rank]))),
            title="Entries in the data queues",
            sources=source,
        )
    if feed.operators["usage_ratio"].notna().any():
        charts["usage"] = Figure(
            chart=usage_bars(usage_rows(feed.operators, feed.suspect)),
            title="Queues behind the dataset's operators",
            sources=source,
        )
    path = pd.DataFrame(
        [(branch.question, branch.measured, branch.answer) for branch in feed.path], columns=["question", "measured", "answer"]
    )
    tables = {"path": Table(frame=path, title="The way to this answer")}
    if len(feed.operators):
        tables["operators"] = Table(frame=feed.operators, title="Operators of the dataset, by how full the queue behind them is")
    code = () if feed.cause == "healthy" or result.state.custom_ms else (Code(title=TIMED_BY_HAND, text=TIMER),)
    return Answer(charts, tables, _sentence(feed), _notes(feed), code)


def _sentence(feed: Feed) -> str:
    text = f"{VERDICTS[feed.cause]}: rank {feed.rank} spends {format_ratio(feed.interval_share)} of its steps waiting to begin."
    if feed.suspect:
        text += f" Start with {feed.suspect}."
    return text + (f" {feed.actions[0].capitalize()}." if feed.actions else "")


def _notes(feed: Feed) -> tuple[str, ...]:
    return (*(f"Then: {action}." for action in feed.actions[1:]), *(f"Not measured: {text}." for text in feed.missing))


def save_finding(state: State) -> str:
    """Note the judgement in the log of the project as an event of the open round."""
    project = context.current_project()
    if project is None:
        raise InputError("project", ["no project is open; make one on page 00"])
    feed = compute(state).feed
    detail = {
        "run": state.run,
        "rank": feed.rank,
        "cause": feed.cause,
        "interval_share": feed.interval_share,
        "suspect": feed.suspect,
    }
    ExperimentLog(project.folder).record_event("data-feed", detail, page="16_data_feed", number=project.open_round)
    return f"Noted: {VERDICTS[feed.cause].lower()}."


def options(_state: object = None) -> list[tuple[str, str, str]]:
    """Recordings to choose from, the sample with queues among them."""
    return [*context.run_options(), ("Step trace with data queues (MindSpore Insight)", str(data_folder() / SAMPLE), "Samples")]


def _ranks(state: State) -> list[tuple[str, int]]:
    ranks = list(context.read_run(state.run).ranks) if state.run else []
    return [("the one that waits longest", -1), *((str(rank), rank) for rank in ranks)]


def fill(state: State) -> State:
    """The sample with queues."""
    return replace(state, run=str(data_folder() / SAMPLE))


PANEL = Panel(
    title="Does the device wait for data?",
    start=start,
    compute=compute,
    view=view,
    empty=Empty(action="Use the sample with data queues", fill=fill),
    shared=("run", "rank"),
    actions=(
        Action(
            name="save", label="Note this in the round", run=save_finding, help="one event in the log", visible=context.can_save
        ),
    ),
    controls=(
        PathPicker(path="run", options=options, label="Recording", help="a folder of profiles"),
        Choice(path="rank", options=_ranks, label="Rank"),
        Number(
            path="custom_ms",
            low=0.0,
            high=1_000_000,
            label="Own code between iterator and network",
            unit="ms a step",
            empty=0.0,
            placeholder="not timed",
            help="time it by hand: no profiler sees it",
        ),
    ),
)
