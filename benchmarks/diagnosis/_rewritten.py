"""The tables of a recording timed anew: every row moved with the moment that it hangs on, steps and their parts recounted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks.diagnosis._timed_anew import Recording, Retimed, Stretched
from perfkit.core.run import Run
from perfkit.record.overlap import Timeline

Ints = npt.NDArray[np.int64]
LEFT_OUT = ("memory_curve", "memory_blocks", "counters", "accounts", "coverage", "waits")
"""Tables with moments that say nothing of what is stretched."""
MARK = "ProfilerStep#"
WAIT_CALL = "cudaStreamSynchronize"
PARTS = ("computing", "communication/exposed", "free")


def stretched(recording: Recording, changes: Stretched) -> Run:
    """The run of a recording with these pieces stretched and all that waits for them moved."""
    timed = Retimed(recording, changes)
    times = np.array(timed.times, dtype=np.int64)
    begins, ends = times[timed.begins], times[timed.ends]
    kernels = recording.kernels
    moved = kernels.assign(
        start_ns=(kernels["start_ns"].to_numpy(dtype=np.int64) + begins - timed.starts_ns), duration_ns=ends - begins
    )
    lines = {rank: _line(timed, rank, times) for rank in timed.calls if timed.calls[rank]}
    tables = {name: recording.run.frame(name) for name in recording.run.tables if name not in LEFT_OUT}
    tables["kernels"] = moved
    keys = _keys(kernels)
    places = {key: at for at, key in enumerate(keys)}
    for name in ("collectives", "launches"):
        if name in tables:
            tables[name] = _with_kernels(tables[name], places, moved)
    if "collectives" in tables:
        tables["collectives"] = _waits(recording, tables["collectives"], changes, places)
    if "launches" in tables and len(tables["launches"]):
        tables["launches"] = _launches(tables["launches"], lines)
    if "host" in tables and len(tables["host"]):
        tables["host"] = _host(recording, timed, tables["host"], lines, times)
    if "links" in tables:
        tables["links"] = _links(tables["links"], changes)
    tables |= _steps(recording.run, kernels, moved, tables.get("host"))
    return replace(recording.run, tables=tables, dropped=(), notes=(), cache_key="")


def _keys(rows: pd.DataFrame) -> list[tuple[int, int, int]]:
    known = rows[["rank", "start_ns", "duration_ns"]].fillna(-1).astype("int64")
    return list(known.itertuples(index=False, name=None))


def _line(timed: Retimed, rank: int, times: Ints) -> _Line:
    points = sorted((timed.moments.recorded[at], int(times[at])) for begin, end, _, _ in timed.calls[rank] for at in (begin, end))
    for of_rank, moment, extra in timed.stretched.pauses:
        if of_rank == rank:
            before = [point for point in points if point[0] < moment]
            anew = moment + (before[-1][1] - before[-1][0] if before else 0)
            points = sorted([*points, (moment, anew), (moment + 1, anew + extra)])
    recorded, anew = (np.array(side, dtype=np.int64) for side in zip(*points, strict=True))
    return _Line(timed.recording, rank, recorded, np.maximum.accumulate(anew))


@dataclass(frozen=True, slots=True)
class _Line:
    """The host of a rank: moments of the common clock as recorded, ascending, and anew."""

    recording: Recording
    rank: int
    recorded: Ints
    anew: Ints

    def moved(self, moments: pd.Series) -> Ints:
        """Moments of the clock of the rank; before the first point of the line nothing moves, after its last all does."""
        asked = moments.to_numpy(dtype=np.int64)
        base = int(self.recorded[0])
        near = self.recording.common(self.rank, asked)
        shift = np.interp(near - base, self.recorded - base, (self.anew - self.recorded).astype(np.float64), left=0.0)
        result: Ints = asked + np.rint(shift).astype(np.int64)
        return result


def _with_kernels(rows: pd.DataFrame, places: dict[tuple[int, int, int], int], moved: pd.DataFrame) -> pd.DataFrame:
    at = np.array([places.get(key, -1) for key in _keys(rows)], dtype=np.int64)
    known = at >= 0
    changed = rows.copy()
    for name in ("start_ns", "duration_ns"):
        values = rows[name].astype("Int64").to_numpy(dtype="int64", na_value=-1).copy()
        values[known] = moved[name].to_numpy(dtype=np.int64)[at[known]]
        changed[name] = pd.Series(values, index=rows.index).astype("Int64").where(values >= 0)
    return changed


def _waits(recording: Recording, rows: pd.DataFrame, changes: Stretched, places: dict[tuple[int, int, int], int]) -> pd.DataFrame:
    """What grew of a collective is moving where it was stretched, and waiting for the rest."""
    before = recording.run.frame("collectives")
    extra = np.array([changes.kernels_ns.get(places.get(key, -1), 0) for key in _keys(before)], dtype=np.int64)
    grown = rows["duration_ns"].to_numpy(dtype=np.int64) - before["duration_ns"].to_numpy(dtype=np.int64)
    waits = (before["wait_ns"] + grown - extra).clip(lower=0)
    return rows.assign(wait_ns=waits.astype("Int64"), transit_ns=(before["transit_ns"] + extra).astype("Int64"))


def _launches(rows: pd.DataFrame, lines: dict[int, _Line]) -> pd.DataFrame:
    pieces = []
    for rank, of_rank in rows.groupby("rank", sort=False):
        part = of_rank.copy()
        known = part["launch_ns"].notna().to_numpy(dtype=bool)
        if int(str(rank)) in lines and known.any():
            line, mine = lines[int(str(rank))], part[known].astype({"launch_ns": "int64"})
            begin = line.moved(mine["launch_ns"])
            end = line.moved(mine["launch_ns"] + mine["launch_duration_ns"].fillna(0).astype("int64"))
            part.loc[known, "launch_ns"], part.loc[known, "launch_duration_ns"] = begin, end - begin
        pieces.append(part)
    return pd.concat(pieces, ignore_index=True)


def _host(recording: Recording, timed: Retimed, rows: pd.DataFrame, lines: dict[int, _Line], times: Ints) -> pd.DataFrame:
    pieces = []
    for rank, part in rows.groupby("rank", sort=False):
        line = lines.get(int(str(rank)))
        if line is None:
            pieces.append(part)
            continue
        begin, end = line.moved(part["start_ns"]), line.moved(part["start_ns"] + part["duration_ns"])
        pieces.append(part.assign(start_ns=begin, duration_ns=end - begin))
    added = []
    for number in timed.stretched.waits:
        rank = int(recording.kernels["rank"].iloc[number])
        launched = next((call for call in timed.calls[rank] if call[2] == recording.launched[number]), None)
        if launched is not None:
            own = int(recording.kernels["start_ns"].iloc[number]) - int(timed.starts_ns[number])  # the clock of the rank
            start, end = own + int(times[launched[1]]) + 1_000, own + int(times[timed.ends[number]]) + 2_000
            thread = _thread(recording.run, rank, launched[2])
            added.append((rank, WAIT_CALL, "call", thread, start, max(0, end - start)))
    names = ["rank", "name", "kind", "thread", "start_ns", "duration_ns"]
    frames = [*pieces, *([pd.DataFrame(added, columns=names)] if added else [])]
    whole = pd.concat([frame.astype({"name": str, "kind": str, "thread": str}) for frame in frames], ignore_index=True)
    return whole.astype({"name": "category", "kind": "category", "thread": "category"})


def _thread(run: Run, rank: int, launched: int) -> str:
    rows = run.frame("launches", ranks=[rank])
    found = rows.loc[(rows["launch_ns"] == launched).fillna(False).to_numpy(dtype=bool), "thread"]
    return str(found.iloc[0]) if len(found) else ""


def _links(rows: pd.DataFrame, changes: Stretched) -> pd.DataFrame:
    transit = rows["transit_ns"].astype("Float64")
    for source, target, steps, factor in changes.links:
        pair = ((rows["source_rank"] == source) & (rows["target_rank"] == target)) | (
            (rows["source_rank"] == target) & (rows["target_rank"] == source)
        )
        slow = pair & rows["step"].isin(steps).fillna(False).astype(bool)
        transit = transit.where(~slow.to_numpy(dtype=bool), transit * factor)
    return rows.assign(transit_ns=transit.round().astype("Int64"))


def _steps(run: Run, old: pd.DataFrame, new: pd.DataFrame, host: pd.DataFrame | None) -> dict[str, pd.DataFrame]:
    """The steps of the run with what their windows hold now; what was recorded stays where nothing moved."""
    steps = run.frame("steps").sort_values(["rank", "step"], ignore_index=True)
    rows = [_of_rank(int(str(rank)), part, old, new, (run.frame("host"), host)) for rank, part in steps.groupby("rank")]
    found = pd.concat(rows, ignore_index=True)
    amounts = {"computing": "computing_ns", "communication/exposed": "exposed_communication_ns", "free": "free_ns"}
    parts = run.frame("step_parts")
    grown = found.set_index(["rank", "step"])
    before = steps.set_index(["rank", "step"])
    keys = list(zip(parts["rank"], parts["step"], strict=True))
    more = [
        int(grown.at[key, amounts[path]] - before.at[key, amounts[path]]) if path in amounts and key in grown.index else 0
        for key, path in zip(keys, parts["path"].astype(str), strict=True)
    ]
    return {"steps": found, "step_parts": parts.assign(amount_ns=parts["amount_ns"] + np.array(more, dtype=np.int64))}


def _of_rank(
    rank: int, steps: pd.DataFrame, old: pd.DataFrame, new: pd.DataFrame, hosts: tuple[pd.DataFrame, pd.DataFrame | None]
) -> pd.DataFrame:
    mine = (old["rank"] == rank).to_numpy(dtype=bool)
    if not mine.any() or steps["start_ns"].isna().any():
        return steps
    before, after = old[mine], new[mine]
    bounds = [*steps["start_ns"].astype("int64"), int((steps["start_ns"] + steps["duration_ns"]).iloc[-1])]
    numbers = [int(step) for step in steps["step"]]
    marks = [_marks(host, rank) if host is not None else {} for host in hosts]
    ended = np.flatnonzero((before["start_ns"] + before["duration_ns"] <= bounds[0]).to_numpy(dtype=bool))
    earlier = ended[(before["start_ns"] + before["duration_ns"]).to_numpy(dtype=np.int64)[ended].argmax()] if len(ended) else None
    moved = [bounds[0] if earlier is None else bounds[0] + _end(after, earlier) - _end(before, earlier)]
    for at, bound in enumerate(bounds[1:], start=1):
        ends = [_last_end(rows, numbers[:at], int(steps["start_ns"].iloc[0])) for rows in (before, after)]
        mark = numbers[at] if at < len(numbers) else -1
        begins = [known.get(mark, 0) for known in marks]
        # Where the device had finished before the mark of the next step, the mark decides; else the device does.
        by_mark = mark in marks[0] and begins[0] > ends[0]
        late = max(begins[1], ends[1]) if by_mark else max(ends[1] + bound - ends[0], begins[1] if mark in marks[0] else 0)
        moved.append(max(moved[-1], late))
    timelines = [Timeline(rows[rows["kind"] != "host"]) for rows in (before, after)]
    found = steps.copy()
    found["start_ns"] = moved[:-1]
    found["duration_ns"] = np.diff(moved)
    for name, amount in (
        ("computing_ns", "computing_ns"),
        ("communication_ns", "communication_ns"),
        ("overlapped_ns", "overlapped_ns"),
        ("exposed_communication_ns", "exposed_ns"),
    ):
        grown = [
            getattr(timelines[1].window(*new_bounds), amount) - getattr(timelines[0].window(*old_bounds), amount)
            for new_bounds, old_bounds in zip(pairwise(moved), pairwise(bounds), strict=True)
        ]
        found[name] = (steps[name] + np.array(grown, dtype=np.int64)).clip(lower=0)
    bubble = steps["bubble_ns"].fillna(0).astype("int64")
    found["free_ns"] = (found["duration_ns"] - found["computing_ns"] - found["exposed_communication_ns"] - bubble).clip(lower=0)
    return found


def _end(rows: pd.DataFrame, at: int) -> int:
    return int(rows["start_ns"].iloc[at] + rows["duration_ns"].iloc[at])


def _last_end(rows: pd.DataFrame, numbers: list[int], otherwise: int) -> int:
    of_steps = rows[rows["step"].isin(numbers).fillna(False).to_numpy(dtype=bool)]
    return int((of_steps["start_ns"] + of_steps["duration_ns"]).max()) if len(of_steps) else otherwise


def _marks(host: pd.DataFrame, rank: int) -> dict[int, int]:
    rows = host[(host["rank"] == rank).to_numpy(dtype=bool) & host["name"].astype(str).str.startswith(MARK).to_numpy(dtype=bool)]
    return {
        int(name.removeprefix(MARK)): int(start)
        for name, start in zip(rows["name"].astype(str), rows["start_ns"], strict=True)
        if name.removeprefix(MARK).isdigit()
    }
