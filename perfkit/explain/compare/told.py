"""Told: a comparison in sentences, and the tables that only some kinds have: settings, operators, graph nodes, stages of a plan."""

from __future__ import annotations

import pandas as pd

from perfkit.core.texts import capital, joined, say
from perfkit.explain.compare import OPERATOR_COLUMNS, Comparison

SHOWN_OPERATORS = 40
_SAID = {
    True: "beyond noise",
    False: "no measurable change: repeat it before you keep it",
    None: "cannot be decided: too few steps",
}


def comparison_told(found: Comparison) -> tuple[str, ...]:
    """What changed most, in a sentence; then whether it is beyond noise, or inside the prediction's interval, and the notes."""
    first = found.sentences[:3] or ("the run is as planned: no part is off by 1 % of the step or more",)
    text = capital(say("{text}.", text=joined(first, "; ") if len(first) > 1 else first[0]))
    decided = []
    if found.kind == "runs":
        counts = " and ".join(str(found.extra["samples"][side]["steps"]) for side in ("a", "b"))
        rule = f"By the noise rule ({counts} steady steps, 3 standard errors of the medians and 1 %)"
        decided.append(f"{rule}: {_SAID[found.beyond_noise]}.")
    if found.beside is not None:
        inside = "inside" if found.extra["within_interval"] else "outside of"
        decided.append(f"The measured step lies {inside} the 80 % interval of the prediction.")
    return (text, *decided, *found.notes)


def settings_table(found: Comparison) -> pd.DataFrame:
    """The settings that differ: `key`, `old`, `new`, `group`, as text; without rows where none does or none is known."""
    frame = pd.DataFrame([{**row, "old": str(row["old"]), "new": str(row["new"])} for row in found.config])
    frame.attrs |= {"title": "Settings that differ", "labels": {"key": "setting", "old": "a", "new": "b"}}
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
