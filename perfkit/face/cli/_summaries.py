"""The command `summary`: steps, largest kernels, communication and what was lost, as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from perfkit.core.units import format_count, format_ns, format_ratio
from perfkit.face.cli._screen import say
from perfkit.face.cli._tables import print_rows

TOP = 10


def print_summary(summary: dict[str, Any], out: TextIO) -> None:
    """Print where the time went: steps by rank, the largest kernels and collectives, and what was not read."""
    say(out, f"{summary['run']}: {summary['kind']}, {summary['format']}, {summary['ranks_found']} ranks")
    say(out)
    _print_steps(summary["ranks"], out)
    kernels = summary["kernels"][:TOP]
    _print_titled(f"largest kernels, all ranks ({len(kernels)} of {len(summary['kernels'])})", kernels, out)
    _print_titled("communication, all ranks", summary["collectives"][:TOP], out)
    _print_titled("waited for in communication", [entry for entry in summary["waiting"] if entry["caused_ns"]][:TOP], out)
    names = ("rank", "block", "budget_bytes", "used_peak_bytes", "actual_peak_bytes")
    reports = [{name: report[name] for name in names} for report in summary.get("memory_reports", ())]
    _print_titled("memory of the device as printed", reports, out)
    _print_lost(summary, out)


def _print_steps(ranks: Sequence[dict[str, Any]], out: TextIO) -> None:
    steps = [(rank, step) for rank in ranks for step in rank["steps"]]
    if not steps:
        say(out, "no step times were recorded")
        return
    paths = list(dict.fromkeys(path for _, step in steps for path in _parts(step) or ()))
    times = ["duration_ns", *(["host_duration_ns"] if any(step["host_duration_ns"] is not None for _, step in steps) else [])]
    rows = [
        {
            **{name: rank[name] for name in ("rank", "pipeline_stage")},
            **{name: step[name] for name in ("step", *times)},
            **{path: _part(step, path) for path in paths},
            "overlapped_ns": step["overlapped_ns"],
        }
        for rank, step in steps
    ]
    print_rows(rows, out, keys=3)


def _print_titled(title: str, rows: Sequence[Mapping[str, Any]], out: TextIO) -> None:
    if rows:
        say(out, f"\n{title}")
        print_rows(rows, out)


def _parts(step: dict[str, Any]) -> dict[str, int | None] | None:
    """The time of a step by part, in the guides' terms where they were asked for."""
    found: dict[str, int | None] | None = step["terms_ns"] if "terms_ns" in step else step["breakdown_ns"]
    return found


def _part(step: dict[str, Any], path: str) -> str:
    parts = _parts(step)
    if parts is None or (amount := parts.get(path)) is None:
        return "not measured"
    share = amount / step["duration_ns"] if step["duration_ns"] else 0.0
    return f"{format_ns(amount)} ({format_ratio(share)})"


def _print_lost(summary: dict[str, Any], out: TextIO) -> None:
    events = summary["events"]
    if events["in_file"]:
        places = {"assigned": "in steps", "before": "before", "after": "after", "lost": "lost"}
        parts = ", ".join(f"{format_count(events[name])} {where}" for name, where in places.items())
        say(out, f"\nevents: {format_count(events['in_file'])} in the files: {parts}")
    for note in summary["notes"]:
        say(out, f"\nnote: {note}")
    if summary["dropped"]:
        say(out, "\nnot read:")
        for lost in summary["dropped"]:
            say(out, f"  {lost['count']} x {lost['what']} ({lost['file']})")
