"""Data feed: how long steps wait before they begin, how full the queues of the data pipeline are, and which part is too slow.

The judgement follows the guide of MindSpore Insight, with its words made exact: a queue is empty where at least half of the steps
find it so, sometimes empty from 5 % on, filled below. The first two steps are left out, as they fill the pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd

from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.run import Run
from perfkit.core.shortening import shortened
from perfkit.core.texts import say
from perfkit.core.units import format_ns, format_ratio, significant

EMPTY, SOMETIMES = 0.5, 0.05
LEAST_INTERVAL = 0.02
CUSTOM_SHARE = 0.5
GETNEXT_SHARE = 0.01
LEFT_OUT = 2
GRAIN_NS = 10
"""Steps that all begin closer than this to their first kernel were cut there: one time stamp, differently rounded."""
USAGE_STEP, LOW_SOURCE, HIGH_LAST = 0.1, 0.6, 0.8
"""Usage of queues by MindSpore Insight's own analyser (`minddata_analyser.py`)."""

State = Literal["empty", "sometimes empty", "filled"]


@dataclass(frozen=True, slots=True)
class Branch:
    """One question on the way to the judgement, what was measured, and the answer that was taken."""

    question: str
    measured: str
    answer: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Feed:
    """The judgement for one rank.

    `intervals`: `step`, `interval_ns`, `duration_ns`. `operators`: `operator`, `parent`, `mean_size`, `capacity`, `usage_ratio`,
    `empty_ratio`. `queues`: share of steps that found each queue empty, by name. `cause` is one of healthy, processing, transfer,
    getnext, custom-code, host, unknown; `missing` names what would tell more.
    """

    rank: int
    intervals: pd.DataFrame
    interval_share: float
    queues: dict[str, float]
    operators: pd.DataFrame
    path: tuple[Branch, ...]
    cause: str
    suspect: str = ""
    actions: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def to_frame(self) -> pd.DataFrame:
        """The way to this judgement: `question`, `measured`, `answer`."""
        rows = [(branch.question, branch.measured, branch.answer) for branch in self.path]
        frame = pd.DataFrame(rows, columns=["question", "measured", "answer"])
        frame.attrs["title"] = "The way to this answer"
        return frame

    def told(self) -> tuple[str, ...]:
        """The judgement with what to do first, then what to do next, and what was not measured, in sentences."""
        text = f"{VERDICTS[self.cause]}: rank {self.rank} spends {format_ratio(self.interval_share)} of its steps waiting to begin."
        if self.suspect:
            text += f" Start with {self.suspect}: {self.path[-1].measured}."
        text += f" {self.actions[0].capitalize()}." if self.actions else ""
        return text, *(f"Then: {action}." for action in self.actions[1:]), *(f"Not measured: {name}." for name in self.missing)


VERDICTS = {
    "healthy": "The device does not wait for data",
    "processing": "Processing the data is too slow",
    "transfer": "The transfer from host to device is too slow",
    "getnext": "GetNext itself is slow",
    "custom-code": "Code of your own between iterator and network takes the time",
    "host": "Data waits, so the host is late for another reason",
    "unknown": "Steps wait before they begin; what was recorded does not tell for what",
}
_WAITING: dict[State, str] = {"filled": "yes", "sometimes empty": "not always", "empty": "no"}
_EMPTY: dict[State, str] = {"filled": "no", "sometimes empty": "sometimes", "empty": "yes"}
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
"""Lines that time what no profiler sees: one's own code between iterator and network."""
MAX_RANKS = 16
"""Ranks among which the one that waits longest is looked for."""


def longest_wait(run: Run, *, custom_ns: int | None = None) -> Feed:
    """The judgement of the rank that waits longest before its steps, of the first 16 ranks; raises as `judge_feed` does."""
    if not run.ranks:
        raise InputError("recording", [f"{run.name} has no rank"])
    feeds = [judge_feed(run, rank, custom_ns=custom_ns) for rank in run.ranks[:MAX_RANKS]]
    return max(feeds, key=lambda feed: feed.interval_share)


