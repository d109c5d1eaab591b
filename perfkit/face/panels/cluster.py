"""Cluster: which rank, link or stage is slow. Ranks are compared within their stage; ranks that only wait are never blamed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from perfkit.core import placement
from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import Run
from perfkit.core.units import format_ms, significant
from perfkit.explain import stragglers
from perfkit.explain.communication import link_table
from perfkit.explain.diagnose import Diagnosis, Finding, all_rules, excess, judged
from perfkit.explain.diagnose.case import Case
from perfkit.explain.ranks import written
from perfkit.face.charts.cluster import flops_map, layout_map, link_matrix, link_rows, rank_grid, stage_dots
from perfkit.face.panels._cluster_rows import dot_rows, flops_rows, grid_rows, layout_rows, stage_name
from perfkit.face.panels._diagnosis import diagnosis_of
from perfkit.face.panels._finding_log import keep_findings
from perfkit.face.panels._rank_flops import flops_by_rank
from perfkit.face.widgets import context
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.control import Choice, Number, PathPicker
from perfkit.face.widgets.panel import Action, Answer, Empty, Panel
from perfkit.face.widgets.table import Table

AXES = (("stage by rank in stage", "stage"), ("node by rank in node", "node"))
FLOPS_BY = {
    "profiler": "what the profiler counted",
    "shapes": "shapes of its kernels",
    "plan": "the plan; recomputation not counted",
}
SCALES = (("against the stage", "median"), ("ms", "ms"), ("of the largest", "max"))
LABELS = {
    "over_stage": "of its stage",
    "over_all": "of all",
    "stands_out": "stands out",
    "computing_over_mean": "of mean",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """The recording, what ranks are compared by, how the grid is laid out, the limits, and the chosen rank."""

    run: str
    metric: str = "computing"
    axes: Literal["stage", "node"] = "stage"
    scale: Literal["median", "ms", "max"] = "median"
    z_limit: float = 3.5
    persistence_percent: float = 70.0
    rank: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """All that the page shows."""

    state: State
    run: Run
    steps: pd.DataFrame
    stages: pd.DataFrame
    ranks: pd.DataFrame
    band: float | None
    diagnosis: Diagnosis
    links: pd.DataFrame
    flops: pd.DataFrame
    rank: int

    @property
    def slow(self) -> tuple[int, ...]:
        """The ranks that the rule names."""
        return _named(self.diagnosis)

    def found(self, rule: str) -> list[Finding]:
        """The findings of a rule."""
        return [finding for finding in self.diagnosis.findings if finding.rule == rule]


def start() -> State:
    """The project's open recording unless that is a sample too, else the bundled sixteen-rank cluster."""
    found = context.first_run(context.SAMPLES)
    return fill(State(run=found)) if context.is_sample(Path(found)) else State(run=found)


_judged_runs: dict[tuple[int, float, float], tuple[Case, Diagnosis]] = {}


def _named(diagnosis: Diagnosis) -> tuple[int, ...]:
    """The ranks that the rule of slow ranks names."""
    findings = [finding for finding in diagnosis.findings if finding.rule == "slow-rank"]
    return tuple(int(rank) for finding in findings for rank in finding.subject.get("ranks", ()))


def compute(state: State, progress: context.Progress | None = None) -> Result:
    """Compare the ranks; raises NotMeasuredError if the run has no steps or not what is compared."""
    run = context.read_run(state.run, progress)
    if not run.has("steps"):
        raise NotMeasuredError(
            f"steps of ranks: {run.name} holds none", how_to_collect="record a profile of two to four steps on every rank"
        )
    case, diagnosis = _judged(run, state)
    ranks, band = _apart(case, state.metric)
    if state.metric == "computing":  # ranks that are slow in some steps only stand out too
        ranks = ranks.assign(stands_out=ranks["stands_out"] | ranks["rank"].isin(_named(diagnosis)))
    known = [int(rank) for rank in ranks["rank"]]
    furthest = known[int(ranks["value_ns"].argmax())]
    return Result(
        state=state,
        run=run,
        steps=case.steps,
        stages=stragglers.stages(case.steps),
        ranks=ranks,
        band=band,
        diagnosis=diagnosis,
        links=link_table(case.run),
        flops=flops_by_rank(run),
        rank=state.rank if state.rank in known else furthest,
    )


def _apart(case: Case, metric: str) -> tuple[pd.DataFrame, float | None]:
    """One row a rank with how far it is from its like, as the rule judges it, and the log ratio from which it stands out.

    Columns are those of `against_stage`, `z`, `slow_steps_share` and `stands_out`; the latter are null without three peers.
    """
    values = stragglers.metric_values(case.steps, metric)
    table = stragglers.against_stage(values)
    try:
        found = excess.of_ranks(case) if metric == "computing" else excess.of_values(values, case)
    except NotMeasuredError:
        return table.assign(z=math.nan, slow_steps_share=math.nan, stands_out=False), None
    z, share = (table["rank"].map(column) for column in (found.ranks["z"], found.ranks["slow_steps"] / found.num_steps))
    return table.assign(z=z, slow_steps_share=share, stands_out=table["rank"].isin(found.slow_ranks)), found.band


