"""The command `graph`: what graph files hold, as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TextIO

from perfkit.core import texts
from perfkit.core.texts import told
from perfkit.core.units import format_bytes
from perfkit.face.cli._screen import say
from perfkit.face.cli._tables import print_table

TOP = 10


def print_graph(document: dict[str, Any], out: TextIO) -> None:
    """Print what graph files hold: communication by cause, recomputation by operator, and what is missing."""
    for name, file in document["files"].items():
        kept = file["kept_activation_bytes"]
        whole = "{name}: {num} operators, {skipped} lines skipped, complete"
        form = whole if file["complete"] else "{name}: {num} operators, {skipped} lines skipped, not complete"
        say(out, texts.say(form, name=name, num=str(file["node_lines"]), skipped=str(file["skipped_lines"])))
        if kept is not None:
            lead, saved = texts.say("activations that backward reads: {kept_bytes}", kept_bytes=kept), file["recompute_saved_bytes"]
            say(out, texts.say("{lead}; recomputation saves {saved_bytes}", lead=lead, saved_bytes=saved) if saved else lead)
        _print_communication(file["communication"], out)
        _print_recompute(file["recompute"], out)
        for problem in file["problems"][:TOP]:
            say(out, "  ", texts.say("line {line}: {what}", line=str(problem["line"]), what=told(problem["what"])))
        say(out)
    for key, form in (("missing", "missing: {what} ({place}): {why}"), ("config", "not as configured: {what} ({place}): {why}")):
        for entry in document.get(key, ()):
            place = " ".join(part for part in (entry["file"], entry.get("node") or "", entry.get("scope") or "") if part)
            say(out, texts.say(form, what=told(entry["what"]), place=place, why=told(entry["why"])))
    for entry in document["unread"]:
        say(out, texts.say("not read: {file}: {why}", file=entry["file"], why=told(entry["why"])))


def _print_communication(entries: Sequence[dict[str, Any]], out: TextIO) -> None:
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for entry in entries:
        size = str(entry["group_size"]) if entry["group_size"] else texts.say("not stated")
        key = (entry["op"], entry["cause"].replace("_", " "), size, entry["verdict"], entry["why"])
        groups.setdefault(key, []).append(entry)
    rows = [
        [op, cause, size, str(len(members)), _moved(members), verdict] for (op, cause, size, verdict, _), members in groups.items()
    ]
    if not rows:
        say(out, texts.say("no communication"))
        return
    print_table(["operator", "cause", "ranks", "count", "bytes a rank", "verdict"], rows, out, told=["cause", "verdict"])
    for (op, cause, _, verdict, why), members in groups.items():
        if verdict != "expected":
            nodes = ", ".join(entry["node"] for entry in members[:6])
            what = {"verdict": told(verdict), "op": op, "cause": told(cause), "nodes": nodes, "why": told(why)}
            lead = texts.say("{verdict}: {op} {cause} ({nodes}): {why}", **what)
            fix = members[0]["fix"]
            say(out, "  ", texts.say("{lead}; instead: {fix}", lead=lead, fix=told(fix)) if fix else lead)


def _moved(entries: Sequence[dict[str, Any]]) -> str:
    sizes = [max(entry["in_bytes"] or 0, entry["out_bytes"] or 0) for entry in entries]
    return format_bytes(sum(sizes)) if any(sizes) else texts.say("not stated")


def _print_recompute(entries: Sequence[dict[str, Any]], out: TextIO) -> None:
    groups: dict[tuple[str, bool], list[dict[str, Any]]] = {}
    for entry in entries:
        groups.setdefault((entry["op"], entry["in_effect"]), []).append(entry)
    if not groups:
        return
    states = {True: texts.say("in effect"), False: texts.say("NOT in effect")}
    rows = [[op, str(len(members)), states[in_effect]] for (op, in_effect), members in groups.items()]
    say(out)
    print_table(["recomputed operator", "count", "state"], rows, out)
    for (op, in_effect), (first, *_) in groups.items():
        if not in_effect:
            lead = texts.say("{op} {node}: {why}", op=op, node=first["node"] or "", why=told(first["why"]))
            say(out, "  ", texts.say("{lead}; add {fix}", lead=lead, fix=first["fix"]) if first["fix"] else lead)
