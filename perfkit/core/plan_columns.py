"""Plan columns: many plans as arrays of one length, the form in which whatever is predicted of plans is computed.

A column has the name of its field; a single plan is a table of one, which `PlanColumns.one` holds as numbers in place of arrays
(`perfkit.core.numbers`). Counts are float64 (products of sizes exceed 2**53 nowhere), a field that is not stated is nan. Words,
layouts, recompute plans and devices are `Coded`: the few different values once each, and every plan's position among them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Generic, TypeVar, cast, get_type_hints

import numpy as np
import numpy.typing as npt

from perfkit.core.errors import InputError
from perfkit.core.spec.adapters import Adapters
from perfkit.core.spec.compressed import CompressedAttention
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.core.spec.memory_limit import MemoryLimit
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.optimizer import OptimizerSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import Counts, RecomputePlan
from perfkit.core.spec.software import SoftwareSpec, usual_framework
from perfkit.core.spec.trained import TrainedLayers
from perfkit.core.spec.workload import Workload

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.intp]
Rows = Codes | Flags | slice

MANY = 16
"""Values of a coded column beyond which those that a part of it does not have are dropped from it."""

SPARSE = 4
"""Times as many possible codes as there are plans are counted faster than the plans are sorted."""

T = TypeVar("T", bound=Hashable)


_FIRST: Any = np.intp(0)


@dataclass(frozen=True, slots=True)
class Coded(Generic[T]):
    """A column of few different values: every plan's position (`codes`) in `values`; of a single plan that is a number."""

    codes: Codes
    values: tuple[T, ...]

    @classmethod
    def of(cls, items: Iterable[T]) -> Coded[T]:
        """The column of these values."""
        known: dict[T, int] = {}
        codes = [known.setdefault(item, len(known)) for item in items]
        return cls(np.array(codes, dtype=np.intp), tuple(known))

    @classmethod
    def same(cls, item: T, count: int) -> Coded[T]:
        """The column of one value."""
        return cls(np.zeros(count, dtype=np.intp), (item,))

    @classmethod
    def one(cls, item: T) -> Coded[T]:
        """The value of a single plan."""
        return cls(_FIRST, (item,))

    @classmethod
    def at(cls, places: Any, values: tuple[T, ...]) -> Coded[T]:
        """The column of values at these places: numbers or flags, an array or those of a single plan."""
        return cls(places.astype(np.intp), values) if isinstance(places, np.ndarray) else cls.one(values[int(places)])

    @property
    def is_one(self) -> bool:
        """Whether this is the value of a single plan."""
        return not isinstance(self.codes, np.ndarray)

    def __len__(self) -> int:
        return 1 if self.is_one else len(self.codes)

    def __getitem__(self, index: int) -> T:
        return self.values[0 if self.is_one else int(self.codes[index])]

    def take(self, rows: Rows) -> Coded[T]:
        """The values at `rows`."""
        codes = self.codes[rows]
        if len(self.values) <= MANY:
            return Coded(codes, self.values)
        kept, codes = distinct(codes, len(self.values))
        return Coded(codes, tuple(self.values[code] for code in kept.tolist()))

    def numbers(self, of: Callable[[T], float]) -> Floats:
        """A number of every plan's value."""
        if self.is_one:
            return cast("Floats", np.float64(of(self.values[0])))
        return np.array([of(value) for value in self.values], dtype=np.float64)[self.codes]

    def flags(self, of: Callable[[T], bool]) -> Flags:
        """Whether something holds of every plan's value."""
        if self.is_one:
            return cast("Flags", np.bool_(of(self.values[0])))
        return np.array([of(value) for value in self.values], dtype=np.bool_)[self.codes]

    def is_(self, *words: T) -> Flags:
        """Whether every plan's value is one of these."""
        return self.flags(lambda value: value in words)


def distinct(codes: Codes, bound: int) -> tuple[Codes, Codes]:
    """The different ones of `codes` (all below `bound`), ascending, and each one's place among them, without sorting."""
    if bound > SPARSE * max(len(codes), MANY):
        kept, places = np.unique(codes, return_inverse=True)
        return kept, places
    found = np.bincount(codes, minlength=bound) > 0
    return np.flatnonzero(found), (np.cumsum(found) - 1)[codes]


