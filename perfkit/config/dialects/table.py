"""Tables of plans: every row a configuration, its columns the fields of `Plan` (`_table_names` lists their other names).

An empty cell or a missing column takes the default of docs/tables.md, the same for whatever is computed from the row. A row that
states too little, or contradicts itself, is told with all its problems. Free text (`note`, `source`, `source_path`) is never read.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from typing import Any, cast

import numpy as np
import pandas as pd

from perfkit.config.dialects._table_adapters import read_adapters, read_trained
from perfkit.config.dialects._table_cells import Cells, said
from perfkit.config.dialects._table_checks import contradictory
from perfkit.config.dialects._table_fields import (
    REQUIRED,
    at_once,
    read_compressed,
    read_model,
    read_shares,
    read_sizes,
    read_software,
    read_states,
)
from perfkit.config.dialects._table_hardware import read_dtype, read_hardware
from perfkit.config.dialects._table_names import LIMITED, NAMES, SUBJECT, labels_of, missing_of, plain, repeated_of, unread_of
from perfkit.config.dialects._table_recompute import COUNTED, read_layouts, read_recompute
from perfkit.config.dialects.dialect import Changes, Dialect, Document, Parsed
from perfkit.config.dialects.memory_text import cell_bytes
from perfkit.config.dialects.table_file import read_frame
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.plan_columns import FIELDS, Coded, Codes, Flags, PlanColumns, combined, program_of
from perfkit.core.spec.adapters import Adapters
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.core.spec.memory_limit import LimitedPart, MemoryLimit
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.trained import TrainedLayers
from perfkit.core.spreadsheet import safe_cell

SPLIT = ("data_parallel_size", "tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size")
"""Sizes whose product the devices are."""
MICRO, CHUNKS, AGAIN = OPEN = ("micro_batch_size", "virtual_pipeline_parallel_size", "recompute")
"""Fields that a row may leave open: a published or tuned run has neither of them at its least (`perfkit.predict.unstated`)."""
UNLIKE = ("hardware", "recompute", "memory_limit")
"""Fields of a plan that a row states in several columns or in another form."""
MOST_BYTES = 2**60
"""Of a limit, far above any device's memory."""
MOST_ROWS = 50
"""Of which one error tells all problems."""


@dataclass(frozen=True, slots=True)
class PlanTable:
    """Plans of the rows that can be read (`rows`, positions in the table); by position what is wrong and what was assumed.

    `kinds` and `scopes` are the words of the columns `memory_kind` and `memory_scope`, `labels` the table's names of its columns,
    `unread` what is told of columns that are not read but nearly have the name of one that is. `is_open` says by field of `OPEN`
    which plans do not state it; they have one sequence, one chunk and no recomputation there. `refused` are the rows with problems
    in the order of the table, something in place of what they lack, for what else is wrong with them.
    """

    plans: PlanColumns
    rows: Codes
    kinds: Coded[str]
    scopes: Coded[str]
    labels: Mapping[str, str]
    unread: tuple[str, ...]
    is_open: Mapping[str, Flags]
    problems: Mapping[int, tuple[str, ...]]
    refused: PlanColumns
    assumed: Mapping[int, tuple[str, ...]]


