"""Memory at its peak: which ranks tell of it, who owns it, what lives or is held too long, and how far it is from a plan.

Composed of `memory_use` and `perfkit.record.memory`. Tables hold the largest `SHOWN` blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import Run
from perfkit.core.shortening import shortened
from perfkit.core.spec.plan import Plan
from perfkit.core.texts import say
from perfkit.core.units import format_bytes, format_change, format_ratio
from perfkit.explain.memory_use import HOW, MODULE, Curve, components, long_lived, won_by_virtual_memory
from perfkit.predict import dryrun
from perfkit.record import memory

SHOWN = 20
ABNORMAL = 0.1
"""Share of the peak from which a single block is marked."""
LATE = 1.15
"""Measured over planned above which memory is likely released late."""
LATE_STEPS = (
    "pynative_synchronize=True, MS_ALLOC_CONF=memory_tracker:True, fewer layers or a dry run (page 19), "
    "look for blocks that outlive their step (custom bprop without used_bprop_inputs, references in Python), "
    "then synchronise no more"
)
BY_COMPONENT = "Largest allocation of each component"
"""What stands over owners where no blocks were recorded: their peaks are at times of their own, and are no parts of one."""
_EXPLAINED = 0.02
_NAMED = 60
_NAMED_BESIDE = 24
"""Letters of a name in a sentence that says more."""


def rank_choices(run: Run) -> list[tuple[str, int]]:
    """Ranks with memory over time, as label and value. Raises NotMeasuredError if there are none."""
    found: set[int] = set()
    for table in ("memory_curve", "memory_blocks"):
        if run.has(table):
            found.update(int(rank) for rank in run.distinct(table, columns=["rank"])["rank"])
    if not found:
        only = " (there is a peak only; page 19 shows it)" if run.has("memory_reports") else ""
        raise NotMeasuredError(f"memory over time{only}", how_to_collect=HOW)
    return [(f"rank {rank}", rank) for rank in sorted(found)]


def component_choices(run: Run, rank: int) -> list[tuple[str, str]]:
    """The components of a rank that have a curve, as label and value, after "", which stands for the largest."""
    return [("the largest", ""), *((name, name) for name in components(run, rank) if not name.startswith(MODULE))]


def curve_told(run: Run, rank: int, curve: Curve, *, limit_bytes: int | None = None) -> tuple[str, ...]:
    """The peak of a curve and who owns most of it in a sentence, what is reserved, and what is left of the limit."""
    peak, reserved = curve.allocated_peak_bytes, curve.reserved_peak_bytes
    if peak is None:
        text = f"Rank {rank} reserved up to {format_bytes(reserved)} ({curve.component}). What was allocated of it is not recorded."
    else:
        text = f"Rank {rank} allocated up to {format_bytes(peak)} ({curve.component})"
        if owned := _largest_owner(run, rank, curve):
            text += f", {format_bytes(owned[1])} of it by {shortened(owned[0], _NAMED_BESIDE)}"
        if reserved is not None and curve.gap_bytes is not None:
            held = peak + curve.gap_bytes
            share = format_ratio(curve.gap_bytes / held) if held else "none"
            text += f"; {format_bytes(held)} were reserved then, {share} of it unused"
        text += "."
    if limit_bytes is None:
        return (text,)
    largest = max((size for size in (peak, reserved) if size is not None), default=0)
    word = "below" if largest <= limit_bytes else "above"
    return text, f"The largest figure is {format_bytes(abs(limit_bytes - largest))} {word} the limit."


def _largest_owner(run: Run, rank: int, curve: Curve) -> tuple[str, int] | None:
    """Whose blocks are the largest part of a peak, and their bytes; None where no named blocks tell of that moment."""
    blocks = _blocks(run, rank)
    if blocks.empty or (peak := memory.live_peak(blocks)).moment != curve.peak_moment:
        return None
    owner, num_bytes = next(iter(memory.bytes_at_peak(peak, "name").items()))
    return (owner, num_bytes) if owner else None


def memory_figures(run: Run, rank: int, curve: Curve) -> pd.DataFrame:
    """The figures of a rank in words: `figure` and `value`; what is not recorded says so."""
    blocks = _blocks(run, rank)
    won = won_by_virtual_memory(blocks) if len(blocks) else None
    besides, owned = _reserved_besides(run, rank, curve), _largest_owner(run, rank, curve)
    rows = [
        ("allocated, largest", format_bytes(curve.allocated_peak_bytes)),
        ("reserved, largest", format_bytes(curve.reserved_peak_bytes)),
        *([("reserved, largest of all components", format_bytes(besides[1]))] if besides else []),
        ("reserved and not allocated at the peak", format_bytes(curve.gap_bytes)),
        ("gaps that virtual memory could join", format_bytes(won)),
        *([("largest owner at the peak", f"{owned[0]}, {format_bytes(owned[1])}")] if owned else []),
    ]
    if len(blocks):
        peak = memory.live_peak(blocks)
        rows.append(("recorded blocks at their peak", f"{format_bytes(peak.num_bytes)} in {len(peak.blocks)} blocks"))
        if missing := _not_in_blocks(curve, peak.num_bytes):
            rows.append(("not recorded block by block, of the largest allocated", format_ratio(missing)))
    return pd.DataFrame(rows, columns=["figure", "value"])


def blocks_told(run: Run, rank: int, curve: Curve) -> tuple[str, ...]:
    """What else is reserved, what single blocks explain of a peak and what joining their gaps wins, in sentences."""
    blocks = _blocks(run, rank)
    notes: list[str] = []
    if besides := _reserved_besides(run, rank, curve):
        form = "{component} reserved {reserved_bytes}; page 00 tells the most of any component and rank."
        notes.append(say(form, component=besides[0], reserved_bytes=besides[1]))
    if blocks.empty:
        return *notes, "Single blocks are not recorded: operator_memory.csv or the memory tracker names them."
    peak, won = memory.live_peak(blocks), won_by_virtual_memory(blocks)
    if won is not None:
        notes.append(f"Virtual memory (MS_ALLOC_CONF=enable_vmm:True) could win up to {format_bytes(won)} of gaps.")
    if missing := _not_in_blocks(curve, peak.num_bytes):
        notes.append(
            say(
                "Recorded blocks explain {known_bytes} of the {peak_bytes} at the peak; the other {missing_ratio} were there "
                "before the recording (weights, optimizer state) or are not recorded block by block.",
                known_bytes=peak.num_bytes,
                peak_bytes=curve.allocated_peak_bytes or 0,
                missing_ratio=missing,
            )
        )
    return tuple(notes)


def _reserved_besides(run: Run, rank: int, curve: Curve) -> tuple[str, int] | None:
    """The component that reserves most and how many bytes, where it is another one: the peak of the whole run is its."""
    if not run.has("memory_curve"):
        return None
    rows = run.frame("memory_curve", ranks=[rank], columns=["component", "reserved_bytes"])
    rows = rows[rows["reserved_bytes"].notna() & ~rows["component"].astype(str).str.startswith(MODULE)]
    if rows.empty:
        return None
    most = rows.iloc[int(rows["reserved_bytes"].to_numpy(dtype="int64").argmax())]
    component, reserved_bytes = str(most["component"]), int(most["reserved_bytes"])
    return (
        None if component == curve.component or reserved_bytes <= (curve.reserved_peak_bytes or 0) else (component, reserved_bytes)
    )


def _not_in_blocks(curve: Curve, known_bytes: int) -> float:
    """The share of a peak that recorded blocks do not explain; 0 if it is little, or if the curve is made of them."""
    whole = curve.allocated_peak_bytes
    missing = 1 - known_bytes / whole if whole else 0.0
    return missing if curve.component != "blocks" and missing > _EXPLAINED else 0.0


def owners_of_peak(run: Run, rank: int, by: str = "name") -> tuple[str, dict[str, int]]:
    """Who owns the peak: a title, and bytes by owner.

    Blocks alive at the peak by a column of `memory_blocks` (by name if it is empty); where there are no blocks, the largest
    allocation of each component, without sums of components.
    """
    blocks = _blocks(run, rank)
    if len(blocks):
        peak = memory.live_peak(blocks)
        known = by if peak.blocks[by].notna().any() else "name"
        return f"At the peak of the blocks, by {'operator' if known == 'name' else known}", memory.bytes_at_peak(peak, known)
    rows = run.frame("memory_curve", ranks=[rank])
    sizes = rows.groupby(rows["component"].astype("object"))["allocated_bytes"].max().dropna()
    owners = {str(name): int(size) for name, size in sizes.items() if "+" not in str(name) and name != "total"}
    return BY_COMPONENT, owners


def owners_told(title: str, owners: Mapping[str, int]) -> str:
    """Who owns most of the peak, in a sentence; both are of `owners_of_peak`, "" where a component is the only one or none is."""
    if not owners or (title == BY_COMPONENT and len(owners) == 1):
        return ""
    most = max(owners, key=lambda owner: owners[owner])
    form = (
        "{owner} owns most, {owned_bytes}, of {num} owners." if len(owners) > 1 else "{owner} owns the whole peak, {owned_bytes}."
    )
    if title == BY_COMPONENT:
        form = "Of {num} components {owner} allocated most at a time, {owned_bytes}."
    owner = shortened(most, _NAMED) or "What has no name"
    return say(form, owner=owner, owned_bytes=owners[most], num=str(len(owners)))


def long_told(blocks: pd.DataFrame) -> str:
    """The largest block that lives long, in a sentence; `blocks` is of `lived_long`, "" where no blocks were recorded."""
    if blocks.empty:
        return "No block lives that long, weights left out." if "title" in blocks.attrs else ""
    first = blocks.iloc[0]
    form, name = "The largest long-lived block is {name}: {size_bytes}, alive for {alive_ratio} of the time.", str(first["name"])
    if not name:
        form = "The largest long-lived block has no name: {size_bytes}, alive for {alive_ratio} of the time."
    sizes = {"size_bytes": int(first["size_bytes"]), "alive_ratio": float(first["alive_ratio"])}
    return say(form, name=shortened(name, _NAMED), **sizes)


def alive_at_peak(run: Run, rank: int) -> pd.DataFrame:
    """The largest blocks alive at the peak: `name`, `owner`, `holds`, `size_bytes`, `share`, `abnormal`, `allocated at`.

    Recordings differ in what they know of a block; a column without a word is left out. Empty without blocks.
    """
    blocks = _blocks(run, rank)
    if blocks.empty:
        return blocks
    peak = memory.live_peak(blocks)
    rows = peak.blocks.sort_values("bytes", ascending=False, kind="stable").head(SHOWN)
    marks = [f"over {format_ratio(ABNORMAL, 2)} of the peak" if size >= ABNORMAL * peak.num_bytes else "" for size in rows["bytes"]]
    words = {"name": rows["name"], "owner": rows["owner"], "holds": rows["kind"]}
    frame = pd.DataFrame({name: column.map(_text) for name, column in words.items()})
    frame = frame.assign(size_bytes=rows["bytes"], share=rows["bytes"] / peak.num_bytes, abnormal=marks)
    frame["allocated at"] = rows["place"].map(_text)
    shown = frame.loc[:, [name for name in frame.columns if (frame[name] != "").any()]].reset_index(drop=True)
    shown.attrs["title"] = f"Largest blocks alive at the peak, of {len(peak.blocks)}"
    return shown


def lived_long(run: Run, rank: int, share: float) -> pd.DataFrame:
    """The largest blocks, weights left out, alive for `share` of the first recorded step, or of the recording without times.

    Columns: `name`, `size_bytes`, `alive_ratio`, `released`. Empty without blocks.
    """
    blocks = _blocks(run, rank)
    if blocks.empty:
        return blocks
    start, end, span = _span(run, rank, blocks)
    rows = long_lived(blocks, start, end, share).head(SHOWN)
    released = ["no" if missing else "yes" for missing in rows["end"].isna()]
    frame = pd.DataFrame({"name": rows["name"].map(_text), "size_bytes": rows["bytes"], "alive_ratio": rows["alive_ratio"]})
    frame = frame.assign(released=released)
    frame.attrs["title"] = f"Blocks alive for {format_ratio(share)} of {span} or longer, weights left out"
    return frame


def held_too_long(run: Run, rank: int) -> pd.DataFrame:
    """Blocks held after their last use, the most wasteful first, moments as recorded; empty where uses are not recorded."""
    blocks = _blocks(run, rank)
    try:
        held: Sequence[memory.Held] = memory.held_after_use(blocks, SHOWN) if len(blocks) else ()
    except NotMeasuredError:
        held = ()
    rows = [
        {
            "name": block.name or "",
            "address": block.address or "",
            "size_bytes": block.num_bytes,
            "last use": block.last_use,
            "released": "never" if block.freed is None else str(block.freed),
            "held for": block.held,
        }
        for block in held
    ]
    return pd.DataFrame(rows)


def planned_memory(run: Run, rank: int, plan: Plan) -> dryrun.Predicted:
    """What `plan` predicts for the pipeline stage of a rank; the first stage where the run does not say."""
    place = run.placement.get(rank)
    stage = place.pipeline if place is not None and place.pipeline is not None else 0
    return dryrun.substitute(plan).stages[min(stage, plan.parallel.pipeline_parallel_size - 1)]


def against_plan_told(curve: Curve, planned: dryrun.Predicted) -> str:
    """How far the measured peak is from the predicted one; far above it, where late release is looked for."""
    ratio = (curve.allocated_peak_bytes or curve.reserved_peak_bytes or 0) / planned.used_bytes
    low, high = format_bytes(planned.low_bytes), format_bytes(planned.high_bytes)
    text = (
        f"The plan predicts {format_bytes(planned.used_bytes)} ({low} to {high}) for stage {planned.stage}: "
        f"measured is {format_change(ratio - 1)}."
    )
    return f"{text} Memory may be released late; look in this order: {LATE_STEPS}." if ratio > LATE else text


def _blocks(run: Run, rank: int) -> pd.DataFrame:
    return run.frame("memory_blocks", ranks=[rank])


def _span(run: Run, rank: int, blocks: pd.DataFrame) -> tuple[int, int, str]:
    """The first recorded step if blocks have times, else all of the recording."""
    steps = run.steps()
    steps = steps[(steps["rank"] == rank) & steps["start_ns"].notna() & steps["duration_ns"].notna()]
    if len(steps) and blocks["clock"].iloc[0] == "ns":
        step = steps.iloc[0]
        return int(step["start_ns"]), int(step["start_ns"] + step["duration_ns"]), f"step {int(step['step'])}"
    moments = pd.concat([blocks["start"], blocks["end"]]).dropna()
    return int(moments.min()), int(moments.max()), "the recording"


def _text(value: object) -> str:
    return "" if value is None or pd.isna(value) else str(value)  # type: ignore[call-overload]