def combined(*columns: Coded[Any]) -> Coded[tuple[Any, ...]]:
    """The combinations of several columns' values, as one column."""
    if columns[0].is_one:
        return Coded.one(tuple(column.values[0] for column in columns))
    if len(columns[0]) == 1:
        return Coded.same(tuple(column[0] for column in columns), 1)
    code, sizes = columns[0].codes, tuple(len(column.values) for column in columns)
    for column in columns[1:]:
        code = code * len(column.values) + column.codes
    kept, codes = distinct(code, math.prod(sizes))
    cells = zip(*(places.tolist() for places in np.unravel_index(kept, sizes)), strict=True)
    return Coded(codes, tuple(tuple(column.values[at] for column, at in zip(columns, cell, strict=True)) for cell in cells))


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanColumns:
    """All fields of `Plan` but the document that it was read from; `model_name` and `optimizer_name` are the specs' `name`."""

    num_layers: Floats
    hidden_size: Floats
    num_attention_heads: Floats
    num_key_value_heads: Floats
    head_size: Floats
    ffn_hidden_size: Floats
    vocab_size: Floats
    model_name: Coded[str]
    gated_ffn: Flags
    clamped_gate: Flags
    scaled_positions: Flags
    tied_embeddings: Flags
    norm: Coded[str]
    bias: Coded[str]
    max_position_embeddings: Floats
    embedding_norm: Flags
    query_key_norm: Flags
    num_experts: Floats
    num_experts_per_token: Floats
    expert_ffn_hidden_size: Floats
    num_shared_experts: Floats
    shared_expert_ffn_hidden_size: Floats
    shared_expert_gate: Flags
    router_bias: Flags
    num_dense_layers: Floats
    num_mtp_layers: Floats
    attention_window: Floats
    num_windowed_layers: Floats
    expert_capacity_factor: Floats
    query_lora_rank: Floats
    kv_lora_rank: Floats
    nope_head_size: Floats
    rope_head_size: Floats
    value_head_size: Floats
    residual_streams: Floats
    compressed: Coded[CompressedAttention | None]
    adapters: Coded[Adapters | None]
    trained_layers: Coded[TrainedLayers | None]
    seq_length: Floats
    micro_batch_size: Floats
    global_batch_size: Floats
    dtype: Coded[str]
    attention_kernel: Coded[str]
    dropout: Flags
    data_parallel_size: Floats
    tensor_parallel_size: Floats
    pipeline_parallel_size: Floats
    virtual_pipeline_parallel_size: Floats
    context_parallel_size: Floats
    expert_parallel_size: Floats
    sequence_parallel: Flags
    optimizer_shard_size: Floats
    micro_batch_interleave_size: Floats
    layers_per_stage: Coded[Counts | None]
    optimizer_shard_level: Floats
    context_parallel_algorithm: Coded[str]
    ulysses_size: Floats
    sequence_chunks: Floats
    expert_tensor_parallel_size: Floats
    optimizer_name: Coded[str]
    state_bytes_per_parameter: Floats
    master_weights: Flags
    gradient_dtype: Coded[str]
    matrix_state_bytes_per_parameter: Floats
    gradient_accumulation_bytes_per_parameter: Floats
    parameter_dtype: Coded[str]
    master_dtype: Coded[str]
    moment_dtype: Coded[str]
    recompute: Coded[RecomputePlan]
    hardware: Coded[HardwareSpec | None]
    memory_limit: Coded[MemoryLimit | None]
    framework: Coded[str]
    release: Coded[str]
    overlap_dp: Floats
    overlap_tp: Floats
    overlap_pp: Floats
    overlap_ep: Floats
    transformer_impl: Coded[str]
    single: Plan | None = field(init=False, default=None, repr=False, compare=False)
    """The plan that `one` holds."""

    @classmethod
    def of(cls, plans: Sequence[Plan]) -> PlanColumns:
        """One row a plan."""
        cells = zip(*map(_READ, plans), strict=True) if plans else iter([()] * len(FIELDS))
        return cls(**{name: _column(field.kind, values) for (name, field), values in zip(FIELDS.items(), cells, strict=True)})

    @classmethod
    def one(cls, plan: Plan) -> PlanColumns:
        """A single plan, a table of one that cannot be taken from."""
        found = cls(**{name: hold(cell) for (name, hold), cell in zip(_HOLD.items(), _READ(plan), strict=True)})
        object.__setattr__(found, "single", plan)
        return found

    def __len__(self) -> int:
        return len(self.model_name)

    @property
    def num_devices(self) -> Floats:
        """Devices of the job."""
        split = self.tensor_parallel_size * self.pipeline_parallel_size * self.context_parallel_size
        return self.data_parallel_size * split

    @property
    def program(self) -> Coded[str]:
        """The framework of every plan: the one that it states, else the usual one."""
        return program_of(self.framework, self.hardware, {name: getattr(self, name) for name in SPLIT})

    @property
    def num_micro_batches(self) -> Floats:
        """Micro batches of a step and replica."""
        return self.global_batch_size / (self.micro_batch_size * self.data_parallel_size * self.micro_batch_interleave_size)

    def different(self, names: Iterable[str]) -> tuple[Codes, Codes]:
        """One position of every different combination of these columns, and which of them each plan has."""
        places = np.zeros(len(self), dtype=np.intp)
        for name in names if len(self) > 1 else ():
            column = getattr(self, name)
            # What a plan does not state is nan, which equals nothing: -1 stands for it.
            cells = column.codes if isinstance(column, Coded) else np.nan_to_num(column, nan=-1.0)
            if (cells != cells[0]).any():  # of most fields, as in a search, all plans have the same
                codes = np.unique(cells, return_inverse=True)[1]
                places = np.unique(places * (codes.max() + 1) + codes, return_inverse=True)[1]
        return np.unique(places, return_index=True)[1], places

    def take(self, rows: Rows) -> PlanColumns:
        """The plans at `rows` (positions, flags or a slice)."""
        columns: dict[str, Any] = {name: getattr(self, name) for name in FIELDS}
        return PlanColumns(**{name: _taken(column, rows) for name, column in columns.items()})

    def chunks(self, size: int) -> Iterator[PlanColumns]:
        """The plans in pieces of at most `size`, small enough for the arrays of a formula to stay in the processor's cache."""
        for start in range(0, len(self), size):
            yield self.take(slice(start, start + size))

    def plan(self, index: int) -> Plan:
        """The plan of one row. Raises InputError with everything in which it contradicts itself."""
        found: dict[str, dict[str, Any]] = {}
        for name, own in FIELDS.items():
            found.setdefault(own.part, {})[own.name] = own.value(getattr(self, name)[index])
        parts: dict[str, Any] = {}
        problems: list[str] = []
        for part, values in found.items():
            try:
                parts[part] = PARTS[part](**values) if part in PARTS else values[part]
            except InputError as error:
                problems += error.problems
        if problems:
            raise InputError("Plan", problems)
        return Plan(**parts)


