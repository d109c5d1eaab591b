"""The command `summary`: steps, largest kernels, communication and what was lost, as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from perfkit.core import texts
from perfkit.core.texts import told
from perfkit.face.cli._screen import say
from perfkit.face.cli._tables import print_rows

TOP = 10


def print_summary(summary: dict[str, Any], out: TextIO) -> None:
    """Print where the time went: steps by rank, the largest kernels and collectives, and what was not read."""
    about = {name: summary[name] for name in ("run", "kind", "format")}
    say(out, texts.say("{run}: {kind}, {format}, {num_ranks} ranks", num_ranks=str(summary["ranks_found"]), **about))
    say(out)
    _print_steps(summary["ranks"], out)
    kernels = summary["kernels"][:TOP]
    counts = {"num": str(len(kernels)), "all": str(len(summary["kernels"]))}
    _print_titled(texts.say("largest kernels, all ranks ({num} of {all})", **counts), kernels, out)
    _print_titled(texts.say("communication, all ranks"), summary["collectives"][:TOP], out)
    waited_for = [entry for entry in summary["waiting"] if entry["caused_ns"]]
    _print_titled(texts.say("waited for in communication"), waited_for[:TOP], out)
    names = ("rank", "block", "budget_bytes", "used_peak_bytes", "actual_peak_bytes")
    reports = [{name: report[name] for name in names} for report in summary.get("memory_reports", ())]
    _print_titled(texts.say("memory of the device as printed"), reports, out)
    _print_lost(summary, out)


def _print_steps(ranks: Sequence[dict[str, Any]], out: TextIO) -> None:
    steps = [(rank, step) for rank in ranks for step in rank["steps"]]
    if not steps:
        say(out, texts.say("no step times were recorded"))
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


def _print_titled(title: texts.Said, rows: Sequence[Mapping[str, Any]], out: TextIO) -> None:
    if rows:
        say(out, "\n", title)
        print_rows(rows, out)


def _parts(step: dict[str, Any]) -> dict[str, int | None] | None:
    """The time of a step by part, in the guides' terms where they were asked for."""
    found: dict[str, int | None] | None = step["terms_ns"] if "terms_ns" in step else step["breakdown_ns"]
    return found


def _part(step: dict[str, Any], path: str) -> texts.Said:
    parts = _parts(step)
    if parts is None or (amount := parts.get(path)) is None:
        return texts.say("not measured")
    share = amount / step["duration_ns"] if step["duration_ns"] else 0.0
    return texts.say("{duration_ns} ({share})", duration_ns=amount, share=share)


def _print_lost(summary: dict[str, Any], out: TextIO) -> None:
    events = summary["events"]
    if events["in_file"]:
        form = "events: {in_file} in the files: {assigned} in steps, {before} before, {after} after, {lost} lost"
        say(out, "\n", texts.say(form, **events))
    for note in summary["notes"]:
        say(out, "\n", texts.say("note: {note}", note=note))
    if summary["dropped"]:
        say(out, "\n", texts.say("not read:"))
        for lost in summary["dropped"]:
            what = told(lost["what"])  # also a short one
            say(out, "  ", texts.say("{num} x {what} ({file})", num=str(lost["count"]), what=what, file=lost["file"]))
