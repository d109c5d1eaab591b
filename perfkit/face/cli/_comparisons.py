"""The command `compare`: a comparison as aligned text that a person can read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TextIO

import pandas as pd

from perfkit.core.units import NS_PER_S, format_bytes, format_change, format_entry, format_ns, format_ratio, significant
from perfkit.explain.compare import Comparison, OperatorComparison
from perfkit.face.cli._screen import say
from perfkit.face.cli._tables import print_table

TOP = 20


def print_comparison(found: Comparison, out: TextIO) -> None:
    """Print the answer first, then the parts, what differs in the configurations, and what was left out."""
    say(out, f"a: {found.a}")
    say(out, f"b: {found.b}")
    say(out)
    for sentence in found.sentences:
        say(out, sentence)
    if found.kind == "graphs":
        _print_graphs(found, out)
    elif found.parts:
        _print_parts(found, out)
    if found.alignment is not None:
        _print_losses(found, out)
    if found.operators is not None:
        _print_operators(found.operators, out)
    if found.names is not None:
        _print_names(found.names, out)
    if found.config:
        say(out)
        rows = [[str(row["key"]), str(row["old"]), str(row["new"]), row["group"]] for row in found.config[:TOP]]
        print_table(["setting", "a", "b", "group"], rows, out)
        if len(found.config) > TOP:
            say(out, f"and {len(found.config) - TOP} more")
    for note in found.notes:
        say(out, f"\nnote: {note}")


def _print_parts(found: Comparison, out: TextIO) -> None:
    scale = 1 if found.unit == "ns" else NS_PER_S
    rows = [
        [
            part.path,
            *(format_ns(amount * scale) for amount in (part.a, part.b)),
            _signed(part.delta * scale),
            _change(part.a, part.b),
        ]
        for part in sorted(found.parts, key=lambda part: -abs(part.delta))
    ]
    if found.total_a is not None and found.total_b is not None:
        a, b = found.total_a, found.total_b
        rows.append(["total", format_ns(a * scale), format_ns(b * scale), _signed((b - a) * scale), _change(a, b)])
    say(out)
    whole = "mean step" if found.kind == "runs" or found.alignment is not None else "step"
    print_table([f"part of the {whole}", "a", "b", "b - a", "change"], rows, out)


def _print_losses(found: Comparison, out: TextIO) -> None:
    alignment = found.alignment
    if alignment is None:
        return
    first = alignment.judgement.first_divergence_step
    rows = [
        ["steps compared", str(alignment.num_compared)],
        ["largest difference", f"{_ratio(alignment.max_relative)} (step {alignment.max_step})"],
        ["mean difference", _ratio(alignment.mean_relative)],
        ["largest difference of the gradient norm", _ratio(alignment.norm_max_relative)],
        ["first divergence", "none" if first is None else f"step {first}"],
        ["class of the change", alignment.change_class],
    ]
    say(out)
    print_table(["losses", "value"], rows, out)
    causes = [cause for cause in alignment.causes if cause.could_cause][:TOP]
    if causes and alignment.verdict != "aligned":
        say(out, "\nmay be the cause, likeliest first")
        print_table(["setting", "class", "why"], [[c.key, c.change_class, c.why] for c in causes], out, told=["why"])


def _print_operators(found: OperatorComparison, out: TextIO) -> None:
    rows = [
        [
            row["operator"],
            row["shape"],
            *(format_entry(row[side]) for side in ("count_a", "count_b")),
            *(format_ns(row[side]) for side in ("mean_a_ns", "mean_b_ns")),
            significant(row["ratio"]),
            *(format_ratio(row[side]) for side in ("share_a", "share_b")),
            "slower than its share" if row["gap"] else "",
        ]
        for row in found.operators.head(TOP).to_dict("records")
    ]
    say(out)
    print_table(
        ["operator", "shapes", "calls a", "calls b", "one call a", "one call b", "b / a", "share a", "share b", ""], rows, out
    )
    for title, frame in (("only in a", found.missing), ("only in b", found.extra)):
        if len(frame):
            say(out, f"\n{title}")
            listed = frame.head(TOP // 2).to_dict("records")
            rows = [
                [
                    row["operator"],
                    row["shape"],
                    format_entry(row["count"]),
                    format_ns(row["total_ns"]),
                ]
                for row in listed
            ]
            print_table(["operator", "shapes", "calls", "time of a step"], rows, out)
    for row in found.fusions.to_dict("records"):
        text = f"{format_entry(row['calls'])} x {row['fused']} ({format_ns(row['fused_ns'])}), the other side {row['parts']}"
        say(out, f"\nfused in {row['fused_in']}: {text} ({format_ns(row['parts_ns'])})")


def _print_names(names: pd.DataFrame, out: TextIO) -> None:
    for change, side in (("removed", "a"), ("added", "b")):
        rows = names[names["change"] == change].sort_values(f"total_{side}_ns", ascending=False, kind="stable")
        if len(rows):
            say(out, f"\n{change} by name ({len(rows)})")
            listed = rows.head(TOP // 2).to_dict("records")
            cells = [
                [
                    row["name"],
                    row["where"],
                    significant(row[f"count_{side}"], 4),
                    format_ns(row[f"total_{side}_ns"]),
                ]
                for row in listed
            ]
            print_table(["name", "where", "calls", "time of a step"], cells, out)


def _print_graphs(found: Comparison, out: TextIO) -> None:
    rows = [
        [part.path, format_bytes(part.a), format_bytes(part.b), _sign(part.delta) + format_bytes(abs(part.delta))]
        for part in found.parts
    ]
    if rows:
        say(out)
        print_table(["amount", "a", "b", "b - a"], rows, out)
    for name in ("added", "removed", "moved", "changed"):
        _print_nodes(name, found.extra[name], out)


def _print_nodes(name: str, entries: Sequence[Any], out: TextIO) -> None:
    if entries:
        say(out, f"\n{name}")
        print_table(
            ["operator", "node", "scope"],
            [[entry["op"], entry["node"], entry["scope"]] for entry in entries[:TOP]],
            out,
        )
        if len(entries) > TOP:
            say(out, f"and {len(entries) - TOP} more")


def _signed(ns: float) -> str:
    return _sign(ns) + format_ns(abs(ns))


def _sign(value: float) -> str:
    return "+" if value > 0 else "-" if value < 0 else ""


def _change(a: float, b: float) -> str:
    return format_change((b - a) / a) if a else "new" if b else "-"


def _ratio(value: float | None) -> str:
    return "not measured" if value is None else format_ratio(value)
