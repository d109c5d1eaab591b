"""Communication: is it needed, slow, or waiting? What is hidden, who waits for whom, which link is slow, how size costs time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import Run
from perfkit.core.units import NS_PER_MS, THIN_SPACE, format_ratio, significant
from perfkit.explain import collectives
from perfkit.explain.diagnose.case import Case
from perfkit.explain.exposure import by_operation, exposed
from perfkit.explain.ranks import parse_ranks
from perfkit.face.charts import theme
from perfkit.face.charts.cluster import link_matrix
from perfkit.face.charts.communication import exposure_bars, size_rows, size_time, wait_bars
from perfkit.face.panels._cluster_rows import link_rows, link_table
from perfkit.face.panels._diagnosis import diagnosis_of
from perfkit.face.panels._finding_log import keep_findings
from perfkit.face.widgets import context
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.control import Choice, Number, PathPicker, Text
from perfkit.face.widgets.panel import Action, Answer, Empty, Panel
from perfkit.face.widgets.table import Table
from perfkit.record.events.graph import causal_graph

ALL = "all"
COLLECT = "record communication: profiler level 1 with communication, or activities CUDA or NPU with record_shapes"
PARTS = (("waiting", "wait_ns"), ("moving data", "transfer_ns"), ("neither", "other_ns"))
SIZES = {"bytes": "moved_bytes", "bytes_per_s": "moved_bytes_per_s"}
POINT_TO_POINT = ("send", "receive", "send_receive")
CLEARLY = 2.0
"""A rank is named as the late one only if it is this many times further from the others than the next one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """The recording, which collectives are looked at, and the share of waiting from which it counts."""

    run: str
    operation: str = ALL
    group: str = ALL
    transport: str = ALL
    ranks: str = ""
    wait_ratio: float = 0.2


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """All that the page shows; `members` are the collectives by rank, `waiting` is one row a rank."""

    state: State
    run: Run
    operations: pd.DataFrame
    calls: pd.DataFrame
    members: pd.DataFrame
    waiting: pd.DataFrame
    links: pd.DataFrame
    num_steps: int

    @property
    def late(self) -> tuple[int, str] | None:
        """The rank that others wait for, and how that is known; None if nothing says it or waiting is rare."""
        wait, transfer = self.waiting["wait_ns"].sum(), self.waiting["transfer_ns"].sum()
        # A stage of a pipeline that has not finished yet is not late: sends and receives blame nobody.
        rows = self.members[~self.members["operation"].isin(POINT_TO_POINT)]
        if rows.empty or wait + transfer <= 0 or wait / (wait + transfer) < self.state.wait_ratio:
            return None
        told = collectives.waiting(rows)
        told = told[told["wait_ns"].notna()]
        if len(told) < 2:
            return None
        first, second = told.iloc[0], told.iloc[1]
        if first["caused_ns"] > CLEARLY * second["caused_ns"]:
            return int(first["rank"]), f"it comes last in {int(first['times_last'])} of {int(first['operations'])} operations"
        by_wait = told.sort_values("wait_ns", kind="stable")
        least, next_least = by_wait.iloc[0], by_wait.iloc[1]
        if not (rows["basis"] == "recorded").all() or next_least["wait_ns"] <= CLEARLY * least["wait_ns"]:
            return None
        return int(least["rank"]), f"of the ranks recorded it waits least ({_ms(least['wait_ns'] / self.num_steps)} a step)"


def start() -> State:
    """The project's open recording, else the bundled two-rank profile."""
    return State(run=context.first_run(context.SAMPLES))


def compute(state: State, progress: context.Progress | None = None) -> Result:
    """Split the chosen collectives; raises NotMeasuredError if the run has none."""
    run = context.read_run(state.run, progress)
    if not run.has("collectives"):
        raise NotMeasuredError(f"communication: {run.name} holds no collectives", how_to_collect=COLLECT)
    ranks = parse_ranks(state.ranks, run.ranks)
    calls = _chosen(exposed(run, ranks=ranks), state)
    members = _chosen(causal_graph(run).members(), state)
    waiting = collectives.waiting(members) if len(members) else pd.DataFrame(columns=["rank", "wait_ns", "caused_ns"])
    sums = members.groupby("rank")[["transfer_ns", "other_ns"]].sum(min_count=1)
    waiting = waiting.merge(sums.reset_index(), on="rank", how="left")
    return Result(
        state=state,
        run=run,
        operations=by_operation(calls),
        calls=calls,
        members=members,
        waiting=waiting[waiting["rank"].isin(ranks)].reset_index(drop=True),
        links=link_table(Case(run), transport=state.transport),
        num_steps=max(1, int(members["step"].nunique())),
    )


def _chosen(rows: pd.DataFrame, state: State) -> pd.DataFrame:
    if state.operation != ALL:
        rows = rows[rows["operation"].astype(str) == state.operation]
    if state.group != ALL:
        rows = rows[rows["group"].astype(str) == state.group]
    return rows.reset_index(drop=True)


