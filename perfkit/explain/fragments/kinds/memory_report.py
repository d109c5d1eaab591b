"""The memory statistics at the end of a MindSpore log: what the device has, the pool, and its peaks."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Problem
from perfkit.core.figure import Figure, figure
from perfkit.core.texts import say
from perfkit.explain.fragments.kind import FragmentKind, Part, Piece
from perfkit.explain.fragments.pasted_run import pasted_run
from perfkit.predict.dryrun import LoggedPeak, read_peaks
from perfkit.predict.memory.memory import peak_memory
from perfkit.record.formats.logs.dryrun_log import MARKER

_MORE = ("Used memory size:", "memory base address", "Total Static Memory size", "Total Dynamic memory size", "Request memory size")


def _read(piece: Piece) -> Part:
    peaks = read_peaks(pasted_run(piece.text, "fragment.log"), "before and after")
    many = len(peaks) > 1
    return Part(
        kind=FRAGMENT.name,
        title=say("memory of the device as printed, statistics: {number}", number=len(peaks)),
        belongs="the end of a log of a run with MS_MEMORY_STATISTIC=1, or of a DryRun",
        says=("M means 2^20 bytes",) if peaks else ("no peak is printed",),
        figures=tuple(one for number, peak in enumerate(peaks, 1) for one in _figures(peak, f" {number}" if many else "", piece)),
        problems=tuple(problem for peak in peaks for problem in _problems(peak, piece)),
    )


def _figures(peak: LoggedPeak, which: str, piece: Piece) -> Iterator[Figure]:
    device, pool, needed = peak.device_bytes, peak.limit_bytes, peak.peak_bytes
    rows = (
        ("device", device, "reported", "Device HBM memory size"),
        ("pool", pool, "reported", "MindSpore Used memory size"),
        ("peak", needed, "reported", "Actual peak memory usage"),
        ("fragments at the peak", peak.fragments_bytes, "computed", "peak with fragments - peak without"),
        ("left of the pool", peak.headroom_bytes(), "computed", "pool - peak"),
        ("outside of the pool", device - pool if device is not None and pool is not None else None, "computed", "device - pool"),
    )
    for name, value, state, source in rows:
        if value is not None:
            yield figure(
                say("{name}{which}", name=name, which=which) if which else name,
                value,
                "bytes",
                "reported" if state == "reported" else "computed",
                source,
            )
    if piece.plan is not None:
        yield figure(
            "peak that the plan predicts",
            float(peak_memory(piece.plan).peak.total),
            "bytes",
            "computed",
            "estimate of the project's plan",
        )


def _problems(peak: LoggedPeak, piece: Piece) -> Iterator[Problem]:
    room = peak.headroom_bytes()
    if room is not None and room < 0:
        message = say("the peak is {over_bytes} above the pool: it does not fit", over_bytes=-room)
        yield piece.problem(
            "out-of-memory", "error", message, line=peak.line, fix="recompute more layers, or split the model further"
        )
    elif room is not None and peak.limit_bytes and room > 0.1 * peak.limit_bytes:
        message = say("{free_bytes} of the pool stay free ({free_share})", free_bytes=room, free_share=room / peak.limit_bytes)
        yield piece.problem("headroom", "information", message, line=peak.line, fix="recompute fewer layers; that saves time")


FRAGMENT = FragmentKind(
    name="memory_report",
    title="memory statistics of a log",
    looks_for="lines such as `Used peak memory usage (without fragments): 48874M`",
    order=11,
    claims=lambda line: MARKER.search(line.encode("utf-8", "replace")) is not None or any(word in line for word in _MORE),
    read=_read,
)