def read_table(frame: pd.DataFrame, devices: Mapping[str, HardwareSpec] | None = None, limit_source: str = "") -> PlanTable:
    """The plans of a table; `devices` adds to the catalogue, `limit_source` says who states limits if its column does not.

    No row raises, see `PlanTable.problems`.

    Raises InputError that lists columns that state the same, with what else is wrong with the rows, and missing ones without which
    no row can be read.
    """
    repeated = repeated_of(frame.columns, (*REQUIRED, "accelerator"))
    cells = Cells(frame, labels_of(frame.columns))
    plans = _plans(cells, {**catalog.hardware(), **(devices or {})}, limit_source)
    _tell(cells, plans)
    if repeated:
        raise InputError(SUBJECT, [*repeated, *problems_of_rows(cells.problems)])
    good = np.ones(len(frame), dtype=bool)
    good[list(cells.problems)] = False
    problems, assumed = ({row: tuple(notes) for row, notes in found.items()} for found in (cells.problems, cells.assumed))
    rows = np.flatnonzero(good)
    kinds, scopes = (cells.texts(name).take(rows) for name in ("memory_kind", "memory_scope"))
    return PlanTable(
        plans=plans if good.all() else plans.take(rows),
        rows=rows,
        kinds=kinds,
        scopes=scopes,
        labels={MICRO: cells.label(MICRO), CHUNKS: cells.label(CHUNKS), AGAIN: AGAIN, **cells.labels},
        unread=unread_of(frame.columns),
        is_open={name: flags[rows] for name, flags in _open(cells, plans).items()},
        problems=problems,
        refused=plans.take(np.flatnonzero(~good)),
        assumed=assumed,
    )


def problems_of_rows(problems: Mapping[int, Sequence[str]]) -> list[str]:
    """Every problem behind the number of its row, from 1; of the first rows, if there are many."""
    told = [f"row {row + 1}: {problem}" for row, found in sorted(problems.items())[:MOST_ROWS] for problem in found]
    return told + ([f"{len(problems) - MOST_ROWS} more rows have problems"] if len(problems) > MOST_ROWS else [])


def _plans(cells: Cells, devices: Mapping[str, HardwareSpec], limit_source: str) -> PlanColumns:
    sizes = read_sizes(cells)
    hardware = read_hardware(cells, devices)
    dtype = read_dtype(cells, hardware)
    per_node = hardware.numbers(lambda spec: spec.devices_per_node if spec else 1)
    software = read_software(cells)
    sizes |= read_shares(cells, sizes, per_node, software["framework"].is_("fsdp"))
    framework = program_of(software["framework"], hardware, sizes)
    split = tuple(sizes[name] for name in ("num_layers", "pipeline_parallel_size", "virtual_pipeline_parallel_size"))
    layouts = read_layouts(cells, *split)
    return PlanColumns(
        **read_model(cells, sizes, framework),
        **sizes,
        **read_states(cells, dtype, framework),
        **software,
        dtype=dtype,
        compressed=read_compressed(sizes),
        adapters=read_adapters(cells),
        trained_layers=read_trained(cells),
        layers_per_stage=layouts,
        recompute=read_recompute(cells, layouts, split, framework.is_("mindspore")),
        hardware=hardware,
        memory_limit=_limits(cells, framework, limit_source),
    )


def _open(cells: Cells, plans: PlanColumns) -> dict[str, Flags]:
    """By field which rows leave it open. Chunks are only of Megatron's pipelines: other programs have none, or nobody uses them."""
    empty = {name: cells.texts(name).is_("") for name in (*OPEN, *_STATING["none"])}
    return {
        MICRO: empty[MICRO] & ~at_once(cells),
        CHUNKS: empty[CHUNKS] & (plans.pipeline_parallel_size > 1) & plans.program.is_("megatron"),
        AGAIN: np.all([empty[name] for name in (AGAIN, *_STATING["none"])], axis=0),
    }


def _limits(cells: Cells, framework: Coded[str], source: str) -> Coded[MemoryLimit | None]:
    """The memory limit that every row states, in bytes: of its `memory_limit_part`, else as the framework's own limits are."""
    stated = combined(_limit_sizes(cells), framework, cells.chosen("memory_limit_part", LIMITED, ""))
    source = source or f"column {cells.label('memory_limit_bytes')}"
    return Coded(stated.codes, tuple(_limit(size, program, part, source) for size, program, part in stated.values))


