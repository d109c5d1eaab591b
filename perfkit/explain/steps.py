"""Steps: which step stands for a recording, how its ranks compare, and what one is made of, in words.

Ranks are compared with the median of their pipeline stage: stages do different work, so a comparison over all ranks would blame a
whole stage.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from perfkit.core.breakdown import Breakdown
from perfkit.core.errors import NotMeasuredError
from perfkit.core.looks import brief
from perfkit.core.run import Run
from perfkit.core.texts import Said, joined, say
from perfkit.core.units import format_ns
from perfkit.explain.ranks import parse_ranks, worth_showing

MEDIAN = "median"
NEXT = {
    "computing": "page 12: the operators (which kernels cost most)",
    "communication": "page 13: the communication (is it needed, slow, or waiting)",
    "bubble": "page 06: the pipeline balance (which layers on which stage)",
    "free": "page 16: the data feed (does the device wait for data or for the host)",
}
"""What looks into the largest part of a step."""


def step_choices(run: Run) -> list[tuple[str, str]]:
    """The steps of which the parts are known, as label and value, after "median", which stands for each rank's own."""
    numbers = sorted(int(step) for step in run.distinct("step_parts", columns=["step"])["step"])
    return [("median of each rank", MEDIAN), *((str(number), str(number)) for number in numbers)]


def typical_steps(run: Run, step: str | int = MEDIAN) -> pd.DataFrame:
    """One row a rank, slowest first: its step of that number, or the one whose time is nearest to the rank's median.

    Columns are those of `Run.steps`. Raises NotMeasuredError if the run does not say what its steps are made of.
    """
    if not run.has("step_parts"):
        raise NotMeasuredError(
            f"what a step is made of: {run.name} holds {'only step times' if run.has('steps') else 'no steps'}",
            how_to_collect="record a profile of two to four steps; page 10 writes the lines for your framework",
        )
    steps = run.steps().merge(run.distinct("step_parts", columns=["rank", "step"]), on=["rank", "step"])
    if step in (MEDIAN, ""):
        distance = (steps["duration_ns"] - steps.groupby("rank")["duration_ns"].transform("median")).abs()
        steps = steps.loc[distance.groupby(steps["rank"]).idxmin()]
    else:
        steps = steps[steps["step"] == int(step)]
    return steps.sort_values("duration_ns", ascending=False, kind="stable", ignore_index=True)


def ranks_to_show(steps: pd.DataFrame, text: str = "") -> list[int]:
    """The ranks that a text such as "0-7, 12" names; of an empty one those worth showing: the slowest, the fastest, the middle.

    `steps` is of `typical_steps`. Raises InputError for ranks that are not there.
    """
    if text.strip():
        return list(parse_ranks(text, sorted(int(rank) for rank in steps["rank"])))
    return list(worth_showing(steps.set_index("rank")["duration_ns"]))


def parts_of(run: Run, steps: pd.DataFrame, ranks: list[int]) -> pd.DataFrame:
    """The rows of the table `step_parts` of some ranks, in their order, each of the step that `steps` has of it."""
    rows = steps.loc[steps["rank"].isin(ranks), ["rank", "step"]].merge(run.frame("step_parts", ranks=ranks), on=["rank", "step"])
    return rows.sort_values("rank", key=lambda column: column.map(ranks.index), kind="stable", ignore_index=True)


def compared_steps(steps: pd.DataFrame) -> pd.DataFrame:
    """The ranks of `typical_steps` beside each other, slowest first; parts that no rank has told apart are left out.

    Columns: `rank`, `pipeline_stage`, `step`, `duration_ns`, `computing_ns`, `against_stage_ratio` (computing over the median of
    the rank's pipeline stage, less 1), `exposed_communication_ns`, `overlapped_ns`, `bubble_ns`, `free_ns`, `copy_ns` (what of it
    went to memory copies alone).
    """
    computing_ns = steps["computing_ns"].astype("float64")
    median_ns = computing_ns.groupby(steps["pipeline_stage"].fillna(-1)).transform("median")
    shown = pd.DataFrame(
        {
            "rank": steps["rank"],
            "pipeline_stage": steps["pipeline_stage"],
            "step": steps["step"],
            "duration_ns": steps["duration_ns"],
            "computing_ns": steps["computing_ns"],
            "against_stage_ratio": computing_ns / median_ns - 1,
            "exposed_communication_ns": steps["exposed_communication_ns"],
            "overlapped_ns": steps["overlapped_ns"],
            "bubble_ns": steps["bubble_ns"],
            "free_ns": steps["free_ns"],
            "copy_ns": steps["copy_ns"],
        }
    ).dropna(axis="columns", how="all")
    waits = ("bubble_ns",) if steps["bubble_ns"].fillna(0).any() else ()
    return brief(shown, "rank", "duration_ns", "computing_ns", "exposed_communication_ns", *waits, "free_ns")


