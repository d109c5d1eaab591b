"""The command `summary`: steps, largest kernels, communication and what was lost, as text for a terminal."""

from __future__ import annotations

from typing import Any, TextIO

from perfkit.core.units import format_bytes, format_count, format_ns, format_ratio
from perfkit.face.cli._screen import say
from perfkit.face.cli._tables import print_table

TOP = 10


def print_summary(summary: dict[str, Any], out: TextIO) -> None:
    """Print where the time went: steps by rank, the largest kernels and collectives, and what was not read."""
    ranks = summary["ranks"]
    say(out, f"{summary['run']}: {summary['kind']}, {summary['format']}, {summary['ranks_found']} ranks")
    say(out)
    paths = list(dict.fromkeys(path for rank in ranks for step in rank["steps"] for path in _parts(step) or ()))
    marked = any(step["host_duration_ns"] is not None for rank in ranks for step in rank["steps"])
    rows = [
        [
            str(rank["rank"]),
            "-" if rank["pipeline_stage"] is None else str(rank["pipeline_stage"]),
            str(step["step"]),
            format_ns(step["duration_ns"]),
            *([format_ns(step["host_duration_ns"])] if marked else []),
            *(_part(step, path) for path in paths),
            format_ns(step["overlapped_ns"]),
        ]
        for rank in ranks
        for step in rank["steps"]
    ]
    if rows:
        header = ["rank", "stage", "step", "duration", *(["host mark"] if marked else []), *paths, "hidden comm."]
        print_table(header, rows, out, keys=3)
    else:
        say(out, "no step times were recorded")
    kernels = summary["kernels"][:TOP]
    if kernels:
        say(out, f"\nlargest kernels, all ranks ({len(kernels)} of {len(summary['kernels'])})")
        print_table(
            ["name", "count", "total"],
            [[kernel["name"], str(kernel["count"]), format_ns(kernel["total_ns"])] for kernel in kernels],
            out,
        )
    if summary["collectives"]:
        say(out, "\ncommunication, all ranks")
        print_table(
            ["operation", "group size", "count", "total", "bytes"],
            [
                [
                    entry["name"],
                    str(entry["group_size"] or "not stated"),
                    str(entry["count"]),
                    format_ns(entry["total_ns"]),
                    "not recorded" if entry["bytes"] is None else format_bytes(entry["bytes"]),
                ]
                for entry in summary["collectives"][:TOP]
            ],
            out,
        )
    waited = [entry for entry in summary["waiting"] if entry["caused_ns"]][:TOP]
    if waited:
        say(out, "\nwaited for in communication")
        print_table(
            ["rank", "times last", "up to", "cost its peers", "waits itself"],
            [
                [
                    str(entry["rank"]),
                    str(entry["times_last"]),
                    *(format_ns(entry[name]) for name in ("latest_ns", "caused_ns", "wait_ns")),
                ]
                for entry in waited
            ],
            out,
        )
    if summary.get("memory_reports"):
        say(out, "\nmemory of the device as printed")
        print_table(
            ["rank", "statistic", "budget", "used peak", "peak with gaps"],
            [
                [
                    str(report["rank"]),
                    str(report["block"]),
                    *(format_bytes(report[name], 6) for name in ("budget_bytes", "used_peak_bytes", "actual_peak_bytes")),
                ]
                for report in summary["memory_reports"]
            ],
            out,
        )
    _print_lost(summary, out)


def _parts(step: dict[str, Any]) -> dict[str, int] | None:
    """The time of a step by part, in the guides' terms where they were asked for."""
    found: dict[str, int] | None = step["terms_ns"] if "terms_ns" in step else step["breakdown_ns"]
    return found


def _part(step: dict[str, Any], path: str) -> str:
    parts = _parts(step)
    if parts is None or path not in parts:
        return "not measured"
    share = parts[path] / step["duration_ns"] if step["duration_ns"] else 0.0
    return f"{format_ns(parts[path])} ({format_ratio(share)})"


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
