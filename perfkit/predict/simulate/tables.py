"""Tables: the events of a simulation as the tables of `perfkit.core.schema`, made when they are asked for, stage by stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core.run import LazyTable, empty
from perfkit.core.schema import TABLES
from perfkit.predict.simulate.disturbances import Disturbances
from perfkit.predict.simulate.events import StageEvents, StepTimes
from perfkit.predict.simulate.layout import MESH_SIZE, Layout
from perfkit.predict.simulate.operators import CODE, COLLECTIVES, OPERATORS, SHOWN

Ints = npt.NDArray[np.int64]
Columns = dict[str, Any]

COLLECTIVE_CORE = "HCCL"


@dataclass(frozen=True)
class Recorded:
    """What the tables are made of: the events of a stage and step, and the ranks whose rows are wanted."""

    layout: Layout
    steps: tuple[int, ...]
    times: Sequence[Sequence[StepTimes]]
    events: Callable[[int, int], StageEvents]
    """Events of (place of the step, stage)."""
    disturbances: Disturbances
    wanted: tuple[int, ...]
    rows: int

    @cached_property
    def by_stage(self) -> Mapping[int, list[int]]:
        """The wanted ranks by stage."""
        found: dict[int, list[int]] = {}
        for rank in self.wanted:
            found.setdefault(rank // self.layout.stage_size, []).append(rank)
        return found

    def lazy(self, name: str, make: Callable[[Recorded, int, Sequence[int]], Sequence[Columns]], num_rows: int | None) -> LazyTable:
        """A table of which only the stages are made whose ranks are asked for."""

        def read(ranks: Sequence[int] | None, columns: Sequence[str] | None) -> pd.DataFrame:
            asked = set(self.wanted if ranks is None else ranks)
            pieces: list[Columns] = []
            for stage, mine in self.by_stage.items():
                if chosen := [rank for rank in mine if rank in asked]:
                    pieces += make(self, stage, chosen)
            frame = table(name, pieces)
            return frame if columns is None else frame.loc[:, list(columns)]

        return LazyTable(ranks=frozenset(self.wanted), num_rows=num_rows, read=read)

    def columns_of(self, stage: int, ranks: Sequence[int]) -> Ints:
        """Places of ranks among the simulated ones of a stage."""
        return np.searchsorted(self.layout.ranks(stage), np.array(ranks, dtype=np.int64))

    def skews(self, ranks: Sequence[int]) -> Ints:
        """How far the clocks of ranks are ahead."""
        return np.array([self.disturbances.skew_ns(rank) for rank in ranks], dtype=np.int64)


def kernels(recorded: Recorded, stage: int, ranks: Sequence[int]) -> list[Columns]:
    """Executions on the device, in the order of their starts."""
    return [_kernels(recorded, stage, ranks, place, step) for place, step in enumerate(recorded.steps)]


def _kernels(recorded: Recorded, stage: int, ranks: Sequence[int], place: int, step: int) -> Columns:
    events = recorded.events(place, stage)
    start, duration, op = sorted_events(recorded, events, stage, ranks, ("start", "duration"))
    types, cores, kinds, streams = ([], [], [], [])  # type: tuple[list[str], list[str], list[str], list[str]]
    for item in events.ops:
        known = OPERATORS[item.code] if item.code >= 0 else None
        operation = COLLECTIVES[-1 - item.code] if item.code < 0 else ""
        types.append(known.type if known else f"hcom_{SHOWN[operation]}_")
        cores.append(known.core if known else COLLECTIVE_CORE)
        kinds.append("communication" if known is None else "copy" if item.code == CODE["Copy"] else "computing")
        streams.append(f"{item.group} {operation}".replace("pp ", "pp-") if item.group == "pp" else item.group or "computing")
    return {
        "rank": np.repeat(np.array(ranks, dtype=np.int64), len(events.op)),
        "step": step,
        "name": text_of(op, [item.name for item in events.ops]),
        "type": text_of(op, types),
        "core": text_of(op, cores),
        "kind": text_of(op, kinds),
        "stream": text_of(op, streams),
        "start_ns": start,
        "duration_ns": duration,
        "input_shapes": text_of(op, [item.shapes or None for item in events.ops]),
        "input_dtypes": text_of(op, ["DT_BF16;DT_BF16" if item.shapes else None for item in events.ops]),
    }


def collectives(recorded: Recorded, stage: int, ranks: Sequence[int]) -> list[Columns]:
    """Communication of every rank; `transit_ns` is the time in which data moved, `wait_ns` the rest."""
    pieces = []
    for place, step in enumerate(recorded.steps):
        events = recorded.events(place, stage)
        talking = np.flatnonzero(events.code < 0)
        if len(talking):
            names = ("op", "start", "duration", "wait", "host_gap")
            part = replace(events, **{name: getattr(events, name)[talking] for name in names})
            start, duration, wait, op = sorted_events(recorded, part, stage, ranks, ("start", "duration", "wait"))
            kinds = [item.group for item in events.ops]
            groups = _group_names(recorded, stage, ranks)
            sizes = np.array([recorded.layout.size(kind) if kind else 0 for kind in kinds], dtype=np.int64)
            rank_rows = np.repeat(np.arange(len(ranks)), len(talking))
            kind_codes = np.array([_KINDS.index(kind) if kind else 0 for kind in kinds])[op]
            own = np.array([[_own_share(recorded, kind, rank) for kind in _KINDS] for rank in ranks])
            transit = np.rint((duration - wait) * own[rank_rows, kind_codes]).astype(np.int64)
            pieces.append(
                {
                    "rank": np.array(ranks, dtype=np.int64)[rank_rows],
                    "step": step,
                    "name": text_of(op, [item.name for item in events.ops]),
                    "operation": text_of(op, [COLLECTIVES[-1 - item.code] if item.code < 0 else None for item in events.ops]),
                    "group": text_of(rank_rows * len(_KINDS) + kind_codes, groups),
                    "group_size": sizes[op],
                    "start_ns": start,
                    "duration_ns": duration,
                    "transit_ns": transit,
                    "wait_ns": duration - transit,
                    "bytes": np.array([item.num_bytes for item in events.ops], dtype=np.int64)[op],
                }
            )
    return pieces


_KINDS = ("tp", "cp", "ep", "dp", "pp", "world")


def _own_share(recorded: Recorded, kind: str, rank: int) -> float:
    """Share of a collective's time in which a rank's own links move data: the rest it waits for the slowest link of its group."""
    if kind in ("pp", "world") or not any(fault.link for fault in recorded.disturbances.faults):
        return 1.0
    own = max([1.0, *recorded.disturbances.slow_ends(kind, rank).values()])
    return min(1.0, own / recorded.disturbances.slowed(kind, rank))


def _group_names(recorded: Recorded, stage: int, ranks: Sequence[int]) -> list[str]:
    """Names of the groups of every rank by kind."""
    places = recorded.columns_of(stage, ranks)
    numbers = [recorded.layout.group_of(kind, stage)[places] for kind in _KINDS]
    return [group_name(kind, int(number[row])) for row in range(len(ranks)) for kind, number in zip(_KINDS, numbers, strict=True)]


def group_name(kind: str, number: int) -> str:
    """Name of a group: its kind and its lowest rank."""
    return "world" if kind == "world" else f"{kind}_{number}"


def groups(recorded: Recorded) -> list[Columns]:
    """The process groups of every rank."""
    rows: list[tuple[int, str, str, str]] = []
    for stage, ranks in recorded.by_stage.items():
        places = recorded.columns_of(stage, ranks)
        for kind in recorded.layout.kinds():
            numbers = recorded.layout.group_of(kind, stage)[places]
            texts = {int(number): ",".join(map(str, recorded.layout.members(kind, int(number)))) for number in np.unique(numbers)}
            rows += [
                (rank, group_name(kind, int(number)), kind, texts[int(number)]) for rank, number in zip(ranks, numbers, strict=True)
            ]
    if not rows:
        return []
    rank, name, label, members = zip(*rows, strict=True)
    return [
        {
            "rank": np.array(rank),
            "group": pd.Categorical(list(name)),
            "label": pd.Categorical(list(label)),
            "members": pd.Categorical(list(members)),
        }
    ]


def links(recorded: Recorded, stage: int, ranks: Sequence[int]) -> list[Columns]:
    """What every rank sends to its neighbours in a step, by kind of group: mesh up to 8 ranks, else ring; stages send onwards."""
    pieces = []
    layout = recorded.layout
    for columns in collectives(recorded, stage, ranks):
        frame = pd.DataFrame({name: columns[name] for name in ("rank", "operation", "group", "group_size", "bytes", "transit_ns")})
        groups = frame["group"].cat
        names = np.array([str(name).partition("_")[0] for name in groups.categories], dtype=object)
        kinds = names[groups.codes.to_numpy()]
        wanted = (kinds != "world") & (frame["operation"] != "receive").to_numpy(dtype=bool)
        frame = frame.assign(kind=pd.Categorical(kinds))[wanted]
        totals = (
            frame.groupby(["rank", "kind", "operation", "group_size"], observed=True)[["bytes", "transit_ns"]].sum().reset_index()
        )
        for row in totals.to_dict("records"):
            rank, kind, operation, size = int(row["rank"]), str(row["kind"]), str(row["operation"]), int(row["group_size"])
            targets = _targets(layout, rank, kind, size, operation)
            slow = recorded.disturbances.slow_ends(kind, rank) if operation != "send" else {}
            transit = float(row["transit_ns"]) / max([1.0, *slow.values()])
            sent = _sent(operation, float(row["bytes"]), size) / len(targets)
            for target in targets:
                near = rank // layout.devices_per_node == target // layout.devices_per_node
                pieces.append(
                    (
                        rank,
                        columns["step"],
                        f"{kind}-{operation}-total",
                        target,
                        "HCCS" if near else "RDMA",
                        round(sent),
                        round(transit * slow.get(target, 1.0)),
                    )
                )
    if not pieces:
        return []
    frame = pd.DataFrame(pieces, columns=["rank", "step", "operation", "target", "transport", "bytes", "transit"])
    return [
        {
            "rank": frame["rank"].to_numpy(),
            "step": frame["step"].to_numpy(),
            "operation": pd.Categorical(frame["operation"]),
            "source_rank": frame["rank"].to_numpy(),
            "target_rank": frame["target"].to_numpy(),
            "transport": pd.Categorical(frame["transport"]),
            "bytes": frame["bytes"].to_numpy(),
            "transit_ns": frame["transit"].to_numpy(),
        }
    ]


def _targets(layout: Layout, rank: int, kind: str, size: int, operation: str) -> list[int]:
    stage, inner = divmod(rank, layout.stage_size)
    if operation == "send":
        return [((stage + 1) % layout.pipeline) * layout.stage_size + inner]
    number = int(layout.group_of(kind, stage)[np.searchsorted(layout.inner, inner)])
    members = layout.members(kind, number).tolist()
    if size <= MESH_SIZE:
        return [other for other in members if other != rank]
    return [members[(members.index(rank) + 1) % size]]


def _sent(operation: str, num_bytes: float, size: int) -> float:
    """Bytes that a rank sends for a payload: ring volumes."""
    if operation in ("send", "send_receive"):
        return num_bytes
    return num_bytes * (size - 1) / size * (2 if operation == "all_reduce" else 1)


def steps(recorded: Recorded) -> list[Columns]:
    """One row a rank and step."""
    pieces = []
    for stage, ranks in recorded.by_stage.items():
        at = recorded.columns_of(stage, ranks)
        for place, step in enumerate(recorded.steps):
            times = recorded.times[place][stage]
            pieces.append(
                {
                    "rank": np.array(ranks, dtype=np.int64),
                    "step": step,
                    "pipeline_stage": stage,
                    "start_ns": times.start[at] + recorded.skews(ranks),
                    "duration_ns": times.duration[at],
                    "computing_ns": times.computing[at],
                    "communication_ns": times.communication[at],
                    "overlapped_ns": times.overlapped[at],
                    "exposed_communication_ns": times.exposed[at],
                    "bubble_ns": times.bubble[at],
                    "free_ns": times.free[at],
                    "copy_ns": times.copied[at],
                }
            )
    return pieces


def step_parts(recorded: Recorded) -> list[Columns]:
    """The leaves of every rank and step."""
    pieces = []
    for stage, ranks in recorded.by_stage.items():
        at = recorded.columns_of(stage, ranks)
        for place, step in enumerate(recorded.steps):
            times = recorded.times[place][stage]
            leaves = {
                "computing": times.computing,
                "communication/exposed": times.exposed,
                "bubble": times.bubble,
                "free/data": times.data,
                "free/other": times.free - times.data,
            }
            if recorded.layout.pipeline == 1:
                del leaves["bubble"]
            for path, amount in leaves.items():
                pieces.append(
                    {"rank": np.array(ranks), "step": step, "path": pd.Categorical([path] * len(ranks)), "amount_ns": amount[at]}
                )
    return pieces


def table(name: str, pieces: Iterable[Columns]) -> pd.DataFrame:
    """Pieces of columns as one frame with the columns and dtypes of the schema; the pieces are used up."""
    listed = list(pieces)
    if not listed:
        return empty(name)
    lengths = [len(piece["rank"]) for piece in listed]
    found: dict[str, Any] = {}
    for column in TABLES[name].columns:
        # What is in the table already is not kept twice.
        values = [piece.pop(column.name, None) for piece in listed]
        if column.dtype == "text":
            found[column.name] = _texts(values, lengths)
        elif column.dtype == "float":
            found[column.name] = np.nan
        elif all(value is None for value in values):
            missing = np.ones(sum(lengths), dtype=bool)
            found[column.name] = (
                pd.arrays.IntegerArray(np.zeros(sum(lengths), dtype=np.int64), missing) if column.dtype == "int" else np.nan
            )
        else:
            whole = np.concatenate(
                [np.broadcast_to(np.asarray(value, dtype=np.int64), length) for value, length in zip(values, lengths, strict=True)]
            )
            found[column.name] = pd.arrays.IntegerArray(whole, np.zeros(len(whole), dtype=bool)) if column.nullable else whole
    return pd.DataFrame(found)


def _texts(values: Sequence[pd.Categorical | None], lengths: Sequence[int]) -> pd.Categorical:
    known: dict[str, int] = {}
    codes = []
    for value, length in zip(values, lengths, strict=True):
        if value is None:
            codes.append(np.full(length, -1, dtype=np.int32))
            continue
        places = np.array([*(known.setdefault(str(text), len(known)) for text in value.categories), -1], dtype=np.int32)
        codes.append(places[value.codes])
    names = pd.Index(list(known), dtype=None if known else "object")
    return pd.Categorical.from_codes(np.concatenate(codes), categories=names)


def text_of(codes: Ints, texts: Sequence[str | None]) -> pd.Categorical:
    """A column that is `texts[code]` in every row; None is null."""
    known: dict[str, int] = {}
    places = np.array([-1 if text is None else known.setdefault(text, len(known)) for text in texts], dtype=np.int32)
    return pd.Categorical.from_codes(places[codes], categories=pd.Index(list(known), dtype=None if known else "object"))


def sorted_events(
    recorded: Recorded, events: StageEvents, stage: int, ranks: Sequence[int], names: Sequence[str]
) -> tuple[Ints, ...]:
    """Columns of some ranks, rank by rank in the order of starts, and the operator of every row; starts on the rank's clock."""
    at = recorded.columns_of(stage, ranks)
    start = events.start[:, at]
    order = np.argsort(start, axis=0, kind="stable")
    found = []
    for name in names:
        values = np.take_along_axis(getattr(events, name)[:, at], order, axis=0)
        if name == "start":
            values = values + recorded.skews(ranks)
        found.append(values.T.reshape(-1))
    return (*found, events.op[order].T.reshape(-1))
