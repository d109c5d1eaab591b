"""A diagnosis as the document that `perfkit diagnose --json` prints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from perfkit.core.units import rounded
from perfkit.explain.diagnose import accounted
from perfkit.explain.diagnose.rule import Diagnosis, Finding, by_recording


def to_dict(diagnosis: Diagnosis) -> dict[str, Any]:
    """The findings, what is healthy, what was not measured and which rules failed; times int ns, unknown values None."""
    return {
        "run": diagnosis.run,
        "step_ns": diagnosis.step_ns,
        "findings": [_finding(finding) for finding in diagnosis.findings],
        "ledger": accounted.entries(diagnosis.ledger, diagnosis.findings),
        "unexplained_ns": diagnosis.ledger.unexplained_ns,
        "explained_share": _share(explained := diagnosis.ledger.explained_share),
        "unexplained_share": _share(None if explained is None else 1 - explained),
        "modules": diagnosis.ledger.by_module().to_dict("records"),
        "waterfall": diagnosis.ledger.waterfall().to_dict("records"),
        "healthy": [{"rule": entry.rule, "evidence": _numbers(entry.evidence)} for entry in diagnosis.healthy],
        "not_measured": [
            {"rule": entry.rule, "missing": list(entry.missing), "how_to_collect": entry.how_to_collect}
            for entry in diagnosis.not_measured
        ],
        "to_collect": [
            {"how_to_collect": how, "rules": [entry.rule for entry in entries]}
            for how, entries in by_recording(diagnosis.not_measured).items()
        ],
        "failed": [{"rule": entry.rule, "error": entry.error} for entry in diagnosis.failed],
        "unplaced": _numbers(diagnosis.unplaced),
        "notes": list(diagnosis.notes),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "title": finding.title,
        "subject": {name: [_plain(value) for value in values] for name, values in finding.subject.items()},
        "evidence": _numbers(finding.evidence),
        "cost_ns": finding.cost_ns,
        "share_of_step": finding.share_of_step,
        "actions": list(finding.actions),
        "next": list(finding.next),
    }


def _share(value: float | None) -> float | None:
    return None if value is None else _rounded(value)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return value if isinstance(value, str) else int(value)


def _numbers(evidence: Mapping[str, float]) -> dict[str, float | int | None]:
    return {name: _number(value) for name, value in evidence.items()}


def _number(value: float) -> float | int | None:
    if isinstance(value, int):
        return value
    number = float(value)
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() and abs(number) < 2**53 else _rounded(number)


def _rounded(number: float) -> float:
    """Six digits behind the point, and six of what is less than a tenth: a small ratio is not to lose them."""
    return round(number, 6) if abs(number) >= 0.1 else rounded(number, 6)
