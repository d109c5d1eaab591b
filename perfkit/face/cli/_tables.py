"""Tables for a terminal: a summary as aligned text that a person can read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TextIO

from perfkit.core.units import format_bytes, format_count, format_ns, format_ratio
from perfkit.record.listing import printable

NAME_WIDTH = 60
TOP = 10


def print_summary(summary: dict[str, Any], out: TextIO) -> None:
    """Print where the time went: steps by rank, the largest kernels and collectives, and what was not read."""
    ranks = summary["ranks"]
    print(f"{summary['run']}: {summary['kind']}, {summary['format']}, {summary['ranks_found']} ranks\n", file=out)
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
        print_table(["rank", "stage", "step", "duration", *(["host mark"] if marked else []), *paths, "hidden comm."], rows, out)
    else:
        print("no step times were recorded", file=out)
    kernels = summary["kernels"][:TOP]
    if kernels:
        print(f"\nlargest kernels, all ranks ({len(kernels)} of {len(summary['kernels'])})", file=out)
        print_table(
            ["name", "count", "total"],
            [[printable(kernel["name"])[:NAME_WIDTH], str(kernel["count"]), format_ns(kernel["total_ns"])] for kernel in kernels],
            out,
        )
    if summary["collectives"]:
        print("\ncommunication, all ranks", file=out)
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
        print("\nwaited for in communication", file=out)
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
        print("\nmemory of the device as printed", file=out)
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


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], out: TextIO) -> None:
    """Print aligned columns: the first to the left, the others to the right."""
    widths = [max(len(row[index]) for row in [header, *rows]) for index in range(len(header))]
    for row in [header, *rows]:
        cells = [
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip(), file=out)


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
        print(f"\nevents: {format_count(events['in_file'])} in the files: {parts}", file=out)
    for note in summary["notes"]:
        print(f"\nnote: {printable(note)}", file=out)
    if summary["dropped"]:
        print("\nnot read:", file=out)
        for lost in summary["dropped"]:
            print(f"  {lost['count']} x {printable(lost['what'])} ({lost['file']})", file=out)


def print_graph(document: dict[str, Any], out: TextIO) -> None:
    """Print what graph files hold: communication by cause, recomputation by operator, and what is missing."""
    for name, file in document["files"].items():
        kept = file["kept_activation_bytes"]
        whole = "complete" if file["complete"] else "not complete"
        print(f"{printable(name)}: {file['node_lines']} operators, {file['skipped_lines']} lines skipped, {whole}", file=out)
        if kept is not None:
            saved = file["recompute_saved_bytes"]
            text = "" if not saved else f"; recomputation saves {format_bytes(saved)}"
            print(f"activations that backward reads: {format_bytes(kept)}{text}", file=out)
        _print_communication(file["communication"], out)
        _print_recompute(file["recompute"], out)
        for problem in file["problems"][:TOP]:
            print(f"  line {problem['line']}: {printable(problem['what'])}", file=out)
        print(file=out)
    for key, title in (("missing", "missing"), ("config", "not as configured")):
        for entry in document.get(key, ()):
            place = printable(" ".join(part for part in (entry["file"], entry.get("node") or "", entry.get("scope") or "") if part))
            print(f"{title}: {printable(entry['what'])} ({place}): {printable(entry['why'])}", file=out)
    for entry in document["unread"]:
        print(f"not read: {printable(entry['file'])}: {printable(entry['why'])}", file=out)


def _print_communication(entries: Sequence[dict[str, Any]], out: TextIO) -> None:
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for entry in entries:
        key = (entry["op"], entry["cause"], str(entry["group_size"] or "not stated"), entry["verdict"], entry["why"])
        groups.setdefault(key, []).append(entry)
    rows = [
        [op, cause, size, str(len(members)), _moved(members), verdict] for (op, cause, size, verdict, _), members in groups.items()
    ]
    if not rows:
        print("no communication", file=out)
        return
    print_table(["operator", "cause", "ranks", "count", "bytes a rank", "verdict"], rows, out)
    for (op, cause, _, verdict, why), members in groups.items():
        if verdict != "expected":
            fix = f"; instead: {members[0]['fix']}" if members[0]["fix"] else ""
            nodes = ", ".join(entry["node"] for entry in members[:6])
            print(f"  {verdict}: {op} {cause} ({nodes}): {printable(why + fix)}", file=out)


def _moved(entries: Sequence[dict[str, Any]]) -> str:
    sizes = [max(entry["in_bytes"] or 0, entry["out_bytes"] or 0) for entry in entries]
    return format_bytes(sum(sizes)) if any(sizes) else "not stated"


def _print_recompute(entries: Sequence[dict[str, Any]], out: TextIO) -> None:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entry in entries:
        groups.setdefault((entry["op"], "in effect" if entry["in_effect"] else "NOT in effect"), []).append(entry)
    if not groups:
        return
    rows = [[op, str(len(members)), state] for (op, state), members in groups.items()]
    print(file=out)
    print_table(["recomputed operator", "count", "state"], rows, out)
    for (op, state), members in groups.items():
        if state == "NOT in effect":
            fix = f"; add {members[0]['fix']}" if members[0]["fix"] else ""
            print(f"  {op} {members[0]['node'] or ''}: {printable(members[0]['why'] + fix)}", file=out)
