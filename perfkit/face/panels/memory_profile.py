"""Memory profile: what filled the device over time, who owns the peak, what lives too long, and how far the plan was off."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.core.units import GIB, format_bytes, format_ratio
from perfkit.explain import memory_use
from perfkit.explain.memory_use import HOW, Curve
from perfkit.face.charts.memory_profile import curve_points, drawn_at, memory_area, memory_area_rows, owner_bars, owner_rows
from perfkit.face.panels import _memory_tables as _tables
from perfkit.face.panels._plan_state import preset_options, preset_plan
from perfkit.face.widgets import context
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.control import Choice, Number, PathPicker, Slider
from perfkit.face.widgets.panel import Answer, Empty, Panel
from perfkit.face.widgets.table import Table
from perfkit.predict import dryrun
from perfkit.record import memory

SAMPLES = {"Two-rank Ascend profile (torch_npu)": "torch_npu_2rank", "Memory tracker of MindSpore (made up)": "memory_tracker"}
NO_PLAN = "none"
LATE = 1.15
"""Measured over planned above which memory is likely released late."""
BY = ("name", "owner", "kind", "pool")
LATE_STEPS = (
    "pynative_synchronize=True, MS_ALLOC_CONF=memory_tracker:True, fewer layers or a dry run (page 19), "
    "look for blocks that outlive their step (custom bprop without used_bprop_inputs, references in Python), "
    "then synchronise no more"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """The recording, the rank, the component of the curve ("": the largest), and what it is compared with."""

    run: str = ""
    rank: int = 0
    component: str = ""
    by: str = "name"
    alive_percent: float = 50
    limit_gib: float = 0.0
    plan: str = NO_PLAN


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """All that the page shows; what the recording does not hold is None."""

    state: State
    rank: int
    curve: Curve
    peak: memory.Peak | None
    owners: dict[str, int]
    owners_by: str
    long_lived: pd.DataFrame | None
    span: str
    held: tuple[memory.Held, ...]
    won_bytes: int | None
    planned: dryrun.Predicted | None


def start() -> State:
    """The project's open run, else the bundled profile."""
    return State(run=context.first_run({name: f"traces/{folder}" for name, folder in SAMPLES.items()}))


def compute(state: State, progress: context.Progress | None = None) -> Result:
    """Read the curve and the blocks of one rank; raises NotMeasuredError if it has neither."""
    run = context.read_run(state.run, progress)
    known = ranks(run)
    if not known:
        missing = "memory over time"
        if run.has("memory_reports"):
            missing += " (there is a peak only; page 19 shows it)"
        raise NotMeasuredError(missing, how_to_collect=HOW)
    rank = state.rank if state.rank in known else known[0]
    curve = memory_use.curve(run, rank, state.component)
    blocks = run.frame("memory_blocks", ranks=[rank])
    if blocks.empty:
        peak, owners, by, lived, span, won = None, _by_component(run, rank), "component", None, "", None
    else:
        peak = memory.live_peak(blocks)
        by = state.by if peak.blocks[state.by].notna().any() else "name"
        owners, won = memory.bytes_at_peak(peak, by), memory_use.won_by_virtual_memory(blocks)
        first, last, span = _span(run, rank, blocks)
        lived = memory_use.long_lived(blocks, first, last, state.alive_percent / 100)
    plan = None if state.plan == NO_PLAN else preset_plan(state.plan)
    stage = 0 if plan is None else _stage(run, rank, plan.parallel.pipeline_parallel_size)
    return Result(
        state=state,
        rank=rank,
        curve=curve,
        peak=peak,
        owners=owners,
        owners_by=by,
        long_lived=lived,
        span=span,
        held=_held(blocks),
        won_bytes=won,
        planned=None if plan is None else dryrun.substitute(plan).stages[stage],
    )


def ranks(run: Run) -> list[int]:
    """Ranks with memory over time."""
    found: set[int] = set()
    for table in ("memory_curve", "memory_blocks"):
        if run.has(table):
            found.update(int(rank) for rank in run.frame(table, columns=["rank"])["rank"].unique())
    return sorted(found)