PARTS_TOLD = {
    "computing_ns": say("computing"),
    "exposed_communication_ns": say("communication that nothing hides"),
    "bubble_ns": say("the bubble of the pipeline"),
    "free_ns": say("time in which it does nothing"),
}


def slowest_told(steps: pd.DataFrame) -> Said:
    """Which rank of `typical_steps` takes longest, and the largest part of its step, in a sentence."""
    if steps.empty:
        return say("No step was recorded.")
    row = steps.iloc[int(steps["duration_ns"].to_numpy(dtype="int64").argmax())]
    parts = row[[name for name in PARTS_TOLD if name in row]].dropna().astype("int64")
    form = (
        "Rank {rank} takes longest, {duration_ns} in step {step}"
        if len(steps) > 1
        else "Rank {rank} takes {duration_ns} in step {step}"
    )
    told = say(form, rank=str(int(row["rank"])), duration_ns=int(row["duration_ns"]), step=str(int(row["step"])))
    if parts.empty or not int(row["duration_ns"]):
        return say("{text}.", text=told)
    part_ns, share = int(parts.max()), int(parts.max()) / int(row["duration_ns"])
    form = "{text}; its largest part is {what}, {part_ns} ({part_share})."
    return say(form, text=told, what=PARTS_TOLD[str(parts.idxmax())], part_ns=part_ns, part_share=share)


def step_told(run: Run, *, rank: int, step: int) -> Said:
    """What a step is made of, how much communication it hides, and where to look next, in sentences."""
    breakdown, row = run.step_breakdown(rank, step), _of(run, rank, step)
    took = say(
        "Step {step} of rank {rank} took {duration_ns}: {parts}.",
        step=str(step),
        rank=str(rank),
        duration_ns=int(breakdown.total),
        parts=parts_told(breakdown),
    )
    return joined((took, _hidden_told(row["communication_ns"], row["overlapped_ns"]), next_look(breakdown)))


def parts_told(breakdown: Breakdown) -> Said | str:
    """The parts of a step with their shares, largest first."""
    parts = sorted(breakdown.parts.items(), key=lambda part: -part[1])
    told = [
        say("{path} {amount_ns} ({part_ratio})", path=path, amount_ns=amount, part_ratio=amount / breakdown.total)
        for path, amount in parts
        if amount
    ]
    return joined(told, ", ") if told else "nothing was recorded"


def _hidden_told(communication_ns: Any, hidden_ns: Any) -> str:
    """How much communication computing hides, in a sentence: an amount, none, or not measured; nothing of nothing."""
    if pd.isna(communication_ns) or not communication_ns:
        return ""
    if pd.isna(hidden_ns):
        return "How much of the communication is hidden behind computing was not measured."
    if not hidden_ns:
        return "None of the communication is hidden behind computing."
    return say("{hidden_ns} of communication is hidden behind computing.", hidden_ns=int(hidden_ns))


def next_look(breakdown: Breakdown) -> Said:
    """What looks into the largest part of a step."""
    first = breakdown.collapse(1)
    return say("Look next at {page}.", page=NEXT[max(first.parts, key=lambda path: first.parts[path], default="computing")])


def step_notes(run: Run, *, rank: int, step: int) -> list[str]:
    """What is to be known beside the parts of a step: what was not told apart, copies in its free time, what was lost."""
    breakdown, copy_ns = run.step_breakdown(rank, step), _of(run, rank, step)["copy_ns"]
    notes = [breakdown.unmeasured_text] if breakdown.unmeasured_text else []
    if not pd.isna(copy_ns) and int(copy_ns):
        notes.append(f"Of the free time, {format_ns(int(copy_ns))} went to memory copies alone.")
    if not run.has("kernels"):
        notes.append("Kernels of single ranks are not recorded in this format.")
    if run.dropped:
        notes += [*run.lost_told, "Page 10 lists what was lost of this recording."]
    return notes


def _of(run: Run, rank: int, step: int) -> pd.Series[Any]:
    return run.frame("steps", ranks=[rank], steps=[step]).iloc[0]
