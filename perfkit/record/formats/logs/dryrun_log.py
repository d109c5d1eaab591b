"""DryRun log: the statistics of device memory that MindSpore prints, in a simulated run (MS_SIMULATION_LEVEL) or a real one.

Wordings of MindSpore 1.5 to 2.10 are known: HBM or MOC memory, MindSpore, fxrt or inferrt memory, peaks with and without gaps
(fragments), static and dynamic memory of graph sinks, pool lines, out-of-memory reports. A number without a unit is bytes, M 2^20.
Statistics at the start of a process (peaks of 0) and those that the end of the file cuts off are left out. If several remain, the
file does not say whether they are ranks, or before and after a change: all are kept in order, and who reads them must say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from perfkit.core.units import GIB, KIB, MIB, format_bytes
from perfkit.record.format import Format, Match, Sink
from perfkit.record.formats.logs.log_text import Line, find_logs, rank_of, read_lines
from perfkit.record.listing import File, Listing

MARKER = re.compile(rb"Device (?:HBM|MOC) memory size:|[Pp]eak memory usage[ (:]|dynamic memory pool total allocated mem:")
_UNITS = {"": 1, "B": 1, "K": KIB, "M": MIB, "G": GIB}
_LABELS = {
    "requested_bytes": r"Request memory size:",
    "device_bytes": r"Device (?:HBM|MOC) memory size:",
    "budget_bytes": r"(?:MindSpore|fxrt|inferrt) Used memory size:",
    "used_peak_bytes": r"Used peak memory usage \(without fragments\):",
    "actual_peak_bytes": r"Actual peak memory usage(?: \(with fragments\))?:",
    "static_bytes": r"Total Static Memory size:",
    "dynamic_bytes": r"Total Dynamic memory size:",
    "pool_bytes": r"dynamic memory pool total allocated mem:",
    "pool_used_bytes": r"(?<!actual )peak used mem:",
    "pool_actual_bytes": r"actual peak used mem:",
}
_FIGURE = re.compile("|".join(rf"(?P<{name}>{label})" for name, label in _LABELS.items()))
_NUMBER = re.compile(r"\s*(\d{1,18})([BKMG]?)(?![\dA-Za-z.])")
_POOL_LINE = "dynamic memory pool"
_POOL = ("pool_bytes", "pool_used_bytes", "pool_actual_bytes")
_PEAKS = ("used_peak_bytes", "actual_peak_bytes")
_COLUMNS = tuple(name for name in _LABELS if name not in _POOL[1:])


@dataclass
class _Block:
    """One statistic: its first line and its figures in bytes."""

    line: int
    figures: dict[str, int] = field(default_factory=dict)

    @property
    def only_pool(self) -> bool:
        """Whether it has nothing but what a pool line says."""
        return set(self.figures) <= set(_POOL)


def detect(listing: Listing) -> Match | None:
    """Claim every log with a statistic of device memory."""
    files = find_logs(listing, MARKER)
    return Match(files=files) if files else None


def read(match: Match, sink: Sink) -> None:
    """Read every log in the order of its rank; a log whose name states no rank counts as rank 0."""
    for file in sorted(match.files, key=lambda file: (rank_of(file) or 0, file.label)):
        rank = rank_of(file) or 0
        blocks = _counting(list(_blocks(read_lines(file, sink))), file, sink)
        sink.cover(rank, "memory statistics", file, rows=len(blocks), state=None if blocks else "empty")
        if len(blocks) > 1:
            sink.note(
                f"{file.label} holds {len(blocks)} memory statistics: say whether they are one of each rank, or before and after a "
                "change; they are kept in their order"
            )
        for number, block in enumerate(blocks):
            _add(rank, number, block, file, sink)


def _blocks(lines: Iterable[Line]) -> Iterator[_Block]:
    """The statistics of a log; a new one begins where a figure comes that the last one has, or with a request or a device."""
    current: _Block | None = None
    for line in lines:
        for name, value in _figures(line.text):
            if current is None or _begins(name, current):
                if current is not None:
                    yield current
                current = _Block(line.number)
            current.figures[name] = value
    if current is not None:
        yield current


def _figures(text: str) -> Iterator[tuple[str, int]]:
    for found in _FIGURE.finditer(text):
        name = found.lastgroup or ""
        if name in _POOL and _POOL_LINE not in text:
            continue  # the same words tell of one of several pools
        if number := _NUMBER.match(text, found.end()):
            yield name, int(number[1]) * _UNITS[number[2]]


def _begins(name: str, current: _Block) -> bool:
    if name in current.figures or name == "requested_bytes":
        return True
    if name == "device_bytes":
        return not current.only_pool and set(current.figures) != {"requested_bytes"}
    return name == "pool_bytes" and not current.only_pool


def _counting(blocks: list[_Block], file: File, sink: Sink) -> list[_Block]:
    """Without those that tell nothing: of a process that starts, cut off, or the pool line of a statistic that is there too."""
    peaks = {tuple(block.figures.get(name) for name in _PEAKS) for block in blocks if not block.only_pool}
    kept = []
    for number, block in enumerate(blocks):
        figures, last = block.figures, number == len(blocks) - 1
        if block.only_pool:
            repeated = (figures.get("pool_used_bytes"), figures.get("pool_actual_bytes")) in peaks
            if repeated or (not last and blocks[number + 1].only_pool):  # a pool prints its growing peak again and again
                continue
        elif not {*_PEAKS, "requested_bytes", "static_bytes"} & set(figures):
            sink.drop("memory statistic that the end of the file cuts off" if last else "memory statistic without a peak", 1, file)
            continue
        for peak, of_pool in zip(_PEAKS, _POOL[1:], strict=True):
            if peak not in figures and of_pool in figures:
                figures[peak] = figures[of_pool]
        stated = [figures[name] for name in _PEAKS if name in figures]
        if any(stated) or not stated or "requested_bytes" in figures:  # all 0: the process starts
            kept.append(block)
    return kept


def _add(rank: int, number: int, block: _Block, file: File, sink: Sink) -> None:
    figures = block.figures
    sink.add(
        "memory_reports",
        source=file,
        rank=rank,
        block=number,
        file=file.label,
        line=block.line,
        **{name: figures.get(name) for name in _COLUMNS},
    )
    where = f"{file.label}:{block.line}"
    used, actual, budget, device = (figures.get(name) for name in (*_PEAKS, "budget_bytes", "device_bytes"))
    if used is not None and actual is not None and used > actual:
        sink.note(f"{where}: the used peak is {format_bytes(used - actual)} above the actual peak of {format_bytes(actual)}")
    if actual is not None and budget is not None and actual > budget:
        sink.note(
            f"{where}: the actual peak of {format_bytes(actual)} is above the budget of {format_bytes(budget)}: it would not fit"
        )
    if "requested_bytes" in figures:
        sink.note(f"{where}: out of memory, a request of {format_bytes(figures['requested_bytes'])} failed")
    if budget is not None and device is not None and budget > device:
        sink.note(f"{where}: the budget of {format_bytes(budget)} is above the device's {format_bytes(device)}")


FORMAT = Format(
    name="dryrun-log",
    title="memory statistics of MindSpore (DryRun or real run)",
    looks_for="a log with 'Device MOC memory size: ...', 'Used peak memory usage (without fragments): ...' or pool statistics",
    detail=0,
    detect=detect,
    read=read,
)
