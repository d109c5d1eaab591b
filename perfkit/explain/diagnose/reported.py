"""Texts of a finding: its evidence in words, a bug report that stands alone, and the hypothesis of the round that acts on it."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perfkit.core.demangled import demangled
from perfkit.core.run import Run
from perfkit.core.shortening import shortened
from perfkit.core.texts import say
from perfkit.core.units import format_entry, format_ns
from perfkit.explain.diagnose import Diagnosis, Finding, all_rules

MOST_FILES = 40


def subject_text(subject: Mapping[str, Sequence[Any]], most: int = 8, width: int | None = None) -> str:
    """Whom a finding concerns, in words: "ranks 3, 5; links 0-1"; longer names than `width` are told by both their ends."""
    return "; ".join(f"{name} {_listed(values, most, width)}" for name, values in subject.items() if len(values)) or "the whole run"


def _listed(values: Sequence[Any], most: int, width: int | None) -> str:
    told = ["-".join(map(str, value)) if isinstance(value, tuple | list) else str(value) for value in values[:most]]
    if width is not None:
        told = [shortened(demangled(name), width) for name in told]
    rest = len(values) - most
    return ", ".join(told) + (f" and {rest} more" if rest > 0 else "")


def cost_text(finding: Finding) -> str:
    """What a finding costs a step."""
    if finding.cost_ns is None:
        return say("costs no time of the mean step, or it is not known how much")
    if finding.share_of_step is None:
        return say("costs {cost_ns} of the mean step", cost_ns=finding.cost_ns)
    form = "costs {cost_ns} of the mean step ({share} of it)"
    return say(form, cost_ns=finding.cost_ns, share=finding.share_of_step)


def hypothesis(finding: Finding, diagnosis: Diagnosis) -> tuple[str, str, str]:
    """Title, hypothesis and change of the round that acts on a finding."""
    action = finding.actions[0] if finding.actions else "look into it"
    gain = "the step does not get shorter by itself"
    if finding.cost_ns is not None and diagnosis.step_ns:
        shorter = diagnosis.step_ns - finding.cost_ns
        gain = f"a step of {format_ns(diagnosis.step_ns)} gets down to {format_ns(shorter)} at best"
    return f"Act on {finding.rule}", f"{finding.title}. Without it {gain}.", action


def bug_report(run: Run, diagnosis: Diagnosis, finding: Finding, *, version: str) -> str:
    """All that somebody elsewhere needs to look into it: `version` of perfkit, thresholds, evidence, files, what is missing."""
    rule = next((rule for rule in all_rules() if rule.name == finding.rule), None)
    limits = [
        f"  {limit.name} = {format_entry(limit.value)} {limit.unit} ({limit.origin})" for limit in (rule.thresholds if rule else ())
    ]
    sections = {
        "Versions": [
            f"perfkit {version}, Python {platform.python_version()}",
            *(f"{name}: {fact.value}" for name, fact in run.facts.items()),
        ],
        "Recording": [
            f"{run.name}: {run.kind}, format {run.format}, {len(run.ranks)} ranks, "
            f"steps {_steps(run)}, step {format_ns(diagnosis.step_ns)}",
            *(f"lost: {dropped.count} {dropped.what} in {dropped.file}" for dropped in run.dropped),
            *diagnosis.notes,
        ],
        "Whom it concerns": [subject_text(finding.subject, most=64)],
        "Evidence": [f"  {name} = {_exact(value)}" for name, value in finding.evidence.items()],
        "Thresholds": limits,
        "What was advised": [f"- {action}" for action in finding.actions],
        "Not measured": [f"- {entry.rule}: {'; '.join(entry.missing)}" for entry in diagnosis.not_measured],
        "Files": _files(run),
    }
    head = [f"{finding.title}", f"rule {finding.rule}, severity {finding.severity}, {cost_text(finding)}"]
    body = [line for title, lines in sections.items() if lines for line in ("", f"{title}:", *lines)]
    return "\n".join([*head, *body]) + "\n"


def _exact(value: Any) -> str:
    return str(value) if isinstance(value, int) else format_entry(float(value))


def _steps(run: Run) -> str:
    numbers = run.frame("steps")["step"]
    return "none" if numbers.empty else f"{int(numbers.min())} to {int(numbers.max())}"


def _files(run: Run) -> list[str]:
    """The files that were read, by their names only: a folder of one's home is nobody else's business."""
    named = run.frame("coverage")["file"].dropna().astype(str)
    names = sorted({"/".join(Path(name).parts[-2:]) for name in named if name})
    rest = len(names) - MOST_FILES
    return [*(f"- {name}" for name in names[:MOST_FILES]), *([f"- and {rest} more"] if rest > 0 else [])]
