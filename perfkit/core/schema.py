"""Schema: the tables of every run, measured or simulated, with their columns, dtypes and units.

Times are int64 ns, sizes int64 bytes. A nullable column holds null where the source does not say; null is never 0. Text columns
are categories, because operator names repeat. A format fills the tables that it has; `Run.has` says which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

DType = Literal["int", "float", "text", "flag"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `dtype` int (int64), float (float64), text (category) or flag (boolean)."""

    name: str
    dtype: DType
    doc: str
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """One table: what a row is, and its columns in order."""

    name: str
    row: str
    columns: tuple[Column, ...]

    def column(self, name: str) -> Column:
        """The column called `name`; KeyError if the table has none."""
        return {column.name: column for column in self.columns}[name]


_RANK = Column("rank", "int", "global rank, 0-based")
_STEP = Column("step", "int", "step number as recorded; 0 for a recording without steps")
_STEP_OR_NONE = Column("step", "int", "step that launched it; null outside of all steps", nullable=True)

STEPS = Table(
    "steps",
    "a rank and step: where its time went",
    (
        _RANK,
        _STEP,
        Column("pipeline_stage", "int", "0-based stage of the rank", nullable=True),
        Column("start_ns", "int", "start on the clock of the rank", nullable=True),
        Column("duration_ns", "int", "length of the step on the device; the leaves of step_parts sum to it"),
        Column(
            "host_duration_ns",
            "int",
            "length of the host's own mark: the device begins a step when it has finished the one before, and ends it later",
            nullable=True,
        ),
        Column("computing_ns", "int", "device computing, overlaps counted once", nullable=True),
        Column("communication_ns", "int", "device communicating, hidden or not", nullable=True),
        Column("overlapped_ns", "int", "communication hidden behind computing", nullable=True),
        Column("exposed_communication_ns", "int", "communication while nothing computes, without the bubble", nullable=True),
        Column("bubble_ns", "int", "waiting for another pipeline stage", nullable=True),
        Column("free_ns", "int", "neither computing nor communicating", nullable=True),
        Column("copy_ns", "int", "of free_ns: the device only copied memory", nullable=True),
    ),
)
STEP_PARTS = Table(
    "step_parts",
    "a leaf of the breakdown of a rank and step",
    (
        _RANK,
        _STEP,
        Column("path", "text", "slash-path, first level computing, communication, bubble or free"),
        Column("amount_ns", "int", "time of the leaf; null: part of the step, but not told apart", nullable=True),
    ),
)
KERNELS = Table(
    "kernels",
    "an execution on the device",
    (
        _RANK,
        _STEP_OR_NONE,
        Column("name", "text", "kernel name"),
        Column("type", "text", "operator type, where the profiler states one", nullable=True),
        Column("core", "text", "unit that ran it: AI_CORE, AI_VECTOR_CORE, AI_CPU, ...", nullable=True),
        Column("kind", "text", "computing, communication or copy"),
        Column("stream", "text", "stream or queue on the device", nullable=True),
        Column("start_ns", "int", "start on the clock of the rank", nullable=True),
        Column("duration_ns", "int", "duration"),
        Column("wait_ns", "int", "time between its launch slot and its start, as recorded", nullable=True),
        Column("input_shapes", "text", "shapes of the inputs as recorded", nullable=True),
        Column("input_dtypes", "text", "data types of the inputs as recorded", nullable=True),
    ),
)
COLLECTIVES = Table(
    "collectives",
    "a communication operation of a rank",
    (
        _RANK,
        _STEP_OR_NONE,
        Column("name", "text", "name as recorded; equal names of one group and step are one operation"),
        Column(
            "operation",
            "text",
            "all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send, receive, send_receive, other",
        ),
        Column("group", "text", "name or id of the process group", nullable=True),
        Column("group_size", "int", "ranks of the group", nullable=True),
        Column("start_ns", "int", "start on the clock of the rank", nullable=True),
        Column("duration_ns", "int", "duration, waiting for peers included"),
        Column("transit_ns", "int", "time in which data moved", nullable=True),
        Column("wait_ns", "int", "time spent waiting for peers", nullable=True),
        Column("bytes", "int", "payload as recorded", nullable=True),
    ),
)
WAITS = Table(
    "waits",
    "a time in which a communication operation of a rank moved nothing and waited, from the tasks that it is made of",
    (
        _RANK,
        Column("start_ns", "int", "start on the clock of the rank"),
        Column("duration_ns", "int", "duration"),
        Column("position", "int", "position of the rank in the process group", nullable=True),
        Column("peer", "int", "position of the member that was waited for: the last one to come", nullable=True),
    ),
)
LINKS = Table(
    "links",
    "data sent over one link in one operation or step",
    (
        _RANK,
        _STEP_OR_NONE,
        Column("operation", "text", "operation or total as recorded"),
        Column("source_rank", "int", "sending rank"),
        Column("target_rank", "int", "receiving rank"),
        Column("transport", "text", "HCCS, RDMA, PCIE, SDMA, LOCAL, ...", nullable=True),
        Column("bytes", "int", "bytes sent", nullable=True),
        Column("transit_ns", "int", "time in which they moved", nullable=True),
    ),
)
GROUPS = Table(
    "groups",
    "a process group, as one of its ranks states it",
    (
        _RANK,
        Column("group", "text", "name or id of the group as `collectives` has it", nullable=True),
        Column("label", "text", "what the run says that it is for: tp, dp, pp, default_pg, ...", nullable=True),
        Column("members", "text", "global ranks in their order in the group, joined by commas"),
    ),
)
HOST = Table(
    "host",
    "something that the host did: an operator, a call of the runtime, a mark of the user",
    (
        _RANK,
        Column("name", "text", "name as recorded"),
        Column("kind", "text", "operator, call, mark or python"),
        Column("thread", "text", "thread of the host", nullable=True),
        Column("start_ns", "int", "start on the clock of the rank"),
        Column("duration_ns", "int", "duration"),
    ),
)
CALL_SUMS = Table(
    "call_sums",
    "what a profiler sums up of one call of the host, where it does not keep the calls themselves",
    (
        _RANK,
        Column("layer", "text", "layer of the software as `host` has it before the @: AscendCL, Node, ...", nullable=True),
        Column("name", "text", "name of the call"),
        Column("count", "int", "calls"),
        Column("total_ns", "int", "their summed durations"),
        Column("spread_ns", "float", "standard deviation of their durations over all of them", nullable=True),
        Column("min_ns", "int", "shortest"),
        Column("max_ns", "int", "longest"),
    ),
)
LAUNCHES = Table(
    "launches",
    "an execution on the device, with the call of the host that launched it",
    (
        _RANK,
        _STEP_OR_NONE,
        Column("name", "text", "kernel name"),
        Column("kind", "text", "computing, communication or copy"),
        Column("stream", "text", "stream or queue on the device", nullable=True),
        Column("start_ns", "int", "start on the device, on the clock of the rank", nullable=True),
        Column("duration_ns", "int", "duration on the device"),
        Column("call", "text", "call that launched it; null: no link to the host was recorded", nullable=True),
        Column("thread", "text", "thread of the host that made the call", nullable=True),
        Column("launch_ns", "int", "when the call began", nullable=True),
        Column("launch_duration_ns", "int", "how long the call took", nullable=True),
        Column("operator", "text", "innermost operator that made the call", nullable=True),
        Column("forward_thread", "text", "of a backward pass: thread on which its forward operator ran", nullable=True),
        Column("forward_ns", "int", "of a backward pass: when its forward operator began", nullable=True),
        Column("input_shapes", "text", "shapes of the operator's inputs as recorded", nullable=True),
        Column("input_dtypes", "text", "data types of the operator's inputs as recorded", nullable=True),
        Column("occupancy_ratio", "float", "estimated achieved occupancy, 0 to 1", nullable=True),
        Column("blocks_per_sm", "float", "blocks of threads a multiprocessor", nullable=True),
        Column("bytes", "int", "bytes that a copy moved or set", nullable=True),
    ),
)
UTILIZATION = Table(
    "utilization",
    "a unit of the device in all calls of one kernel name in a step: how long it worked",
    (
        _RANK,
        _STEP_OR_NONE,
        Column("name", "text", "kernel name"),
        Column("type", "text", "operator type, where the profiler states one", nullable=True),
        Column("unit", "text", "as recorded: aic_mac, aic_mte2, aiv_vec, ...; cube: the matrix units of all cores"),
        Column("count", "int", "calls for which it was recorded"),
        Column("duration_ns", "int", "their summed durations"),
        Column("core_ns", "int", "how long the core of the unit ran in them, a mean over its cores; for cube their durations"),
        Column("busy_ns", "int", "how long the unit worked of core_ns"),
    ),
)
KERNEL_COUNTERS = Table(
    "kernel_counters",
    "a counter of the device over all calls of one kernel name that one operator launched in a step",
    (
        _RANK,
        _STEP_OR_NONE,
        Column("name", "text", "kernel name"),
        Column("type", "text", "operator type, where the profiler states one", nullable=True),
        Column("operator", "text", "innermost operator of the host that launched them", nullable=True),
        Column("outer_operator", "text", "outermost operator of the host that launched them", nullable=True),
        Column("counter", "text", "counter as recorded, with its unit: aic_cube_fops, ub_read_bw(GB/s), ..."),
        Column("count", "int", "calls for which it was recorded"),
        Column("total", "float", "sum of its values over these calls"),
        Column("least", "float", "smallest value of a call"),
        Column("most", "float", "largest value of a call"),
    ),
)
LOG = Table(
    "log",
    "a step printed by a training log",
    (
        _RANK,
        _STEP,
        Column("line", "int", "line number in the log, 1-based"),
        Column("file", "text", "file that prints it", nullable=True),
        Column("num_steps", "int", "steps that the printed time is the mean of"),
        Column("duration_ns", "int", "time of one step; null where the log prints a rate only", nullable=True),
        Column("timestamp_ns", "int", "when the line was printed, UTC if no zone is given", nullable=True),
        Column("loss", "float", "loss", nullable=True),
        Column("loss_is_nan", "flag", "whether the printed loss is nan, which is not the same as no loss", nullable=True),
        Column("learning_rate", "float", "learning rate", nullable=True),
        Column("gradient_norm", "float", "global gradient norm", nullable=True),
        Column("global_batch_size", "int", "sequences of the step", nullable=True),
        Column("samples_per_s_per_device", "float", "as printed", nullable=True),
        Column("tokens_per_s_per_device", "float", "as printed", nullable=True),
        Column("flops_per_s_per_device", "float", "as printed, FLOP/s", nullable=True),
        Column("overflow", "flag", "whether the step overflowed or was skipped", nullable=True),
        Column("num_skipped", "int", "iterations that were skipped, of num_steps", nullable=True),
        Column("num_nan", "int", "iterations whose loss was nan, of num_steps", nullable=True),
    ),
)
MEMORY_CURVE = Table(
    "memory_curve",
    "how much memory a component of a rank held from a moment on",
    (
        _RANK,
        Column("component", "text", 'allocator or category as recorded; a name with + sums up others, "total" all of them'),
        Column("time_ns", "int", "moment on the clock of the rank"),
        Column("allocated_bytes", "int", "handed out to tensors", nullable=True),
        Column("reserved_bytes", "int", "held by the allocator", nullable=True),
        Column("active_bytes", "int", "handed out, or freed but still in use by a stream", nullable=True),
    ),
)
MEMORY_BLOCKS = Table(
    "memory_blocks",
    "a piece of device memory from its allocation to its release; compare moments of one `clock` and rank only",
    (
        _RANK,
        Column("clock", "text", "what start, end, producer and last_use count: ns, or events of the allocator (no time)"),
        Column("name", "text", "operator or task that asked for it", nullable=True),
        Column("owner", "text", "node of the model that it belongs to", nullable=True),
        Column("kind", "text", "what it holds: Weight, WorkSpace, PyNativeOutput, ...", nullable=True),
        Column("start", "int", "allocation; null: before the recording, or in another block if `end` is null too", nullable=True),
        Column("end", "int", "release; null: not released while recorded", nullable=True),
        Column("bytes", "int", "size"),
        Column("address", "text", "device address as recorded", nullable=True),
        Column("pool", "text", "memory pool", nullable=True),
        Column("stream", "text", "stream that allocated it", nullable=True),
        Column("producer", "int", "task that wrote it first", nullable=True),
        Column("last_use", "int", "last task that used it; null: none, or not recorded", nullable=True),
        Column("num_uses", "int", "tasks that used it; null: not recorded", nullable=True),
        Column("pool_peak_bytes", "int", "peak of the pool so far as the allocator stated it, gaps included", nullable=True),
        Column("place", "text", "line of code that allocated it", nullable=True),
    ),
)
MEMORY_REPORTS = Table(
    "memory_reports",
    "a statistic of device memory that a process printed; several of a file may be of several ranks, or before and after a change",
    (
        _RANK,
        Column("block", "int", "number of the statistic in its file, 0-based"),
        Column("file", "text", "file that holds it"),
        Column("line", "int", "line of its first figure, 1-based"),
        Column("device_bytes", "int", "memory of the device", nullable=True),
        Column("budget_bytes", "int", "memory that the framework may use, not what it used", nullable=True),
        Column("used_peak_bytes", "int", "largest sum of blocks in use", nullable=True),
        Column("actual_peak_bytes", "int", "largest extent of the pool, gaps between blocks included", nullable=True),
        Column("static_bytes", "int", "weights and constants of a graph", nullable=True),
        Column("dynamic_bytes", "int", "all else of a graph", nullable=True),
        Column("pool_bytes", "int", "memory that the pool took from the device", nullable=True),
        Column("requested_bytes", "int", "the request that did not fit; null: none failed", nullable=True),
    ),
)
INCIDENTS = Table(
    "incidents",
    "something that went wrong, as a log or a recording says it",
    (
        _RANK,
        Column("kind", "text", "host_memory, out_of_memory, collective_timeout, memory_error (ECC), no_number, device_error"),
        Column("code", "text", "code as printed: EI0002, ERR02200, Xid 79, ...", nullable=True),
        Column("file", "text", "file that says it"),
        Column("line", "int", "line in it, 1-based; null: the file has none", nullable=True),
        Column("time_ns", "int", "when, UTC if no zone is given", nullable=True),
        Column("text", "text", "what it says, the first 400 characters"),
        Column("unnamed", "flag", "whether nothing says which rank it was; it stands at rank 0 then", nullable=True),
        Column("peer", "int", "the rank that did not come, as it says", nullable=True),
        Column("requested_bytes", "int", "device memory that was asked for and not there", nullable=True),
        Column("free_bytes", "int", "what the device had free then", nullable=True),
        Column("unused_bytes", "int", "what the memory pool held then without using it", nullable=True),
        Column("others_bytes", "int", "what other processes held of the device then", nullable=True),
    ),
)
QUEUES = Table(
    "queues",
    "how full a queue of the data pipeline was, when a step asked or at a sample",
    (
        _RANK,
        Column("step", "int", "step that asked; null: a sample of the running pipeline", nullable=True),
        Column("queue", "text", "host (before the device), device (batches that wait on it), operator (behind one of the dataset)"),
        Column("operator", "text", "dataset operator and its number; null: the queue is no operator's", nullable=True),
        Column("parent", "text", "operator that takes from this queue", nullable=True),
        Column("size", "int", "entries in the queue"),
        Column("capacity", "int", "entries that fit", nullable=True),
    ),
)
COUNTERS = Table(
    "counters",
    "the value of a counter of a rank from a moment on, until the next one of its name",
    (
        _RANK,
        Column("name", "text", "counter as recorded, with what it belongs to: HBM 0/Read, AI Core Freq, NPU MEM APP/HBM"),
        Column("unit", "text", "unit as recorded: MHz, MB/s, KB; null where the source names none", nullable=True),
        Column("time_ns", "int", "moment on the clock of the rank"),
        Column("value", "float", "value in that unit"),
    ),
)
COVERAGE = Table(
    "coverage",
    "a kind of file that a rank has, or should have",
    (
        _RANK,
        Column("part", "text", "what the file answers: step times, kernels, collectives, links, timeline, memory, ..."),
        Column("state", "text", "present, partial, empty or missing"),
        Column("file", "text", "file name", nullable=True),
        Column("bytes", "int", "size of the file", nullable=True),
        Column("rows", "int", "rows read from it", nullable=True),
    ),
)

