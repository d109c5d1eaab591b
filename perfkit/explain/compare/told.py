"""Told: a comparison in sentences, and the tables that only some kinds have: settings, operators, graph nodes, stages of a plan."""

from __future__ import annotations

import pandas as pd

from perfkit.core.texts import capital, joined, say
from perfkit.explain.compare import OPERATOR_COLUMNS, Comparison

SHOWN_OPERATORS = 40
ONE_LINE = 110
"""Letters that a sentence of several parts may have."""
_SAID = {
    True: "beyond noise",
    False: "no measurable change: repeat it before you keep it",
    None: "cannot be decided: too few steps",
}


def comparison_told(found: Comparison, *, measured: tuple[str, ...] = ()) -> tuple[str, ...]:
    """What changed most, in a sentence; then whether it is beyond noise, or inside the prediction's interval, and the notes.

    What was `measured` with two plans, in sentences, comes first, and says in place of the prediction whether the change helped.
    """
    first = found.sentences[:3] or ("the run is as planned: no part is off by 1 % of the step or more",)
    one_line = first if len("; ".join(first)) <= ONE_LINE else first[:1]
    text = say("{text}.", text=joined(one_line, "; ") if len(one_line) > 1 else one_line[0])
    helped = "" if measured else _helped(found)
    text = say("{helped}: {text}", helped=helped, text=text) if helped else capital(text)
    more = [capital(say("{text}.", text=part)) for part in first[len(one_line) :]]
    decided = []
    if found.kind == "runs":
        counts = " and ".join(str(found.extra["samples"][side]["steps"]) for side in ("a", "b"))
        rule = f"By the noise rule ({counts} steady steps, 3 standard errors of the medians and 1 %)"
        decided.append(f"{rule}: {_SAID[found.beyond_noise]}.")
    if found.beside is not None:
        inside = "inside" if found.extra["within_interval"] else "outside of"
        decided.append(f"The measured step lies {inside} the 80 % interval of the prediction.")
    return (*measured, text, *more, *decided, *found.notes)


def _helped(found: Comparison) -> str:
    """Whether b is the better one, in words; empty where that is no question, or where steps that hold other work say otherwise."""
    if found.kind not in ("runs", "plans") or found.total_a is None or found.total_b is None or found.total_a == found.total_b:
        return ""
    if found.kind == "runs" and not found.beyond_noise:
        return say("Not decided")
    shorter = found.total_b < found.total_a
    if found.kind == "runs":
        per_token = found.extra.get("ns_per_token")
        if per_token is not None and (per_token["ratio"] < 1) != shorter:
            return ""
        return say("It helped") if shorter else say("It did not help")
    speed = found.extra["figures"]["tokens_per_s_per_device"]
    if (speed["b"] > speed["a"]) != shorter:
        return ""
    return say("It should help") if shorter else say("It should not help")


def settings_table(found: Comparison) -> pd.DataFrame:
    """The settings that differ: `key`, `old`, `new`, `group`, as text; without rows where none does or none is known."""
    frame = pd.DataFrame([{**row, "old": str(row["old"]), "new": str(row["new"])} for row in found.config])
    frame.attrs |= {
        "title": "Settings that differ",
        "labels": {"key": "setting", "group": "kind", "old": f"a: {found.a}", "new": f"b: {found.b}"},
    }
    return frame


def stage_table(found: Comparison) -> pd.DataFrame:
    """Every stage of a run beside its plan, by part (residual: measured minus planned); without rows for other kinds."""
    stages = found.extra["stages"] if found.beside is not None else ()
    return pd.DataFrame([{"stage": stage["stage"], **part} for stage in stages for part in stage["parts"]])


def differing_operators(found: Comparison) -> list[pd.DataFrame]:
    """Operators of two recordings that were matched (of both, of one side only, fused), or of two graphs, each with its title."""
    if found.kind == "graphs":
        rows = [{"what": name, **entry} for name in ("added", "removed", "moved", "changed") for entry in found.extra[name]]
        return [_titled(pd.DataFrame(rows, columns=["what", "op", "node", "scope"]), {"title": "Operators that differ"})]
    if found.operators is None:
        return []
    matched = found.operators
    missing, extra = (frame.drop(columns="names", errors="ignore") for frame in (matched.missing, matched.extra))
    return [
        _titled(matched.operators[OPERATOR_COLUMNS], {"title": "Operators of both, per step and rank"}),
        _titled(missing, {"title": "Operators only in a"}),
        _titled(extra, {"title": "Operators only in b"}),
        _titled(matched.fusions, {"title": "Fused on one side, several operators on the other"}),
    ]


def _titled(frame: pd.DataFrame, words: dict[str, str]) -> pd.DataFrame:
    shown = frame.head(SHOWN_OPERATORS)
    shown.attrs.update(words)
    return shown
