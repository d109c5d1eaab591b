"""The command `compare`: a comparison as aligned text that a person can read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TextIO

import pandas as pd

from perfkit.core.units import format_entry, format_ns, format_ratio
from perfkit.explain.compare import OPERATOR_COLUMNS, Comparison, OperatorComparison
from perfkit.face.cli._screen import say
from perfkit.face.cli._tables import print_rows, print_table

TOP = 20
ONE_SIDED = ["operator", "shape", "count", "total_ns"]


def print_comparison(found: Comparison, out: TextIO) -> None:
    """Print the answer first, then the parts, what differs in the configurations, and what was left out."""
    say(out, f"a: {found.a}")
    say(out, f"b: {found.b}")
    say(out)
    for sentence in found.sentences:
        say(out, sentence)
    if found.parts:
        frame = found.to_frame()
        say(out, f"\n{frame.attrs['title']}")
        print_rows(_rows(frame, [str(name) for name in frame.columns], len(frame)), out)
    if found.kind == "graphs":
        for name in ("added", "removed", "moved", "changed"):
            _print_nodes(name, found.extra[name], out)
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
    say(out)
    print_rows(_rows(found.operators, OPERATOR_COLUMNS, TOP), out, names=OPERATOR_COLUMNS)
    for title, frame in (("only in a", found.missing), ("only in b", found.extra)):
        if len(frame):
            say(out, f"\n{title}")
            print_rows(_rows(frame, ONE_SIDED, TOP // 2), out)
    for row in found.fusions.to_dict("records"):
        text = f"{format_entry(row['calls'])} x {row['fused']} ({format_ns(row['fused_ns'])}), the other side {row['parts']}"
        say(out, f"\nfused in {row['fused_in']}: {text} ({format_ns(row['parts_ns'])})")


def _print_names(names: pd.DataFrame, out: TextIO) -> None:
    for change, side in (("removed", "a"), ("added", "b")):
        rows = names[names["change"] == change].sort_values(f"total_{side}_ns", ascending=False, kind="stable")
        if len(rows):
            say(out, f"\n{change} by name ({len(rows)})")
            print_rows(_rows(rows, ["name", "where", f"count_{side}", f"total_{side}_ns"], TOP // 2), out)


def _rows(frame: pd.DataFrame, names: Sequence[str], most: int) -> list[dict[Any, Any]]:
    """The first rows of some columns; pandas has nan for what a side has not."""
    head = frame[list(names)].head(most)
    return head.astype("object").where(head.notna(), None).to_dict("records")


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


def _ratio(value: float | None) -> str:
    return "not measured" if value is None else format_ratio(value)