def view(result: Result) -> Answer:
    """Hidden and exposed by operation, waiting by rank, links, and size against time."""
    run = result.run
    source = [f"{run.kind}: {run.name}, tables collectives and kernels"]
    charts: dict[str, Any] = {
        "operations": Figure(
            chart=exposure_bars({"operations": _operation_rows(result.operations)}),
            title=context.marked(result.state.run, "Hidden and exposed, by operation"),
            alt=_sentence(result),
            sources=source,
            wide=True,
        )
    }
    spent = _spent_rows(result)
    if spent["spent"]:
        charts["waiting"] = Figure(
            chart=wait_bars(spent),
            title="Waiting and moving data, by rank (diamond: the late one)",
            alt=_wait_sentence(result),
            sources=[f"{run.kind}: {run.name}; split by {_basis(result)}"],
            wide=True,
        )
    if len(result.links):
        charts["links"] = Figure(
            chart=link_matrix({"links": link_rows(result.links)}),
            title=f"Bandwidth of the links (median {result.links['bytes_per_s'].median() / 1e9:.3g} GB/s); slow ones are ringed",
            alt=_link_sentence(result),
            sources=[f"{run.kind}: {run.name}, table links"],
            wide=True,
        )
    points = size_rows(result.members)
    if points["calls"]:
        charts["sizes"] = Figure(
            chart=size_time(points),
            title="Size against the time in which data moved; dashed: latency + size / bandwidth",
            alt="Each collective by its size and time, with the fitted line of its operation.",
            sources=source,
            table="calls",
            wide=True,
        )
    return Answer(charts, _tables(result), _sentence(result), _notes(result))


def _operation_rows(operations: pd.DataFrame) -> list[dict[str, Any]]:
    rows = []
    for row in operations.to_dict("records"):
        size = "" if pd.isna(row["group_size"]) else f" ({int(row['group_size'])} ranks)"
        told = not pd.isna(row["exposed_ns"])
        parts = {"exposed": row["exposed_ns"], "hidden": row["hidden_ns"]} if told else {"not told apart": row["duration_ns"]}
        rows += [
            {
                "operation": f"{row['operation']}{size}",
                "part": part,
                "ms": int(amount) / NS_PER_MS,
                "share": int(amount) / max(1, int(row["duration_ns"])),
            }
            for part, amount in parts.items()
        ]
    return rows