def step_intervals(run: Run, rank: int) -> pd.DataFrame:
    """Time before the first operator of every step of a rank: `step`, `interval_ns`, `duration_ns`.

    As the profiler states it (`free/data`), else from the start of the step to its first kernel. Raises NotMeasuredError if the
    run tells neither, or if its steps are known by their kernels only.
    """
    steps = run.frame("steps", ranks=[rank])[["step", "start_ns", "duration_ns"]]
    parts = run.frame("step_parts", ranks=[rank]) if run.has("step_parts") else pd.DataFrame(columns=["step", "path", "amount_ns"])
    stated = parts[parts["path"].astype("object") == "free/data"].dropna(subset=["amount_ns"])
    if len(stated):
        found = stated[["step", "amount_ns"]].rename(columns={"amount_ns": "interval_ns"})
        return found.merge(steps[["step", "duration_ns"]], on="step").astype("int64").sort_values("step", ignore_index=True)
    kernels = run.frame("kernels", ranks=[rank]).dropna(subset=["step", "start_ns"]) if run.has("kernels") else pd.DataFrame()
    known = steps.dropna(subset=["start_ns"])
    if kernels.empty or known.empty:
        raise NotMeasuredError(
            f"when the steps of rank {rank} begin to work", how_to_collect="record a step trace, or kernels with steps and times"
        )
    first = kernels.groupby(kernels["step"].astype("int64"))["start_ns"].min().rename("first").reset_index()
    found = known.merge(first, on="step")
    found["interval_ns"] = (found["first"].astype("int64") - found["start_ns"].astype("int64")).clip(lower=0)
    if found["interval_ns"].max() < GRAIN_NS:
        # A step that was cut at its first kernel has no time before it: nothing is known, which is not the same as nothing lost.
        raise NotMeasuredError(
            f"the time before the first operator of rank {rank}: its steps are taken to begin with it",
            how_to_collect="record a step trace, or marks of the steps (profiler level 1, or with the host's activities)",
        )
    return found[["step", "interval_ns", "duration_ns"]].astype("int64").sort_values("step", ignore_index=True)


def judge_feed(run: Run, rank: int, *, custom_ns: int | None = None) -> Feed:
    """Follow the tree of questions for one rank; `custom_ns` is the self-timed code between iterator and network, per step.

    Raises NotMeasuredError if steps and intervals are not recorded, InputError for a negative time.
    """
    if custom_ns is not None and custom_ns < 0:
        raise InputError("data feed", [f"custom_ns = {custom_ns} must not be negative"])
    intervals = step_intervals(run, rank)
    share = float(intervals["interval_ns"].sum() / max(1, intervals["duration_ns"].sum()))
    queues = run.frame("queues", ranks=[rank]) if run.has("queues") else pd.DataFrame(columns=["queue", "step", "size"])
    empties = {name: empty for name in ("host", "device") if (empty := _empty_ratio(queues, name)) is not None}
    operators = operator_usage(queues)
    walk = _Walk(
        run=run,
        rank=rank,
        share=share,
        interval_ns=int(intervals["interval_ns"].mean()),
        empties=empties,
        operators=operators,
        custom_ns=custom_ns,
    )
    walk.start()
    return Feed(
        rank=rank,
        intervals=intervals,
        interval_share=share,
        queues=empties,
        operators=operators,
        path=tuple(walk.path),
        cause=walk.cause,
        suspect=walk.suspect,
        actions=tuple(walk.actions),
        missing=tuple(walk.missing),
    )


def operator_usage(queues: pd.DataFrame) -> pd.DataFrame:
    """Mean filling of the queue behind every dataset operator, sources last: columns as `Feed.operators`."""
    columns = ["operator", "parent", "mean_size", "capacity", "usage_ratio", "empty_ratio"]
    rows = queues[queues["queue"].astype("object") == "operator"] if len(queues) else queues
    if rows.empty:
        return pd.DataFrame(columns=columns)
    rows = rows.assign(operator=rows["operator"].astype("object"), parent=rows["parent"].astype("object"), empty=rows["size"] == 0)
    groups = rows.groupby("operator", sort=False)
    table = groups.agg(
        parent=("parent", "first"), mean_size=("size", "mean"), capacity=("capacity", "max"), empty_ratio=("empty", "mean")
    ).reset_index()
    table["usage_ratio"] = table["mean_size"].astype("float64") / table["capacity"].astype("Float64").to_numpy(
        dtype=float, na_value=np.nan
    )
    return table[columns]


