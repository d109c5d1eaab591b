"""Modules: in which module of the network the time of a finding is computed, where the recording tells (`module_tree`)."""

from __future__ import annotations

import re
from dataclasses import replace

import pandas as pd

from perfkit.core.texts import say
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.rule import Finding

MOST = 0.5
"""A module is named if so much of the time is computed in it."""
ALL = 0.9
"""One in which so much of all is computed is the network: to name it says nothing."""
_NUMBER = re.compile(r"_\d+$|^\d+-")


def named(finding: Finding, case: Case) -> Finding:
    """A finding about operators with the module in which most of their time is computed, in its subject and as its first action."""
    operators = finding.subject.get("operators")
    if finding.part != "computing" or not operators or "modules" in finding.subject or case.ledger.modules.empty:
        return finding
    rows = case.computing[case.computing["op"].isin(operators).to_numpy(dtype=bool)]
    return told(finding, case, rows, rows["duration_ns"])


def told(finding: Finding, case: Case, rows: pd.DataFrame, amounts: pd.Series) -> Finding:
    """The finding with the module of most of `amounts`, ns by row of `case.computing`; as it is where none has most of them."""
    if case.ledger.modules.empty or rows.empty:
        return finding
    sums = amounts.astype("float64").groupby(case.modules.reindex(rows.index).to_numpy()).sum()
    found = _holding(sums, case.ledger.modules.groupby("module")["ns"].sum())
    if found is None:
        return finding
    modules, share = found
    if len(modules) == 1:
        action = say("look at the module {module} first: {share} of it is computed there", module=modules[0], share=share)
    else:
        kind = _kind(modules[0])
        form = "look at the {count} modules {module} first: {share} of it is computed there"
        action = say(form, count=len(modules), module=kind, share=share)
    return replace(finding, subject={**finding.subject, "modules": modules}, actions=(action, *finding.actions))


def _holding(sums: pd.Series, every: pd.Series) -> tuple[tuple[str, ...], float] | None:
    """The deepest module that holds most of the time, or all of one kind that do; with their share. None: neither does.

    `every` is what all modules hold.
    """
    total, at = float(sums.sum()), ""
    paths = {str(path): float(amount) for path, amount in sums.items() if path}
    while inner := _inside(paths, at):
        best = max(inner, key=inner.__getitem__)
        if inner[best] < MOST * total:
            break
        at = best
    here = sum(amount for path, amount in every.items() if path and _within(str(path), at))
    if at and here < ALL * every.drop("", errors="ignore").sum():
        return (at,), sum(amount for path, amount in paths.items() if _within(path, at)) / total
    kinds: dict[str, float] = {}
    for path, amount in paths.items():
        kinds[_kind(path)] = kinds.get(_kind(path), 0.0) + amount
    kind = max(kinds, key=kinds.__getitem__, default="")
    if not kind or kinds[kind] < MOST * total:
        return None
    return tuple(path for path in paths if _kind(path) == kind), kinds[kind] / total


def _inside(paths: dict[str, float], at: str) -> dict[str, float]:
    """What the modules right inside of one hold."""
    found: dict[str, float] = {}
    for path, amount in paths.items():
        if path != at and _within(path, at):
            depth = at.count("/") + 2 if at else 1
            child = "/".join(path.split("/")[:depth])
            found[child] = found.get(child, 0.0) + amount
    return found


def _within(path: str, at: str) -> bool:
    return not at or path == at or path.startswith(f"{at}/")


def _kind(path: str) -> str:
    """The kind of module: the last name without the number that tells it from others of its kind."""
    return _NUMBER.sub("", path.rsplit("/", maxsplit=1)[-1])