def _spent_rows(result: Result) -> dict[str, list[dict[str, Any]]]:
    shown = result.waiting.sort_values("rank").head(theme.MAX_MARKS // len(PARTS))
    spent: list[dict[str, Any]] = [
        {"rank": int(row["rank"]), "part": part, "ms": int(row[column]) / NS_PER_MS / result.num_steps, "order": order}
        for row in shown.to_dict("records")
        for order, (part, column) in enumerate(PARTS)
        if not pd.isna(row[column])
    ]
    late = result.late
    height = sum(row["ms"] for row in spent if late is not None and row["rank"] == late[0])
    return {"spent": spent, "latest": [] if late is None else [{"rank": late[0], "ms": height, "why": late[1]}]}


def _tables(result: Result) -> dict[str, Table]:
    waiting = result.waiting.copy()
    total = (waiting["wait_ns"] + waiting["transfer_ns"]).astype("Float64")
    waiting["wait_ratio"] = waiting["wait_ns"].astype("Float64") / total.where(total > 0)
    names = ["rank", "wait_ns", "transfer_ns", "other_ns", "wait_ratio", "caused_ns", "times_last", "operations"]
    tables = {
        "operations": Table(frame=result.operations.rename(columns=SIZES), title="Operations, a rank and step"),
        "ranks": Table(
            frame=waiting[[name for name in names if name in waiting]],
            title="Ranks: waiting, and what others waited for them (all steps)",
            labels={"caused_ns": "others waited for it", "wait_ratio": "waiting"},
        ),
    }
    if len(result.links):
        tables["links"] = Table(frame=result.links.rename(columns=SIZES), title="Links, slow ones first")
    return tables


def _sentence(result: Result) -> str:
    return " ".join(part for part in (_exposed_sentence(result), _wait_sentence(result), _link_sentence(result)) if part)


def _exposed_sentence(result: Result) -> str:
    steps = result.run.steps()
    known = steps[steps["communication_ns"].notna() & steps["exposed_communication_ns"].notna()]
    if known.empty:
        return "How much of the communication is exposed was not measured."
    row = known.sort_values("exposed_communication_ns", kind="stable").iloc[-1]
    part = row["exposed_communication_ns"] / max(1, row["duration_ns"])
    text = f"Rank {int(row['rank'])} communicates {_ms(row['communication_ns'])} in step {int(row['step'])}; "
    text += f"{_ms(row['exposed_communication_ns'])} of it are exposed ({part:.2%} of the step)"
    return text + ("." if pd.isna(row["overlapped_ns"]) else f", {_ms(row['overlapped_ns'])} are hidden behind computing.")


def _wait_sentence(result: Result) -> str:
    known = result.waiting[result.waiting["wait_ns"].notna() & result.waiting["transfer_ns"].notna()]
    total = int((known["wait_ns"] + known["transfer_ns"]).sum())
    if known.empty or not total:
        return "Waiting and moving data were not told apart."
    share = int(known["wait_ns"].sum()) / total
    text = f"{format_ratio(share)} of the time that is told apart is waiting"
    late = result.late
    if late is None:
        return f"{text}; no single rank makes the others wait."
    return f"{text}: rank {late[0]} is the late one; {late[1]}."


def _link_sentence(result: Result) -> str:
    if result.links.empty:
        return ""
    slow = result.links[result.links["slow"]]
    if slow.empty:
        return f"Links move {result.links['bytes_per_s'].median() / 1e9:.3g} GB/s (median); none is slower than its like."
    row = slow.iloc[0]
    ends = f"{int(row['source_rank'])} to {int(row['target_rank'])}"
    return f"The link {ends} takes {significant(float(row['slowness']))} times as long a byte as links like it."


def _basis(result: Result) -> str:
    words = {"arrival": "arrival on a common clock", "recorded": "the vendor's times", "partial": "some members only"}
    return ", ".join(words[name] for name in result.members["basis"].dropna().astype(str).unique()) or "nothing"


def _notes(result: Result) -> tuple[str, ...]:
    notes = []
    if bool(result.operations["exposed_ns"].isna().to_numpy().any()):
        notes.append("Hidden and exposed of single operations are not told apart where kernels were not recorded.")
    told = result.waiting[["wait_ns", "transfer_ns"]].sum().sum() if len(result.waiting) else 0
    rest = result.waiting["other_ns"].sum() if len(result.waiting) else 0
    if rest > told > 0:
        share = format_ratio(rest / (rest + told))
        notes.append(f"{share} of the time in collectives is neither waiting nor transfer by the times of the vendor.")
    if "partial" in set(result.members["basis"].dropna()):
        notes.append("Of some groups only a part of the ranks was recorded: their waiting is a lower bound.")
    if result.links.empty:
        notes.append("Links: not measured. Record communication (profile_communication, or profiler level 1).")
    notes.append("Long transfer: look at the link. Long waiting: somebody is late. Many small messages: fuse them.")
    if result.run.kind == "simulated":
        notes.append("This run is simulated.")
    return tuple(notes)


def _ms(ns: float) -> str:
    return f"{ns / NS_PER_MS:,.3f} ms".replace(",", THIN_SPACE)


def save(state: State) -> str:
    """Write the findings of the run to the open round."""
    run, diagnosis = diagnosis_of(state.run)
    number, ids = keep_findings(run, diagnosis, state.run)
    return f"Saved to round {number}: {len(ids)} finding{'s' * (len(ids) != 1)} of {run.name}."


def pick(state: State, place: str, datum: dict[str, Any]) -> State:
    """The state after a click: on a bar of an operation only that operation is looked at."""
    name = str(datum.get("operation", "")).partition(" (")[0]
    return replace(state, operation=name) if place == "operations" and name else state


def fill(state: State) -> State:
    """The bundled two-rank profile."""
    return replace(state, run=context.run_options()[-1][1] if context.run_options() else "")


def _names_of(column: str) -> Any:
    def options(state: State) -> list[tuple[str, str]]:
        if not state.run:
            return [(ALL, ALL)]
        table = "links" if column == "transport" else "collectives"
        names = context.read_run(state.run).frame(table, columns=[column])[column].dropna().astype(str).unique()
        return [(ALL, ALL), *((name, name) for name in sorted(names))]

    return options


PANEL = Panel(
    title="Communication",
    start=start,
    compute=compute,
    view=view,
    empty=Empty(action="Use the sample profile", fill=fill),
    on_select=pick,
    on_row=pick,
    shared=("run",),
    actions=(
        Action(
            name="save", label="Save findings to the round", run=save, help="findings of the run, once", visible=context.can_save
        ),
    ),
    controls=(
        PathPicker(path="run", options=context.run_options, label="Recording", help="a folder of profiles or a trace file"),
        Choice(path="operation", options=_names_of("operation"), label="Operation"),
        Choice(path="group", options=_names_of("group"), label="Group"),
        Choice(path="transport", options=_names_of("transport"), label="Transport of links"),
        Text(path="ranks", label="Ranks", placeholder="0-7, 12 (empty: all)"),
        Number(path="wait_ratio", low=0, high=1, step=0.05, label="Waiting counts from this share"),
    ),
)
