"""Cluster: whether a rank, link or stage is slow, as the rules judge it, and how far every rank is from its stage.

Ranks are compared within their stage only, because stages do different work; ranks that only wait are never blamed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from perfkit.core import placement
from perfkit.core.errors import NotMeasuredError
from perfkit.core.looks import brief
from perfkit.core.run import Run
from perfkit.core.texts import joined, say
from perfkit.core.units import format_ns, significant
from perfkit.explain import stragglers
from perfkit.explain.communication import link_table
from perfkit.explain.diagnose import Diagnosis, Finding, all_rules, excess, judged
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.rules.slow_rank import CLOCK_LOWER
from perfkit.explain.frequency import working_mhz
from perfkit.explain.ranks import written
from perfkit.explain.recording import ranks_missing_told

RULES = {"slow-rank": 3, "slow-link": 2, "stage-imbalance": 1}
"""The rules that are asked, in the order in which they are told, and how many findings of each."""
Z_LIMIT, PERSISTENCE = 3.5, 0.7
"""Robust deviations from which a rank stands out, and the share of the steps in which it has to."""
LABELS = {
    "over_stage": "× its stage's median",
    "over_all": "× the median of all",
    "z": "robust z",
    "stands_out": "stands out",
    "computing_over_mean": "× the mean",
}
MOST_TOLD = 4
"""Of more stages the shortest and the longest are told."""
MOST_LETTERS = 130
"""What a visitor reads at a glance."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankComparison:
    """Ranks by a metric of `stragglers.METRICS`; `band` is the log ratio from which one stands out, None where none can be judged.

    `table` has a row a rank: the columns of `stragglers.against_stage`, `z`, `slow_steps_share` and `stands_out`.
    """

    metric: str
    table: pd.DataFrame
    band: float | None

    def told(self) -> str:
        """Which rank is furthest from its stage, and how many stand out, in a sentence."""
        row, apart = self.to_frame().iloc[0], int(self.table["stands_out"].sum())
        if pd.isna(row["over_stage"]):
            return ""
        return say(
            "Rank {rank} is furthest from its stage: {value_ns} in the mean step, {over_stage} × its stage's median. {apart}",
            rank=str(int(row["rank"])),
            value_ns=row["mean_of_its_steps_ns"],
            over_stage=significant(row["over_stage"], 4),
            apart=("No rank stands out.", "1 rank stands out.")[apart]
            if apart < 2
            else say("{num} ranks stand out.", num=str(apart)),
        )

    def to_frame(self) -> pd.DataFrame:
        """The ranks, furthest from their stage first."""
        order = (self.table["over_stage"] - 1).abs().sort_values(ascending=False, na_position="last", kind="stable").index
        named = self.table.rename(columns={"value_ns": "mean_of_its_steps_ns"})
        columns = ["rank", "stage", "mean_of_its_steps_ns", "stage_median_ns", "over_stage", "over_all", "z"]
        frame = named.loc[order].assign(stage=named["stage"].map(stragglers.stage_name))[
            [*columns, "slow_steps_share", "stands_out"]
        ]
        frame.attrs |= {"title": "Ranks, furthest from their stage first", "labels": LABELS}
        return brief(frame.reset_index(drop=True), "rank", "stage", "mean_of_its_steps_ns", "over_stage", "stands_out")


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterJudgement:
    """A run, its steps after warm-up, its stages (`stragglers.stages`), and what the rules of ranks, links and stages say."""

    run: Run
    case: Case
    stages: pd.DataFrame
    diagnosis: Diagnosis

    def found(self, rule: str) -> list[Finding]:
        """The findings of a rule."""
        return [finding for finding in self.diagnosis.findings if finding.rule == rule]

    def is_healthy(self, rule: str) -> bool:
        """Whether a rule could be answered and found nothing."""
        return any(entry.rule == rule for entry in self.diagnosis.healthy)

    @property
    def slow_ranks(self) -> tuple[int, ...]:
        """The ranks that the rule of slow ranks names."""
        return tuple(int(rank) for finding in self.found("slow-rank") for rank in finding.subject.get("ranks", ()))

    @property
    def has_computing(self) -> bool:
        """Whether any step says how long its rank computed."""
        return bool(self.case.steps["computing_ns"].notna().any())

    def compared(self, metric: str = "computing") -> RankComparison:
        """Every rank beside those of its stage; raises NotMeasuredError where no step has what is compared."""
        values = stragglers.metric_values(self.case.steps, metric)
        table = stragglers.against_stage(values)
        try:
            found = excess.of_ranks(self.case) if metric == "computing" else excess.of_values(values, self.case)
        except NotMeasuredError:
            table, band = table.assign(z=math.nan, slow_steps_share=math.nan, stands_out=False), None
        else:
            band = found.band
            z, share = (table["rank"].map(column) for column in (found.ranks["z"], found.ranks["slow_steps"] / found.num_steps))
            table = table.assign(z=z, slow_steps_share=share, stands_out=table["rank"].isin(found.slow_ranks))
        if metric == "computing":  # ranks that are slow in some steps only stand out, too
            table = table.assign(stands_out=table["stands_out"] | table["rank"].isin(self.slow_ranks))
        return RankComparison(metric=metric, table=table, band=band)

    def told(self) -> tuple[str, ...]:
        """Ranks, links and stages in as many short sentences as are read at a glance; then the others, the stages, and notes.

        What is slow comes first.
        """
        found = [say("{title}.", title=finding.title) for rule, most in RULES.items() for finding in self.found(rule)[:most]]
        first: list[str] = []
        rest: list[str] = []
        for sentence in filter(None, (*found, *self._not_slow_told(), waits_told(self.stages))):
            is_short = not first or len(joined([*first, sentence])) <= MOST_LETTERS
            (first if is_short else rest).append(sentence)
        beside = joined([*rest, self._busiest_told(), self._clocks_told()])
        return (joined(first), *filter(None, (beside,)), stages_told(self.stages), *self._notes())

    def to_frame(self) -> pd.DataFrame:
        """The stages with their ranks as text; what was not measured is left out."""
        table = self.stages
        table = table.assign(stage=table["stage"].map(stragglers.stage_name), ranks=[written(ranks) for ranks in table["ranks"]])
        first = ("stage", "ranks")
        shown = table[[*first, *(name for name in table.columns if name not in (*first, "num_ranks"))]]
        frame = shown.dropna(axis="columns", how="all")
        frame.attrs |= {"title": "Stages, means over ranks and steps", "labels": LABELS, "look": "folded"}
        return brief(frame, "stage", "ranks", "step_ns", "computing_ns", "exposed_communication_ns", "bubble_ns")

    def _not_slow_told(self) -> list[str]:
        """That no rank and no link is slow, or that it cannot be told, as far as none was found."""
        links = (
            "" if self.found("slow-link") else _links_compared(link_table(self.case.run), is_healthy=self.is_healthy("slow-link"))
        )
        if self.found("slow-rank"):
            return [links]
        if self.is_healthy("slow-rank"):
            neither = _NEITHER.get(links)
            return [neither] if neither else ["No rank is slow.", links]
        return ["Whether a rank is slow cannot be told.", links]

    def _busiest_told(self) -> str:
        """Which rank computes most where none is slow, or what it takes to tell whether one is."""
        if self.found("slow-rank"):
            return ""
        if not self.is_healthy("slow-rank"):
            return "To tell whether a rank is slow takes three ranks of equal work, or the kernels of both of two."
        computing = stragglers.against_stage(stragglers.metric_values(self.case.steps, "computing"))
        row = computing.sort_values("value_ns", kind="stable").iloc[-1]
        two, more = "Rank {rank} computes more than the other ({value_ns} in the mean step).", _BUSIEST
        return say(
            two if len(computing) == 2 else more,
            rank=str(int(row["rank"])),
            value_ns=row["value_ns"],
            over_stage=significant(row["over_stage"], 4),
            over_all=significant(row["over_all"], 4),
        )

    def _clocks_told(self) -> str:
        """How fast the cores of the ranks were clocked while they did not wait: lower ones compute slower; "" without a clock."""
        try:
            clocks = working_mhz(self.run, list(self.run.ranks)).sort_values(kind="stable")
        except NotMeasuredError:
            return ""
        if len(clocks) < 2:
            return ""
        lowest, usual = float(clocks.iloc[0]), float(clocks.median())
        if lowest > usual * (1.0 - self.case.limit(CLOCK_LOWER)):
            return say("The cores of {num} ranks are clocked alike: {mhz} MHz.", num=str(len(clocks)), mhz=significant(usual, 4))
        return say(
            "The cores of rank {rank} are clocked lowest: {mhz} MHz, {usual} MHz in the median of {num} ranks.",
            rank=str(clocks.index[0]),
            mhz=significant(lowest, 4),
            usual=significant(usual, 4),
            num=str(len(clocks)),
        )

    def _notes(self) -> list[str]:
        notes, steps = ranks_missing_told(self.run), self.case.steps["step"].nunique()
        if (self.stages["num_ranks"] < excess.MIN_PEERS).any():
            notes.append("Stages with fewer than three ranks have no spread of their own; their step times are shown, not judged.")
        if steps < excess.MIN_PEERS:
            notes.append(say("Whether a deviation lasts takes three steps to tell; recorded: {num}.", num=str(steps)))
        return [*notes, "This run is simulated."] if self.run.kind == "simulated" else notes