def _judged(run: Run, state: State) -> tuple[Case, Diagnosis]:
    """What the rules of ranks, links and stages say under the page's limits, with their case; kept for the open run."""
    key = (id(run), state.z_limit, state.persistence_percent)
    if key not in _judged_runs:
        if _judged_runs and next(iter(_judged_runs.values()))[0].run is not run:
            _judged_runs.clear()
        chosen = [rule for rule in all_rules() if rule.name in ("slow-rank", "slow-link", "stage-imbalance")]
        case = Case(run, limits={"slow-rank-z": state.z_limit, "slow-rank-persistence": state.persistence_percent / 100})
        _judged_runs[key] = (case, judged(case, chosen))
    return _judged_runs[key]


def view(result: Result) -> Answer:
    """The grid of ranks, the dots by stage, the links, the FLOPs and the layout."""
    state, run = result.state, result.run
    words = stragglers.METRICS[state.metric]
    source = [f"{run.kind}: {run.name}, table steps"]
    charts: dict[str, Any] = {
        "grid": Figure(
            chart=rank_grid(
                {"grid": grid_rows(result.ranks, run, axes=state.axes, scale=state.scale)},
                value_title={"median": f"{words}, against the stage's median", "ms": f"{words} (ms)", "max": "of the largest"}[
                    state.scale
                ],
                place_title=f"rank in its {state.axes}",
                row_title=state.axes,
                diverging=state.scale == "median",
            ),
            title=context.marked(state.run, f"Every rank: {words}"),
            alt=_sentence(result),
            sources=source,
            wide=True,
        ),
        "dots": Figure(
            chart=stage_dots(dot_rows(result.ranks, result.slow, band=result.band), title=f"{words} (ms, mean of the steps)"),
            title="Ranks within their stage; beyond the band a rank is slow if it lasts",
            sources=source,
            wide=True,
        ),
    }
    if len(result.links):
        charts["links"] = Figure(
            chart=link_matrix(link_rows(result.links)),
            title="Bandwidth of the links; slow ones are ringed",
            alt=_link_sentence(result) or "Bandwidth of every link between two ranks.",
            sources=[f"{run.kind}: {run.name}, table links"],
            wide=True,
        )
    charts |= _placed_charts(result)
    return Answer(charts, _tables(result), _sentence(result), _notes(result))


def _placed_charts(result: Result) -> dict[str, Figure]:
    charts = {}
    if len(result.flops):
        basis = FLOPS_BY[result.flops["basis"].iloc[0]]
        charts["flops"] = Figure(
            chart=flops_map({"flops": flops_rows(result.flops)}),
            title="FLOPs of a step by rank, and how fast they are done, against the mean",
            alt="FLOPs, rate and computing time of every rank against the mean of the ranks.",
            sources=[f"computed from {basis}"],
            wide=True,
        )
    staged = bool((result.stages["stage"] != stragglers.NO_STAGE).any())
    charts["layout"] = Figure(
        chart=layout_map(
            {"layout": layout_rows(result.run, result.rank)},
            place_title=f"rank in its {'stage' if staged else 'node'}",
            row_title="stage" if staged else "node",
        ),
        title=f"Parallel layout, and the groups of rank {result.rank}",
        alt=f"Every rank in its place, coloured by the group that it shares with rank {result.rank}.",
        sources=[f"{result.run.kind}: {result.run.name}, groups and placement"],
        wide=True,
    )
    return charts


def _tables(result: Result) -> dict[str, Table]:
    stages = result.stages.assign(
        stage=result.stages["stage"].map(stage_name), ranks=[written(ranks) for ranks in result.stages["ranks"]]
    )
    stages = stages[["stage", "ranks", *(name for name in stages.columns if name not in ("stage", "ranks", "num_ranks"))]]
    order = (result.ranks["over_stage"] - 1).abs().sort_values(ascending=False, na_position="last", kind="stable").index
    ranks = result.ranks.loc[order]
    columns = ["rank", "stage", "value_ns", "stage_median_ns", "over_stage", "over_all", "z", "slow_steps_share", "stands_out"]
    ranks = ranks.assign(stage=ranks["stage"].map(stage_name))[columns]
    tables = {
        "stages": Table(frame=stages.dropna(axis="columns", how="all"), title="Stages, means over ranks and steps", labels=LABELS),
        "ranks": Table(
            frame=ranks,
            title="Ranks, furthest from their stage first; choose one to see its groups",
            labels=LABELS,
            selectable=True,
        ),
    }
    groups = placement.group_frame(result.run)
    if len(groups):
        mine = groups["members"].map(lambda text: result.rank in placement.members_of(text.replace(" ", "")))
        tables["groups"] = Table(frame=groups[mine], title=f"Groups of rank {result.rank}")
    return tables


def _sentence(result: Result) -> str:
    return " ".join(
        part for part in (_stage_sentence(result), _rank_sentence(result), _link_sentence(result), _imbalance(result)) if part
    )


