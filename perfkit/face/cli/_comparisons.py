"""The command `compare`: a comparison as aligned text that a person can read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TextIO

import pandas as pd

from perfkit.core import texts
from perfkit.core.texts import told
from perfkit.core.units import format_entry, format_ratio
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
        say(out, told(sentence))
    if found.parts:
        frame = found.to_frame()
        say(out, "\n", told(frame.attrs["title"]))
        print_rows(_rows(frame, [str(name) for name in frame.columns], len(frame)), out)
    if found.kind == "graphs":
        _print_nodes(texts.say("added nodes"), found.extra["added"], out)
        _print_nodes(texts.say("removed nodes"), found.extra["removed"], out)
        _print_nodes(texts.say("moved nodes"), found.extra["moved"], out)
        _print_nodes(texts.say("changed nodes"), found.extra["changed"], out)
    if found.alignment is not None:
        _print_losses(found, out)
    if found.operators is not None:
        _print_operators(found.operators, out)
    if found.names is not None:
        _print_names(found.names, out)
    if found.config:
        say(out)
        rows = [[str(row["key"]), str(row["old"]), str(row["new"]), row["group"]] for row in found.config[:TOP]]
        print_table(["setting", "a", "b", "subject"], rows, out, told=["subject"])
        if len(found.config) > TOP:
            say(out, texts.say("and {num} more", num=str(len(found.config) - TOP)))
    for note in found.notes:
        say(out, "\n", texts.say("note: {note}", note=note))


def _print_losses(found: Comparison, out: TextIO) -> None:
    alignment = found.alignment
    if alignment is None:
        return
    first, at = alignment.judgement.first_divergence_step, str(alignment.max_step)
    largest = texts.say("{difference} (step {step})", difference=_ratio(alignment.max_relative), step=at)
    rows: list[list[str]] = [
        [texts.say("steps compared"), str(alignment.num_compared)],
        [texts.say("largest difference"), largest],
        [texts.say("mean difference"), _ratio(alignment.mean_relative)],
        [texts.say("largest difference of the gradient norm"), _ratio(alignment.norm_max_relative)],
        [texts.say("first divergence"), texts.say("none") if first is None else texts.say("step {step}", step=str(first))],
        [texts.say("class of the change"), told(alignment.change_class)],
    ]
    say(out)
    print_table(["losses", "value"], rows, out)
    causes = [cause for cause in alignment.causes if cause.could_cause][:TOP]
    if causes and alignment.verdict != "aligned":
        say(out, "\n", texts.say("may be the cause, likeliest first"))
        print_table(["setting", "class", "why"], [[c.key, c.change_class, c.why] for c in causes], out, told=["class", "why"])


def _print_operators(found: OperatorComparison, out: TextIO) -> None:
    say(out)
    print_rows(_rows(found.operators, OPERATOR_COLUMNS, TOP), out, names=OPERATOR_COLUMNS)
    for title, frame in ((texts.say("only in a"), found.missing), (texts.say("only in b"), found.extra)):
        if len(frame):
            say(out, "\n", title)
            print_rows(_rows(frame, ONE_SIDED, TOP // 2), out)
    for row in found.fusions.to_dict("records"):
        values = {str(name): value for name, value in row.items()}
        form = "fused in {fused_in}: {num} x {fused} ({fused_ns}), the other side {parts} ({parts_ns})"
        say(out, "\n", texts.say(form, num=format_entry(row["calls"]), **values))


def _print_names(names: pd.DataFrame, out: TextIO) -> None:
    for change, side, form in (("removed", "a", "removed by name ({num})"), ("added", "b", "added by name ({num})")):
        rows = names[names["change"] == change].sort_values(f"total_{side}_ns", ascending=False, kind="stable")
        if len(rows):
            say(out, "\n", texts.say(form, num=str(len(rows))))
            print_rows(_rows(rows, ["name", "where", f"count_{side}", f"total_{side}_ns"], TOP // 2), out)


def _rows(frame: pd.DataFrame, names: Sequence[str], most: int) -> list[dict[Any, Any]]:
    """The first rows of some columns; pandas has nan for what a side has not."""
    head = frame[list(names)].head(most)
    return head.astype("object").where(head.notna(), None).to_dict("records")


def _print_nodes(title: texts.Said, entries: Sequence[Any], out: TextIO) -> None:
    if entries:
        say(out, "\n", title)
        print_table(
            ["operator", "node", "scope"],
            [[entry["op"], entry["node"], entry["scope"]] for entry in entries[:TOP]],
            out,
        )
        if len(entries) > TOP:
            say(out, texts.say("and {num} more", num=str(len(entries) - TOP)))


def _ratio(value: float | None) -> str:
    return texts.say("not measured") if value is None else format_ratio(value)