def _limit_sizes(cells: Cells) -> Coded[int]:
    """Bytes of the limits, 0 where none is stated."""
    texts = cells.texts("memory_limit_bytes")
    sizes = [0] * len(texts.values)
    for code, text in enumerate(texts.values):
        try:
            sizes[code] = min(cell_bytes(text), MOST_BYTES) if text else 0
        except ValueError as error:
            cells.problem(texts.codes == code, said(f"{cells.label('memory_limit_bytes')} = {error}"))
    return Coded(texts.codes, tuple(sizes))


def _limit(limit_bytes: int, framework: str, part: str, source: str) -> MemoryLimit | None:
    if not limit_bytes:
        return None
    part = part or ("pool" if framework == "mindspore" else "device")
    return MemoryLimit(limit_bytes=limit_bytes, part=cast(LimitedPart, part), source=source)


def with_options(frame: pd.DataFrame, *, device: str = "", limit_bytes: int = 0) -> pd.DataFrame:
    """The table with `device` in rows that name none, and under another limit than those of its rows, if they are given."""
    labels = labels_of(frame.columns)
    if device:
        name = labels.get("accelerator", "accelerator")
        stated = frame[name] if name in frame else pd.Series("", index=frame.index)
        frame = frame.assign(**{name: stated.where(stated.notna() & (stated.astype(str).str.strip() != ""), device)})
    if limit_bytes:
        own = [labels[name] for name in ("memory_limit_bytes", "memory_limit_part") if name in labels]
        frame = frame.drop(columns=own).assign(memory_limit_bytes=limit_bytes)
    return frame


def _tell(cells: Cells, plans: PlanColumns) -> None:
    """Note why rows contradict themselves, in the table's own names of its columns."""
    names = re.compile(rf"\b({'|'.join(sorted((*NAMES, *cells.labels), key=len, reverse=True))})\b")
    for row in np.flatnonzero(contradictory(plans)).tolist():
        try:
            plans.plan(row)
        except InputError as error:
            told = [names.sub(lambda match: cells.label(match[1]), problem) for problem in error.problems]
            cells.problems.setdefault(row, []).extend(told)


def row_of(plan: Plan) -> dict[str, Any]:
    """The row of a plan, which reads as that plan: every field under its own name, counts as JSON, what is not stated as ""."""
    row = {name: _cell(attrgetter(field.path)(plan)) for name, field in FIELDS.items() if name not in UNLIKE}
    recompute = plan.recompute
    row |= {name: _cell(getattr(recompute, name)) for name in ("all_layers", "attention_core", *COUNTED)}
    row["operators"] = _cell(dict(recompute.operators))
    row["embeddings_count_as_layers"] = 0  # all layers are placed as the plan says
    return row | _limit_cells(plan) | _device(plan.hardware)


def _limit_cells(plan: Plan) -> dict[str, Any]:
    """The cells of the limit that a plan states, in bytes; a share of an unknown device cannot be said."""
    limit = plan.memory_limit
    if limit is not None and plan.hardware is not None:
        limit = limit.of(plan.hardware.memory_bytes)
    if limit is None or limit.limit_bytes is None:
        return {"memory_limit_bytes": "", "memory_limit_part": ""}
    return {"memory_limit_bytes": limit.limit_bytes, "memory_limit_part": limit.part}


def _device(spec: HardwareSpec | None) -> dict[str, Any]:
    """The cells of a device: its name, and what differs from the catalogue's node and network."""
    if spec is None:
        return {}
    known, found = catalog.hardware().get(spec.name), {"accelerator": spec.name, "devices_per_node": spec.devices_per_node}
    link, before = spec.links.get("inter_node"), known.links.get("inter_node") if known else None
    if link is not None and link != before:
        found |= {"network_gbit_per_node": link.bytes_per_s * spec.devices_per_node * 8 / 1e9, "network": link.kind}
    return found


def _cell(value: Any) -> Any:
    if value is None or value in ((), {}):
        return ""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, Adapters):
        return json.dumps(asdict(value))
    if isinstance(value, TrainedLayers):
        return str(value)
    return json.dumps(value) if isinstance(value, tuple | dict) else value


