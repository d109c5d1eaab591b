"""The command `graph`: what graph files hold, as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TextIO

from perfkit.core.units import format_bytes
from perfkit.face.cli._screen import say
from perfkit.face.cli._tables import print_table

TOP = 10


def print_graph(document: dict[str, Any], out: TextIO) -> None:
    """Print what graph files hold: communication by cause, recomputation by operator, and what is missing."""
    for name, file in document["files"].items():
        kept = file["kept_activation_bytes"]
        whole = "complete" if file["complete"] else "not complete"
        say(out, f"{name}: {file['node_lines']} operators, {file['skipped_lines']} lines skipped, {whole}")
        if kept is not None:
            saved = file["recompute_saved_bytes"]
            text = "" if not saved else f"; recomputation saves {format_bytes(saved)}"
            say(out, f"activations that backward reads: {format_bytes(kept)}{text}")
        _print_communication(file["communication"], out)
        _print_recompute(file["recompute"], out)
        for problem in file["problems"][:TOP]:
            say(out, f"  line {problem['line']}: {problem['what']}")
        say(out)
    for key, title in (("missing", "missing"), ("config", "not as configured")):
        for entry in document.get(key, ()):
            place = " ".join(part for part in (entry["file"], entry.get("node") or "", entry.get("scope") or "") if part)
            say(out, f"{title}: {entry['what']} ({place}): {entry['why']}")
    for entry in document["unread"]:
        say(out, f"not read: {entry['file']}: {entry['why']}")


def _print_communication(entries: Sequence[dict[str, Any]], out: TextIO) -> None:
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for entry in entries:
        key = (entry["op"], entry["cause"], str(entry["group_size"] or "not stated"), entry["verdict"], entry["why"])
        groups.setdefault(key, []).append(entry)
    rows = [
        [op, cause, size, str(len(members)), _moved(members), verdict] for (op, cause, size, verdict, _), members in groups.items()
    ]
    if not rows:
        say(out, "no communication")
        return
    print_table(["operator", "cause", "ranks", "count", "bytes a rank", "verdict"], rows, out)
    for (op, cause, _, verdict, why), members in groups.items():
        if verdict != "expected":
            fix = f"; instead: {members[0]['fix']}" if members[0]["fix"] else ""
            nodes = ", ".join(entry["node"] for entry in members[:6])
            say(out, f"  {verdict}: {op} {cause} ({nodes}): {why + fix}")


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
    say(out)
    print_table(["recomputed operator", "count", "state"], rows, out)
    for (op, state), members in groups.items():
        if state == "NOT in effect":
            fix = f"; add {members[0]['fix']}" if members[0]["fix"] else ""
            say(out, f"  {op} {members[0]['node'] or ''}: {members[0]['why'] + fix}")
