"""Findings: what a diagnosis said about a run of the log, and what was made of each: planned, done or dismissed, and why."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from perfkit.core.errors import InputError
from perfkit.project.experiments._schema import FINDING_STATES
from perfkit.project.experiments._views import rows
from perfkit.project.experiments.writer import Writer, to_json

SEVERITIES = ("high", "medium", "low")


def add_findings(writer: Writer, run_id: int, findings: Iterable[Mapping[str, Any]]) -> list[int]:
    """Write the findings of a run (`rule`, `severity`, `subject`, `evidence`, `cost_ns`) as open; gives their ids.

    A finding that the run has already, by rule and subject, is not written twice; its id is given again.
    """
    run = writer.connection.execute("SELECT round_id FROM run WHERE id = ?", (run_id,)).fetchone()
    if run is None:
        raise InputError("findings", [f"there is no run {run_id}"])
    known = {(row["rule"], row["subject_json"]): row["id"] for row in rows(writer.connection, _OF_RUN, run_id)}
    ids = []
    for finding in findings:
        if finding["severity"] not in SEVERITIES:
            raise InputError("findings", [f"severity = {finding['severity']!r} must be one of {', '.join(SEVERITIES)}"])
        key = (str(finding["rule"]), to_json(dict(finding["subject"])))
        if key not in known:
            known[key] = writer.insert(
                "finding",
                run_id=run_id,
                rule=key[0],
                severity=finding["severity"],
                subject_json=key[1],
                evidence_json=to_json(dict(finding["evidence"])),
                cost_ns=finding["cost_ns"],
                status="open",
                reason="",
            )
        ids.append(known[key])
    writer.event("findings", {"run": run_id, "findings": ids}, run["round_id"])
    return ids


def answer_finding(writer: Writer, finding_id: int, status: str, reason: str) -> None:
    """Say what was made of a finding; the earlier answer stays in the events."""
    problems = [] if status in FINDING_STATES else [f"status = {status!r} must be one of {', '.join(FINDING_STATES)}"]
    row = writer.connection.execute(
        "SELECT finding.*, round_id FROM finding JOIN run ON run.id = run_id WHERE finding.id = ?", (finding_id,)
    ).fetchone()
    if row is None:
        problems.append(f"there is no finding {finding_id}")
    if status == "dismissed" and not reason.strip():
        problems.append("reason: say why the finding is dismissed")
    if problems:
        raise InputError("findings", problems)
    writer.connection.execute("UPDATE finding SET status = ?, reason = ? WHERE id = ?", (status, reason, finding_id))
    detail = {"finding": finding_id, "rule": row["rule"], "before": row["status"], "status": status, "reason": reason}
    writer.event("finding", detail, row["round_id"])
    if status != "open":
        writer.advance(row["round_id"], "align")


def findings_of(connection: sqlite3.Connection, number: int | None) -> list[dict[str, Any]]:
    """Findings of a round, or of all, costliest first: `id`, `number`, `run`, `rule`, `severity`, `subject`, `evidence`, ..."""
    found = rows(connection, _OF_ROUND, number, number)
    for row in found:
        row["subject"], row["evidence"] = json.loads(row.pop("subject_json")), json.loads(row.pop("evidence_json"))
    return found


_OF_RUN = "SELECT id, rule, subject_json FROM finding WHERE run_id = ?"
_OF_ROUND = (
    "SELECT finding.id, number, run_id AS run, rule, severity, subject_json, evidence_json, cost_ns, status, reason FROM finding "
    "JOIN run ON run.id = run_id JOIN round ON round.id = round_id WHERE ? IS NULL OR number = ? ORDER BY cost_ns DESC, finding.id"
)