_BUSIEST = "Rank {rank} computes most ({value_ns} in the mean step), {over_stage} × its stage's median, {over_all} × that of all."
_NO_LINK, _NO_LINK_COMPARED = "No link is slow.", "No link that can be compared is slow."
_NEITHER = {
    _NO_LINK: "No rank is slow, nor any link.",
    _NO_LINK_COMPARED: "No rank is slow, nor any link that can be compared.",
}
"""By what is said of links: the same of ranks, too."""


def _links_compared(links: pd.DataFrame, *, is_healthy: bool) -> str:
    """What can be said of the links of `link_table` of which none is slow; `is_healthy`: the rule of links found them so."""
    alone = links["slowness"].isna()
    if alone.any():
        return "No link has another like it to compare with." if alone.all() else _NO_LINK_COMPARED
    return _NO_LINK if is_healthy or len(links) else "Links were not recorded."


def judge_cluster(run: Run, *, z_limit: float = Z_LIMIT, persistence: float = PERSISTENCE) -> ClusterJudgement:
    """Ask the rules of ranks, links and stages about a run; the limits are those of slow ranks, `persistence` a ratio.

    Raises NotMeasuredError for a run without steps.
    """
    if not run.has("steps"):
        collect = "record a profile of two to four steps on every rank"
        raise NotMeasuredError(f"steps of ranks: {run.name} holds none", how_to_collect=collect)
    case = Case(run, limits={"slow-rank-z": z_limit, "slow-rank-persistence": persistence})
    found = judged(case, [rule for rule in all_rules() if rule.name in RULES])
    return ClusterJudgement(run=run, case=case, stages=stragglers.stages(case.steps), diagnosis=found)


