"""Step summaries of Ascend tools: step_trace_time.csv and cluster_step_trace_time.csv, and whether they agree.

The columns are us. For one rank and step Computing + Communication(Not Overlapped) + Free = Stage + Bubble; Stage is the difference
of two float time stamps and so exact to 0.25 us only. Stage + Bubble runs from the first to the last kernel of the step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from perfkit.core.units import NS_PER_US, format_ns
from perfkit.record import store
from perfkit.record.format import Sink
from perfkit.record.overlap import Timeline

COMPUTING, EXPOSED, FREE = "Computing", "Communication(Not Overlapped)", "Free"
COLUMNS: dict[str, store.Cell] = {
    "Step": "text",
    COMPUTING: "us",
    EXPOSED: "us",
    "Overlapped": "us",
    "Communication": "us",
    FREE: "us",
    "Stage": "us",
    "Bubble": "us",
}
REQUIRED = (COMPUTING, EXPOSED, FREE)
SUM_TOLERANCE_NS = NS_PER_US // 2
SHARE_TOLERANCE = 0.001
_ROUNDING_NS = NS_PER_US
"""Differences up to 1 us are rounding of the start times, which some versions write with one decimal only."""


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """The columns that `add_summary_steps` needs, in ns, and `stage_ns`; a row without a step number is step 0."""
    return pd.DataFrame(
        {
            "step": rows["Step"].str.extract(r"(\d{1,18})\s*$", expand=False).fillna("0").astype("int64"),
            "computing": rows[COMPUTING],
            "exposed": rows[EXPOSED],
            "overlapped": rows["Overlapped"],
            "communication": rows["Communication"],
            "free": rows[FREE],
            "bubble": rows["Bubble"],
            "stage_ns": rows["Stage"],
        }
    )


def check_sums(sink: Sink, steps: pd.DataFrame, where: str) -> None:
    """Note where the parts of a step do not add up to its length; `steps` has the columns of `summary` and `rank`."""
    known = steps[steps["stage_ns"].notna()]
    parts = known["computing"] + known["exposed"] + known["free"]
    length = known["stage_ns"] + known["bubble"].fillna(0)
    off = (parts - length).abs()
    wrong = int((off > SUM_TOLERANCE_NS).sum())
    if not wrong:
        return
    worst = int(off.fillna(0).to_numpy(dtype="int64").argmax())
    row = known.iloc[worst]
    sink.note(
        f"{where}: the parts do not add up in {wrong} of {len(known)} steps; worst is rank {row['rank']}, step {row['step']}: "
        f"Computing + Communication(Not Overlapped) + Free = {format_ns(int(parts.iloc[worst]))}, "
        f"Stage + Bubble = {format_ns(int(length.iloc[worst]))}, {format_ns(int(off.iloc[worst]))} apart"
    )


def compare_with_kernels(
    sink: Sink, steps: pd.DataFrame, kernels: Iterable[pd.DataFrame], *, kernels_name: str, steps_name: str
) -> None:
    """Note where a summary and the kernels of the same step differ by more than 0.1 %; the steps shown are those of the summary."""
    computed = {key: times for frame in kernels for key, times in _times(frame).items()}
    for part in ("computing", "exposed", "free"):
        pairs = [
            (abs(ours - int(theirs)), int(rank), int(step), ours, int(theirs))
            for rank, step, theirs in steps[["rank", "step", part]].dropna().itertuples(index=False)
            if (ours := computed.get((int(rank), int(step)), {}).get(part)) is not None
        ]
        off = [pair for pair in pairs if pair[0] > max(_ROUNDING_NS, SHARE_TOLERANCE * pair[4])]
        if off:
            apart, rank, step, ours, theirs = max(off)
            sink.note(
                f"{part} time differs by more than 0.1 % in {len(off)} of {len(pairs)} steps; worst is rank {rank}, step {step}: "
                f"{format_ns(ours)} from {kernels_name}, {format_ns(theirs)} in {steps_name}, which is shown; "
                f"{format_ns(apart)} apart"
            )


def compare_with_lanes(sink: Sink, where: str, lanes: Mapping[str, int], timeline: Timeline) -> None:
    """Note where the sums made here and those of the profiler's own lanes differ by more than 0.1 %."""
    for lane, kind in (("Computing", "computing"), ("Communication", "communication")):
        stated_ns, found_ns = lanes.get(lane), timeline.of(kind).total_ns
        if stated_ns is not None and abs(stated_ns - found_ns) > SHARE_TOLERANCE * max(stated_ns, found_ns):
            sink.note(
                f"{where}: {kind} is {format_ns(found_ns)} by its tasks, but {format_ns(stated_ns)} by the profiler's lane "
                f"{lane}; the tasks are used"
            )


def _times(kernels: pd.DataFrame) -> dict[tuple[int, int], dict[str, int]]:
    times: dict[tuple[int, int], dict[str, int]] = {}
    for _, rows in kernels[kernels["start_ns"].notna()].groupby("step"):
        device = Timeline(rows).whole()
        times[int(rows["rank"].iloc[0]), int(rows["step"].iloc[0])] = {
            "computing": device.computing_ns,
            "exposed": device.exposed_ns,
            "free": device.free_ns,
        }
    return times
