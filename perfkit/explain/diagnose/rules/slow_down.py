"""The run becomes slower while it goes on, or began anew.

What is measured: the printed times of steps after warm-up, in five parts of equal numbers: a finding if the last part is slower
than the first and each part at least about as slow as the one before. And step numbers that go back, which a restart from a
checkpoint makes: the steps between were run twice, and time went by until they were.

What to do: memory that leaks or fragments, logs and caches that grow, devices that get hot, a dataset that slows down (storage, an
order that grows longer samples); save more often where jobs fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose import who
from perfkit.explain.diagnose.advice import Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import LOG_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict

SLOWER_AT_END = Threshold(
    name="slower-at-end",
    value=0.05,
    unit="time of a step at the end over that at the start",
    origin="chosen: parts of bundled healthy logs differ by up to 3 %",
)
PARTS, LEAST_ROWS = 5, 20
MOST = 0.5
"""Of the time of a step: two handlers print it within less, and it cannot be run again within less."""
SAVE: tuple[Action, ...] = (
    "read the log before those lines: out of memory, time-outs and errors of devices have findings of their own",
    {
        "mindspore": "save more often (save_checkpoint_steps of CheckpointMonitor): what is lost is half an interval on average",
        "megatron": "save more often (--save-interval): what is lost is half an interval on average",
        "torch": "save more often (torch.distributed.checkpoint.async_save): what is lost is half an interval on average",
    },
)
ACTIONS: tuple[Action, ...] = (
    {
        "ascend": "compare memory, clocks and temperature at the start and at the end: npu-smi info",
        "nvidia": "compare memory, clocks and temperature at the start and at the end: nvidia-smi dmon",
        "amd": "compare memory, clocks and temperature at the start and at the end: amd-smi monitor",
    },
    "record a profile late in the run, and compare it with one from its start (page 21)",
)


def check(case: Case) -> Verdict:
    """Times of steps that grow, and steps that were run again."""
    rows = _of_one_rank(case.run.frame("log"))
    again = tuple(_restarts(rows))
    timed = rows[rows["duration_ns"].notna().to_numpy(dtype=bool) & ~rows["step"].isin(case.warm_up_steps).to_numpy(dtype=bool)]
    if len(timed) < LEAST_ROWS and not again:
        raise NotMeasuredError("twenty printed times of steps", how_to_collect=LOG_BY)
    parts = [float(np.median(part)) for part in np.array_split(timed["duration_ns"].to_numpy(dtype=np.float64), PARTS) if len(part)]
    grown = parts[-1] / parts[0] - 1.0 if len(timed) >= LEAST_ROWS and parts[0] > 0 else 0.0
    evidence = {"last_over_first_part": 1.0 + grown, "longer_ratio": grown, "num_restarts": float(len(again))}
    steady = all(later >= earlier * (1.0 - case.limit(SLOWER_AT_END) / PARTS) for earlier, later in pairwise(parts))
    findings = []
    if steady and grown >= case.limit(SLOWER_AT_END):
        findings.append(
            Finding(
                rule=RULE.name,
                title=say("Steps take {longer_ratio} longer at the end of the run than at its start (medians)", **evidence),
                subject={"steps": (int(timed["step"].iloc[0]), int(timed["step"].iloc[-1]))},
                evidence={**evidence, **{f"part_{at}_ns": part for at, part in enumerate(parts, start=1)}},
                actions=fitting(case, ACTIONS),
                cost_ns=round(max(0.0, float(timed["duration_ns"].mean()) - parts[0])),
                next=("21_compare",),
            )
        )
    if again:
        findings.append(_began_anew(case, again, evidence))
    return Verdict(tuple(findings), evidence)


def _of_one_rank(rows: pd.DataFrame) -> pd.DataFrame:
    """The lines of the rank that prints most times; a step that is printed twice in a row (two handlers) counts once.

    Unless it is in another file, or in a line that comes later than a step takes.
    """
    printed = rows["duration_ns"].notna().groupby(rows["rank"]).sum()
    rows = rows[(rows["rank"] == printed.idxmax()).to_numpy(dtype=bool)]
    same_file = (rows["file"].astype("object").fillna("") == rows["file"].astype("object").fillna("").shift()).to_numpy(dtype=bool)
    later_ns = rows["timestamp_ns"].astype("Int64").diff()
    later = (later_ns > MOST * (rows["duration_ns"] * rows["num_steps"])).fillna(False).to_numpy(dtype=bool)
    same_step = (rows["step"].diff() == 0).fillna(False).to_numpy(dtype=bool)
    return rows[~(same_step & same_file & ~later)]


@dataclass(frozen=True, slots=True)
class Restart:
    """Where step numbers go back: the first and last step that were run again, and the line (`where`) of the first.

    `again_ns` is what they took the first time, `between_ns` what went by from the last line before to the step after, as far as
    lines have times; None where they have none.
    """

    first_step: int
    last_step: int
    where: str
    again_ns: int | None
    between_ns: int | None

    @property
    def num_steps(self) -> int:
        """How many steps were run again."""
        return self.last_step - self.first_step + 1


def _restarts(rows: pd.DataFrame) -> Iterator[Restart]:
    steps, lines = rows["step"].to_numpy(dtype=np.int64), rows["line"].astype(str) + " " + rows["file"].astype(str)
    for at in np.flatnonzero((np.diff(steps) <= 0) & (lines[1:].to_numpy() != lines[:-1].to_numpy())):
        before, after = rows.iloc[: at + 1], rows.iloc[at + 1]
        lost = before[before["step"].between(steps[at + 1], steps[at]).to_numpy(dtype=bool)].drop_duplicates("step", keep="last")
        times = lost["duration_ns"] * lost["num_steps"]
        took = after["duration_ns"] * after["num_steps"]
        between = after["timestamp_ns"] - before["timestamp_ns"].iloc[-1] - (0 if pd.isna(took) else took)
        yield Restart(
            int(steps[at + 1] - after["num_steps"] + 1),
            int(steps[at]),
            _where(after),
            None if times.isna().any() else int(times.sum()),
            None if pd.isna(between) else max(0, int(between)),
        )


def _where(row: pd.Series) -> str:
    if pd.isna(row["file"]):
        return say("line {line}", line=str(row["line"]))
    return say("line {line} of {file}", line=str(row["line"]), file=str(row["file"]))


def _began_anew(case: Case, restarts: Sequence[Restart], evidence: Mapping[str, float]) -> Finding:
    first = restarts[0]
    evidence = {**evidence, "repeated_steps": float(sum(one.num_steps for one in restarts))}
    for name, known in (("repeated_ns", [one.again_ns for one in restarts]), ("between_ns", [one.between_ns for one in restarts])):
        if None not in known:
            evidence[name] = float(sum(value for value in known if value is not None))
    return Finding(
        rule=RULE.name,
        title=say(
            "The run began anew {times}: {count} steps were run again{took}{between}; first at {where} with step {start}, "
            "up to step {end}",
            times=who.count(len(restarts), "time"),
            count=str(int(evidence["repeated_steps"])),
            took=say(" ({repeated_ns})", **evidence) if "repeated_ns" in evidence else "",
            between=say(", and {between_ns} went by between", **evidence) if evidence.get("between_ns") else "",
            where=first.where,
            start=str(first.first_step),
            end=str(first.last_step),
        ),
        subject={"steps": tuple(dict.fromkeys(step for one in restarts for step in (one.first_step, one.last_step)))},
        evidence=evidence,
        actions=fitting(case, SAVE),
        severity="medium",
        next=("out-of-memory", "collective-timeout", "device-error"),
    )


RULE = Rule("slow-down", "A run that slows down or begins anew", frozenset({"log"}), LOG_BY, (SLOWER_AT_END,), check)