PARTS: Mapping[str, type] = {
    "model": ModelSpec,
    "workload": Workload,
    "parallel": ParallelPlan,
    "optimizer": OptimizerSpec,
    "software": SoftwareSpec,
}
"""Parts of a plan whose fields are columns of their own; every other field of `Plan` is one column."""


@dataclass(frozen=True, slots=True)
class Field:
    """Where a column's values stand in a plan: the part, the name in it, and the types of the column and of the value."""

    part: str
    name: str
    kind: str
    type: Any

    @property
    def path(self) -> str:
        """The attribute of a plan."""
        return f"{self.part}.{self.name}" if self.part in PARTS else self.part

    def value(self, cell: Any) -> Any:
        """A cell of the column as the field has it."""
        if self.kind == "Flags":
            return bool(cell)
        if self.kind != "Floats":
            return cell
        if np.isnan(cell):
            return None
        return float(cell) if self.type is float else bool(cell) if self.type == bool | None else int(cell)


def _fields() -> dict[str, Field]:
    kinds = {item.name: str(item.type) for item in fields(PlanColumns) if item.init}
    found = {}
    for item in fields(Plan):
        if item.name in PARTS:
            hints = get_type_hints(PARTS[item.name])
            for own in fields(PARTS[item.name]):
                name = f"{item.name}_name" if own.name == "name" else own.name
                found[name] = Field(item.name, own.name, kinds[name], hints[own.name])
        elif item.name != "document":
            found[item.name] = Field(item.name, item.name, kinds[item.name], get_type_hints(Plan)[item.name])
    return found


FIELDS: Mapping[str, Field] = _fields()
"""Every column by name, in the order of the parts of a plan."""

_READ = attrgetter(*(field.path for field in FIELDS.values()))


_KINDS: Mapping[str, Callable[[Any], Any]] = {"Floats": np.float64, "Flags": np.bool_}
_HOLD = {name: _KINDS.get(field.kind, Coded.one) for name, field in FIELDS.items()}
"""How a column holds the cell of a single plan."""

SPLIT = ("tensor_parallel_size", "pipeline_parallel_size", "optimizer_shard_size", "optimizer_shard_level")


def program_of(stated: Coded[str], hardware: Coded[HardwareSpec | None], split: Mapping[str, Floats]) -> Coded[str]:
    """The stated framework of plans, else the usual one of their device and of how they split the work."""
    tensor, stages, shards, level = (split[name] for name in SPLIT)
    only_shared = (tensor == 1) & (stages == 1) & (shards > 1) & (level >= 2)
    found = combined(stated, hardware, Coded.at(only_shared, (False, True)))
    return Coded(found.codes, tuple(_program(*values) for values in found.values))


def _program(stated: str, device: HardwareSpec | None, only_shared: bool) -> str:
    return stated or usual_framework(device.name if device else "", only_shared=only_shared)


def _column(kind: str, values: Sequence[Any]) -> Any:
    if kind == "Flags":
        return np.array(values, dtype=np.bool_)
    if kind == "Floats":
        return np.array(values, dtype=np.float64)
    return Coded.of(values)


def _taken(column: Any, rows: Rows) -> Any:
    return column.take(rows) if isinstance(column, Coded) else column[rows]