def detect(document: Document) -> bool:
    """Whether the first line names columns of a table of plans."""
    return not missing_of(_header(document.text), REQUIRED)


def read(document: Document) -> Plan:
    """The plan of a table of one row. Raises InputError with every problem of the row, or if there is another number of rows."""
    frame = read_frame(document.name, document.text)
    if len(frame) != 1:
        raise InputError(document.name, [f"the table has {len(frame)} rows, a configuration is one; `perfkit estimate` takes all"])
    table = read_table(frame)
    if table.problems:
        raise InputError(document.name, table.problems[0])
    left = {name: table.labels[name] for name, flags in table.is_open.items() if flags[0]}
    found = replace(document, dialect="table", values=frame.iloc[0].to_dict(), defaulted=table.assumed.get(0, ()), is_open=left)
    return replace(table.plans.plan(0), document=found)


def _parsed(text: str, name: str) -> Parsed:
    """The first row's cells by column; a table has no more for a configuration."""
    header, cells = [*csv.reader(io.StringIO(text)), [], []][:2]
    return Parsed(values=dict(zip(header, cells, strict=False)), lines=dict.fromkeys(header, 2))


def settings(plan: Plan) -> dict[tuple[str, ...], Any]:
    """The row of a plan by column."""
    return {(name,): value for name, value in row_of(plan).items()}


def edit(document: Document, changes: Changes) -> tuple[str, tuple[str, ...]]:
    """The row with cells changed; columns that it has under another name keep that, new ones come last."""
    header, cells = list(csv.reader(io.StringIO(document.text)))[:2]
    labels, row = labels_of(header), dict(zip(header, cells, strict=False))
    changed = {path[0]: value for path, value in changes.items()}
    changed = _followed(row, labels, changed, row_of(read(document))) | changed
    return _text(row | {labels.get(name, name): value for name, value in changed.items()}), ()


_STATING = {
    "none": ("all_layers", "attention_core", *COUNTED, "operators"),
    "full": ("all_layers", "full_layers"),
    "selective": ("all_layers", "attention_core"),
}
"""By word of `recompute`, the columns that say something else."""


def _followed(
    row: Mapping[str, str], labels: Mapping[str, str], changed: Mapping[str, Any], before: Mapping[str, Any]
) -> dict[str, Any]:
    """Cells that would contradict the changed ones: words for what those, or those `before` the change, say in numbers."""
    cells = {name: plain(row.get(labels.get(name, ""), "")) for name in ("recompute", "zero_stage", "sharding")}
    found: dict[str, Any] = {}
    if any(name in changed for name in _STATING.get(cells["recompute"], ())):
        found = {name: before[name] for name in _STATING["none"]} | {"recompute": ""}
    level = changed.get("optimizer_shard_level")
    if cells["zero_stage"] and (level or (cells["zero_stage"] == "0" and "optimizer_shard_size" in changed)):
        found["zero_stage"] = "" if cells["zero_stage"] == "0" else level
    if cells["sharding"] and level:
        found["sharding"] = ""
    if row.get(labels.get("n_devices", "")) and any(name in changed for name in SPLIT):
        found["n_devices"] = math.prod(int(changed.get(name, before[name])) for name in SPLIT)
    return found


def new(settings: Changes) -> str:
    """A table of one row."""
    return _text({path[0]: value for path, value in settings.items() if value != ""})


def _text(row: Mapping[str, Any]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([list(row), [safe_cell(value) for value in row.values()]])
    return out.getvalue()


def _header(text: str) -> list[str]:
    try:
        return next(csv.reader(io.StringIO(text[: text.find("\n") + 1 or None], newline="")), [])
    except csv.Error:  # no table
        return []


DIALECT = Dialect(
    name="table",
    title="table of plans",
    looks_for="a header line with columns such as layers, hidden, heads, tp",
    detect=detect,
    read=read,
    settings=settings,
    edit=edit,
    new=new,
    suffix=".csv",
    parse=_parsed,
)