def _by_component(run: Run, rank: int) -> dict[str, int]:
    """Largest allocation of every component; sums of components and the whole are left out."""
    rows = run.frame("memory_curve", ranks=[rank])
    sizes = rows.groupby(rows["component"].astype("object"))["allocated_bytes"].max().dropna()
    return {str(name): int(size) for name, size in sizes.items() if "+" not in str(name) and name != "total"}


def _span(run: Run, rank: int, blocks: pd.DataFrame) -> tuple[int, int, str]:
    """The first recorded step if blocks have times, else all of the recording."""
    steps = run.steps()
    steps = steps[(steps["rank"] == rank) & steps["start_ns"].notna() & steps["duration_ns"].notna()]
    if len(steps) and blocks["clock"].iloc[0] == "ns":
        step = steps.iloc[0]
        return int(step["start_ns"]), int(step["start_ns"] + step["duration_ns"]), f"step {int(step['step'])}"
    moments = pd.concat([blocks["start"], blocks["end"]]).dropna()
    return int(moments.min()), int(moments.max()), "the recording"


def _stage(run: Run, rank: int, num_stages: int) -> int:
    place = run.placement.get(rank)
    stage = place.pipeline if place is not None and place.pipeline is not None else 0
    return min(stage, num_stages - 1)


def _held(blocks: pd.DataFrame) -> tuple[memory.Held, ...]:
    try:
        return memory.held_after_use(blocks, _tables.SHOWN) if len(blocks) else ()
    except NotMeasuredError:
        return ()


def view(result: Result) -> Answer:
    """The curve and the owners as charts; what is alive at the peak, lives long or is held after its last use as tables."""
    state, curve, text = result.state, result.curve, _sentence(result)
    limit = round(state.limit_gib * GIB) or None
    source = f"measured: {'memory curve' if curve.component != 'blocks' else 'memory blocks'} of rank {result.rank}"
    points, unit = curve_points(curve)
    top = curve.allocated_peak_bytes if curve.allocated_peak_bytes is not None else curve.reserved_peak_bytes
    at = None if top is None or curve.peak_moment is None else (drawn_at(curve, curve.peak_moment), float(top))
    charts = {
        "curve": Figure(
            chart=memory_area(memory_area_rows(points, at, limit), x_title=unit),
            title=context.marked(state.run, f"Memory of rank {result.rank} over time: {curve.component}"),
            alt=text,
            sources=[source],
            table="curve",
            wide=True,
        )
    }
    if result.owners:
        moment = f"At the peak of the blocks, by {result.owners_by}" if result.peak else "Largest allocation of each component"
        charts["owners"] = Figure(
            chart=owner_bars(owner_rows(result.owners)), title=moment, alt=text, sources=[source], table="owners", wide=True
        )
    tables = {"figures": Table(frame=_figures(result), title="Figures")}
    if result.peak is not None:
        tables["alive"] = Table(
            frame=_tables.alive(result.peak), title=f"Largest blocks alive at the peak, of {len(result.peak.blocks)}"
        )
    if result.long_lived is not None and len(result.long_lived):
        share = f"{state.alive_percent:g} % of {result.span}"
        tables["lived"] = Table(
            frame=_tables.lived(result.long_lived), title=f"Blocks alive for {share} or longer, weights left out"
        )
    if result.held:
        tables["held"] = Table(frame=_tables.held(result.held), title="Held after the last use, the most wasteful first")
    return Answer(charts, tables, text, _notes(result))


def _sentence(result: Result) -> str:
    curve = result.curve
    if curve.allocated_peak_bytes is None:
        reserved = format_bytes(curve.reserved_peak_bytes)
        return f"Rank {result.rank} reserved up to {reserved} ({curve.component}). What was allocated of it is not recorded."
    text = f"Rank {result.rank} allocated up to {format_bytes(curve.allocated_peak_bytes)} ({curve.component})"
    if curve.reserved_peak_bytes is not None and curve.gap_bytes is not None:
        held = curve.allocated_peak_bytes + curve.gap_bytes
        share = format_ratio(curve.gap_bytes / held) if held else "none"
        text += f"; {format_bytes(held)} were reserved then, {share} of it not in use"
    return f"{text}."