def waits_told(stages: pd.DataFrame) -> str:
    """Which of several stages of `stragglers.stages` waits most for the others, in words; "" if none does, or nothing says it."""
    rows: list[dict[Any, Any]] = stages.to_dict("records")
    waiting = [row for row in rows if not pd.isna(row["bubble_ns"]) and row["bubble_ns"] > 0]
    if len(rows) == 1 or not waiting:
        return ""
    row = max(waiting, key=lambda row: int(row["bubble_ns"]))
    form = "Stage {stage} waits {bubble_ns} of its {step_ns} for others."
    return say(form, stage=_stage(row), bubble_ns=row["bubble_ns"], step_ns=row["step_ns"])


def stages_told(stages: pd.DataFrame) -> str:
    """The mean step of the stages of `stragglers.stages`, and what they compute, in words."""
    rows: list[dict[Any, Any]] = stages.to_dict("records")
    if len(rows) == 1:
        (row,) = rows
        one, more = "1 rank: a step takes {step_ns} on average.", "{num} ranks, no stages: a step takes {step_ns} on average."
        form = one if row["num_ranks"] == 1 else more
        return say(form, num=str(row["num_ranks"]), step_ns=row["step_ns"])
    by_length = sorted(rows, key=lambda row: int(row["step_ns"]))
    told = rows if len(rows) <= MOST_TOLD else [by_length[0], by_length[-1]]
    parts = [
        say("stage {stage} (ranks {ranks}) {step_ns}", stage=_stage(row), ranks=written(row["ranks"]), step_ns=row["step_ns"])
        for row in told
    ]
    said = [
        say("{num} stages, mean step as their own ranks recorded it: {stages}.", num=str(len(rows)), stages=joined(parts, ", "))
    ]
    if computing := [format_ns(row["computing_ns"]) for row in told if not pd.isna(row["computing_ns"])]:
        said.append(say("Mean computing: {times}.", times=" / ".join(computing)))
    return joined(said)


def _stage(row: Mapping[Any, Any]) -> str:
    return stragglers.stage_name(row["stage"])


def groups_of_rank(run: Run, rank: int) -> pd.DataFrame:
    """The groups that a rank is in, as `placement.group_frame` has them."""
    groups = placement.group_frame(run)
    return groups[[rank in placement.members_of(text.replace(" ", "")) for text in groups["members"]]]


def groups_told(groups: pd.DataFrame, rank: int) -> str:
    """With how many ranks a rank works, in a sentence; `groups` is of `groups_of_rank`."""
    if groups.empty:
        return say("The groups of rank {rank} were not recorded.", rank=str(rank))
    num, most = len(groups), int(groups["size"].max()) - 1
    others = say("no other rank" if most == 0 else "{most} other rank" if most == 1 else "{most} other ranks", most=str(most))
    form = "Rank {rank} works in one group, with {others}." if num == 1 else _GROUPS
    return say(form, rank=str(rank), num=str(num), others=others)


_GROUPS = "Rank {rank} works in {num} groups, in the largest with {others}."