def queues_told(entries: pd.DataFrame) -> str:
    """The queue with the fewest entries, in a sentence; `entries` are rows of `queues`, one at least."""
    sizes = entries.groupby(entries["queue"].astype("object"))["size"].median()
    fewest = str(sizes.idxmin())
    form = "The {queue} queue is the emptiest: {size} entries in the median of the steps."
    return say(form, queue=fewest, size=significant(float(sizes.min())))


def usage_told(feed: Feed) -> str:
    """The slow operator of a dataset and why, in a sentence; where none is, that with the emptiest queue behind it."""
    known = feed.operators.dropna(subset=["usage_ratio"])
    first = known.iloc[int(known["usage_ratio"].to_numpy(dtype="float64").argmin())]
    is_even = len(known) > 1 and known["usage_ratio"].nunique() == 1
    if feed.suspect:
        form = (
            "All queues are equally full; {operator} is the slow one: {why}." if is_even else "{operator} is the slow one: {why}."
        )
        return say(form, operator=shortened(feed.suspect, 60), why=feed.path[-1].measured)
    form = "{operator} has the emptiest queue behind it: {usage_ratio} full."
    if is_even:
        form = "All queues behind operators are equally full: {usage_ratio}."
    return say(form, operator=shortened(str(first["operator"]), 60), usage_ratio=float(first["usage_ratio"]))


def state_of(empty_ratio: float) -> State:
    """The word of the guide for the share of steps that found a queue empty."""
    return "empty" if empty_ratio >= EMPTY else "sometimes empty" if empty_ratio >= SOMETIMES else "filled"


def _empty_ratio(queues: pd.DataFrame, name: str) -> float | None:
    rows = queues[queues["queue"].astype("object") == name] if len(queues) else queues
    sizes = rows.sort_values("step")["size"].to_numpy(dtype=np.int64) if len(rows) else np.zeros(0, np.int64)
    kept = sizes[LEFT_OUT:] if len(sizes) > LEFT_OUT else sizes
    return float((kept == 0).mean()) if len(kept) else None


@dataclass(kw_only=True, slots=True)
class _Walk:
    """The tree, walked once; every question that is asked leaves a branch."""

    run: Run
    rank: int
    share: float
    interval_ns: int
    empties: dict[str, float]
    operators: pd.DataFrame
    custom_ns: int | None
    path: list[Branch] = field(default_factory=list)
    cause: str = "unknown"
    suspect: str = ""
    actions: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def start(self) -> None:
        measured = f"{format_ns(self.interval_ns)} a step on average, {format_ratio(self.share)} of the time"
        if self.share < LEAST_INTERVAL:
            self._ask("Do steps wait before they begin?", measured, f"no: below {format_ratio(LEAST_INTERVAL, 2)}")
            self.cause = "healthy"
            return
        self._ask("Do steps wait before they begin?", measured, "yes")
        if not self.empties:
            self.missing.append(
                "sizes of the data queues: profile with data_process=True (MindSpore), which writes device_queue_profiling"
            )
            self._ask("How full are the queues?", "not measured", "cannot be told")
            self._by_hand()
        elif "device" in self.empties:
            self._sinking()
        else:
            self._feeding()

    def _sinking(self) -> None:
        on_device = state_of(self.empties["device"])
        found = f"none in {format_ratio(self.empties['device'])} of the steps"
        self._ask("Do batches wait on the device?", found, _WAITING[on_device])
        if on_device == "filled":
            self._get_next()
        elif "host" in self.empties:
            self._host_queue(transfer="the transfer from host to device is the bottleneck")
        else:
            self.missing.append("size of the host's queue (device_queue_profiling)")

    def _feeding(self) -> None:
        if state_of(self.empties["host"]) == "filled":
            self._ask_host("filled")
            self._by_hand()
        else:
            self._host_queue(transfer="")

    def _host_queue(self, transfer: str) -> None:
        state = state_of(self.empties["host"])
        self._ask_host(state)
        if state == "filled" and transfer:
            self.cause = "transfer"
            self.actions += [
                transfer,
                "use contiguous and pinned buffers, fewer and larger copies",
                "check PCIe and the load of the host",
            ]
            return
        self.cause = "processing"
        self._operators()

    def _get_next(self) -> None:
        spent = 0
        if self.run.has("kernels"):
            kernels = self.run.frame("kernels", ranks=[self.rank])
            named = kernels["name"].astype("object").astype(str).str.contains("GetNext", case=False)
            spent = int(kernels.loc[named, "duration_ns"].sum())
        total = int(self.run.frame("steps", ranks=[self.rank])["duration_ns"].sum())
        share = spent / max(1, total)
        if share >= GETNEXT_SHARE:
            self._ask("Does GetNext itself take long?", format_ratio(share), "yes")
            self.cause = "getnext"
            self.actions.append("GetNext is slow although data waits: report it with this evidence")
            return
        self._ask("Does GetNext itself take long?", format_ratio(share), "no: the interval has another reason")
        self.cause = "host"
        self.actions.append("look at what the host does between two steps (page 14)")

    def _by_hand(self) -> None:
        question = "Does code between iterator and network take the time?"
        if self.custom_ns is None:
            self.missing.append("time of your code between iterator and network: no profiler sees it; time it and enter it here")
            self._ask(question, "not measured", "time it by hand")
            return
        share = self.custom_ns / max(1, self.interval_ns)
        if share >= CUSTOM_SHARE:
            self._ask(question, f"{format_ns(self.custom_ns)}, {format_ratio(share)} of the interval", "yes")
            self.cause = "custom-code"
            self.actions += [
                "move it into the dataset (map), where workers do it ahead of time",
                "vectorise it, or cache its result",
            ]
            return
        self._ask(question, f"{format_ns(self.custom_ns)}, {format_ratio(share)} of the interval", "no")
        if self.empties:
            self.cause = "transfer"
            self.actions += [
                "the transfer from host to device is slow",
                "use contiguous and pinned buffers, fewer and larger copies",
            ]

    def _operators(self) -> None:
        known = self.operators.dropna(subset=["usage_ratio"])
        question = "Which dataset operator is slow?"
        if known.empty:
            self.missing.append("queues between the operators of the dataset (minddata_pipeline_raw)")
            self._ask(question, "not measured", "cannot be told")
            return
        self.suspect, measured = _slow_operator(known)
        self._ask(question, measured, self.suspect or "none stands out")
        self.actions += _advice(self.suspect)

    def _ask_host(self, state: State) -> None:
        self._ask("Is the host's queue empty?", f"empty in {format_ratio(self.empties['host'])} of the steps", _EMPTY[state])

    def _ask(self, question: str, measured: str, answer: str) -> None:
        self.path.append(Branch(question, measured, answer))