ACCOUNTS = Table(
    "accounts",
    "what became of the events of a file: all that have a duration, rows of kernels in tables; the last four sum to in_file",
    (
        _RANK,
        Column("file", "text", "file name"),
        Column("in_file", "int", "events in the file"),
        Column("assigned", "int", "events of a step: the host began them in it, or launched them from it"),
        Column("before", "int", "events that began or were launched before the first step"),
        Column("after", "int", "events that began or were launched after the last step"),
        Column("lost", "int", "events that could not be read; `dropped` says why"),
    ),
)

TABLES: Mapping[str, Table] = MappingProxyType(
    {
        table.name: table
        for table in (
            *(STEPS, STEP_PARTS, KERNELS, COLLECTIVES, LINKS, GROUPS, HOST, CALL_SUMS, LAUNCHES, UTILIZATION, KERNEL_COUNTERS, LOG),
            *(MEMORY_CURVE, MEMORY_BLOCKS, MEMORY_REPORTS, INCIDENTS, QUEUES, COUNTERS, COVERAGE, ACCOUNTS, WAITS),
        )
    }
)

_PANDAS = {("int", False): "int64", ("int", True): "Int64", ("float", False): "float64", ("float", True): "float64"}


def pandas_dtype(column: Column) -> Any:
    """The pandas dtype that stores a column."""
    if column.dtype == "text":
        return "category"
    if column.dtype == "flag":
        return "boolean"
    return _PANDAS[column.dtype, column.nullable]