def _stage_sentence(result: Result) -> str:
    stages = result.stages.to_dict("records")
    if len(stages) == 1:
        row = stages[0]
        ranks = f"{row['num_ranks']} rank{'s' * (row['num_ranks'] > 1)}"
        return f"{ranks}, no stages: a step takes {format_ms(row['step_ns'])} on average."
    told = stages if len(stages) <= 4 else [min(stages, key=_length), max(stages, key=_length)]
    parts = [f"stage {stage_name(row['stage'])} (ranks {written(row['ranks'])}) {format_ms(row['step_ns'])}" for row in told]
    text = f"{len(stages)} stages, mean step: {', '.join(parts)}."
    bubbles = [row for row in stages if not pd.isna(row["bubble_ns"]) and row["bubble_ns"] > 0]
    if bubbles:
        row = max(bubbles, key=lambda row: row["bubble_ns"])
        text += f" Stage {stage_name(row['stage'])} waits {format_ms(row['bubble_ns'])} for others."
    computing = [format_ms(row["computing_ns"]) for row in told if not pd.isna(row["computing_ns"])]
    return text + (f" Mean computing: {' / '.join(computing)}." if computing else "")


def _length(row: dict[Any, Any]) -> int:
    return int(row["step_ns"])


def _rank_sentence(result: Result) -> str:
    if named := result.found("slow-rank"):
        return " ".join(f"{finding.title}." for finding in named[:3])
    if not any(entry.rule == "slow-rank" for entry in result.diagnosis.healthy):
        return "Whether a rank is slow cannot be told: that takes three ranks of equal work, or the kernels of both of two."
    computing = stragglers.against_stage(stragglers.metric_values(result.steps, "computing"))
    row = computing.sort_values("value_ns", kind="stable").iloc[-1]
    if len(computing) == 2:
        return f"Neither of the two ranks is slow: rank {int(row['rank'])} computes most ({format_ms(row['value_ns'])})."
    within = f"{significant(row['over_stage'], 4)} x its stage's median, {significant(row['over_all'], 4)} x that of all"
    return f"No rank is slow: rank {int(row['rank'])} computes most ({format_ms(row['value_ns'])}), {within}."


def _link_sentence(result: Result) -> str:
    if named := result.found("slow-link"):
        return " ".join(f"{finding.title}." for finding in named[:2])
    return "No link is slow." if any(entry.rule == "slow-link" for entry in result.diagnosis.healthy) else ""


def _imbalance(result: Result) -> str:
    return " ".join(f"{finding.title}." for finding in result.found("stage-imbalance")[:1])


def _notes(result: Result) -> tuple[str, ...]:
    notes = ["Look at the interval first, then at computing, then at communication; compare within a stage only."]
    if (result.ranks["num_peers"] < excess.MIN_PEERS).any():
        notes.append("Stages with fewer than three ranks have no spread of their own; their step times are shown, not judged.")
    if result.flops.empty:
        notes.append("FLOPs by rank: not measured. They need kernels with input shapes (record_shapes), or the plan of the run.")
    if result.links.empty:
        notes.append("Links: not measured. Record communication (profile_communication, or profiler level 1).")
    lasting = result.steps["step"].nunique()
    if lasting < excess.MIN_PEERS:
        notes.append(f"{lasting} step{'s' * (lasting > 1)}: whether a deviation lasts cannot be told; record three or more.")
    if result.run.kind == "simulated":
        notes.append("This run is simulated.")
    return tuple(notes)


def save(state: State) -> str:
    """Write the findings of the run to the open round."""
    run, diagnosis = diagnosis_of(state.run)
    number, ids = keep_findings(run, diagnosis, state.run)
    return f"Saved to round {number}: {len(ids)} finding{'s' * (len(ids) != 1)} of {run.name}."


def pick(state: State, _place: str, datum: dict[str, Any]) -> State:
    """The state after a click on a rank: it is chosen."""
    rank = datum.get("rank", datum.get("source"))
    return state if rank is None else replace(state, rank=int(rank))


def fill(state: State) -> State:
    """The bundled sixteen-rank cluster."""
    return replace(state, run=next((path for _, path, _ in context.run_options() if "cluster" in Path(path).name), state.run))


PANEL = Panel(
    title="Ranks, stages and links",
    start=start,
    compute=compute,
    view=view,
    empty=Empty(action="Use the sample cluster", fill=fill),
    on_select=pick,
    on_row=pick,
    shared=("run", "metric", "rank"),
    actions=(
        Action(
            name="save", label="Save findings to the round", run=save, help="findings of the run, once", visible=context.can_save
        ),
    ),
    controls=(
        PathPicker(path="run", options=context.run_options, label="Recording", help="a folder of profiles or a trace file"),
        Choice(path="metric", options=[(words, name) for name, words in stragglers.METRICS.items()], label="Compare"),
        Choice(path="axes", options=AXES, label="Rows and columns"),
        Choice(path="scale", options=SCALES, buttons=True, label="Colour"),
        Number(path="z_limit", low=1, high=10, step=0.1, label="Robust z from which a rank stands out"),
        Number(path="persistence_percent", low=0, high=100, step=1, label="In at least this share of the steps", unit="%"),
    ),
)