def _notes(result: Result) -> tuple[str, ...]:
    notes, curve, peak = [], result.curve, result.peak
    limit = result.state.limit_gib * GIB
    largest = max((size for size in (curve.allocated_peak_bytes, curve.reserved_peak_bytes) if size is not None), default=0)
    if limit:
        word = "below" if largest <= limit else "above"
        notes.append(f"The largest figure is {format_bytes(abs(limit - largest))} {word} the limit.")
    if result.won_bytes is not None:
        notes.append(f"Virtual memory (MS_ALLOC_CONF=enable_vmm:True) could win up to {format_bytes(result.won_bytes)} of gaps.")
    if peak is not None and curve.component != "blocks" and curve.allocated_peak_bytes:
        missing = 1 - peak.num_bytes / curve.allocated_peak_bytes
        if missing > 0.02:
            notes.append(
                f"Recorded blocks explain {format_bytes(peak.num_bytes)} of the peak; the other {format_ratio(missing)} were "
                "there before the recording (weights, optimizer state) or are not recorded block by block."
            )
    notes += _plan_note(result)
    if peak is None:
        notes.append("Single blocks are not recorded: operator_memory.csv or the memory tracker names them.")
    return tuple(notes)


def _plan_note(result: Result) -> list[str]:
    if result.planned is None:
        return []
    measured = result.curve.allocated_peak_bytes or result.curve.reserved_peak_bytes or 0
    ratio = measured / result.planned.used_bytes
    text = (
        f"The plan predicts {format_bytes(result.planned.used_bytes)} for stage {result.planned.stage}: "
        f"measured is {(ratio - 1) * 100:+.1f} %."
    )
    return [f"{text} Memory may be released late; look in this order: {LATE_STEPS}." if ratio > LATE else text]


def _figures(result: Result) -> pd.DataFrame:
    curve = result.curve
    rows: list[tuple[str, str]] = [
        ("allocated, largest", format_bytes(curve.allocated_peak_bytes)),
        ("reserved, largest", format_bytes(curve.reserved_peak_bytes)),
        ("reserved and not allocated at the peak", format_bytes(curve.gap_bytes)),
        ("gaps that virtual memory could join", format_bytes(result.won_bytes)),
    ]
    if result.peak is not None:
        rows.append(("recorded blocks at their peak", f"{format_bytes(result.peak.num_bytes)} in {len(result.peak.blocks)} blocks"))
    if result.planned is not None:
        low, high = format_bytes(result.planned.low_bytes), format_bytes(result.planned.high_bytes)
        rows.append(("predicted by the plan", f"{format_bytes(result.planned.used_bytes)} ({low} to {high})"))
    return pd.DataFrame(rows, columns=["figure", "value"])


def _rank_options(state: State) -> list[tuple[str, int]]:
    return [(f"rank {rank}", rank) for rank in ranks(context.read_run(state.run))]


def _component_options(state: State) -> list[tuple[str, str]]:
    run = context.read_run(state.run)
    known = ranks(run)
    rank = state.rank if state.rank in known else min(known, default=0)
    found = memory_use.components(run, rank)
    return [("the largest", ""), *((name, name) for name in found if not name.startswith(memory_use.MODULE))]


def _runs(_state: object = None) -> list[tuple[str, str, str]]:
    samples = [(label, str(data_folder() / "traces" / folder), "Samples") for label, folder in SAMPLES.items()]
    return [*(option for option in context.run_options() if option[2] != "Samples"), *samples]


PANEL = Panel(
    title="Memory over time",
    start=start,
    compute=compute,
    view=view,
    empty=Empty(
        action="Use the sample profile", fill=lambda state: replace(state, run=str(data_folder() / "traces" / "torch_npu_2rank"))
    ),
    shared=("run", "rank"),
    controls=(
        PathPicker(path="run", options=_runs, label="Recording"),
        Choice(path="rank", options=_rank_options, label="Rank"),
        Choice(path="component", options=_component_options, label="Component"),
        Choice(path="by", options=(("operator", "name"), *((name, name) for name in BY[1:])), label="Owners by"),
        Slider(path="alive_percent", low=10, high=100, label="Long-lived from", unit="%", help="of the step, or of the recording"),
        Number(
            path="limit_gib",
            low=0,
            high=2048,
            label="Limit",
            empty=0,
            placeholder="none",
            unit="GiB",
            key="context.max_device_memory",
        ),
        Choice(path="plan", options=lambda state: [("no plan", NO_PLAN), *preset_options(state)], label="Compare with the plan"),
    ),
)