def _slow_operator(known: pd.DataFrame) -> tuple[str, str]:
    """The operator whose input queue is high and output queue low; the source if nothing reaches the others; else the last."""
    usage = dict(zip(known["operator"], known["usage_ratio"].astype(float), strict=True))
    parents = dict(zip(known["operator"], known["parent"], strict=True))
    inputs: dict[str, list[str]] = {}
    for child, parent in parents.items():
        if isinstance(parent, str):
            inputs.setdefault(parent, []).append(child)
    drops = {
        name: max(usage[child] for child in inputs[name]) - used
        for name, used in usage.items()
        if name in inputs and max(usage[child] for child in inputs[name]) - used > USAGE_STEP
    }
    if drops:
        slowest = max(drops, key=lambda name: drops[name])
        return slowest, f"its input queue is {format_ratio(drops[slowest])} fuller than its output"
    sources = [name for name in usage if name not in inputs]
    lowest = min(sources, key=lambda name: usage[name], default="")
    if lowest and usage[lowest] < LOW_SOURCE:
        return lowest, f"as the source of the pipeline it fills its queue to {format_ratio(usage[lowest])}"
    roots = [parent for parent in inputs if parent not in usage]
    if roots and all(used >= HIGH_LAST for used in usage.values()):
        return roots[0], "all queues before it are full"
    return "", "no queue is much fuller than the next"


def _advice(operator: str) -> list[str]:
    kind = operator.split(" ", maxsplit=1)[0].removesuffix("Op").lower()
    if kind.startswith("map"):
        return [
            "raise num_parallel_workers of map",
            "replace Python functions by built-in operators, or python_multiprocessing=True",
        ]
    if kind.startswith("batch"):
        return ["raise prefetch_size", "raise num_parallel_workers of batch"]
    if kind.startswith("generator"):
        return ["raise num_parallel_workers of the generator", "store the data as MindRecord"]
    if operator:
        return ["raise num_parallel_workers of the source", "check the storage that it reads from"]
    return ["raise num_parallel_workers and prefetch_size, and measure again"]
