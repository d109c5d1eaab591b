"""Findings in the project's log: which are planned, done or dismissed, and the hypothesis of the round that acts on one.

A finding is kept with the recording in the open round. Where all rounds are decided no recording can be added any more; then the
answer is an event of the log, and a planned finding opens the next round.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from perfkit.core.errors import InputError, PerfkitError
from perfkit.core.looks import brief
from perfkit.core.run import Run
from perfkit.core.settings import find_project
from perfkit.core.texts import told
from perfkit.explain.diagnose import Diagnosis, Finding, to_dict
from perfkit.explain.diagnose.reported import hypothesis, subject_text
from perfkit.explain.diagnose.told import finding_names
from perfkit.project.experiments import ExperimentLog
from perfkit.project.keep import own_project

LONGEST_SUBJECT = 48
"""Letters of a name that a row shows; a kernel of C++ has hundreds, which would fill the table."""
ANSWER = "finding-answer"
OPEN, DONE, DISMISSED, ALL = "open", "done", "dismissed", "all"
SHOWN = (OPEN, "planned", DONE, DISMISSED, ALL)
ANSWERED = (("plan it", "planned"), ("dismiss it", DISMISSED), ("it is done", DONE))
"""What can be said of a finding: words, and the status that it gets."""

Answers = Mapping[str, tuple[str, str]]
"""Status and reason of findings by their key."""


def key_of(rule: str, subject: object) -> str:
    """What tells findings of one recording apart, as text."""
    return f"{rule} {json.dumps(subject, sort_keys=True, ensure_ascii=False)}"


def keys_of(diagnosis: Diagnosis) -> tuple[str, ...]:
    """The key of every finding, in their order."""
    return tuple(key_of(entry["rule"], entry["subject"]) for entry in to_dict(diagnosis)["findings"])


def answers(run: Run, path: str) -> Answers:
    """What was made of the findings of a recording so far, by the page's project; those without an answer are not in it."""
    folder = find_project()
    found: dict[str, tuple[str, str]] = {}
    if folder is None:
        return found
    try:
        log = ExperimentLog(folder, read_only=True)
        events = log.events()
    except PerfkitError:
        return found  # the header of the page says what is wrong with it
    for event in events:
        detail = event["detail"]
        if event["action"] == ANSWER and detail.get("recording") == run.name:
            found[str(detail["key"])] = (str(detail["status"]), str(detail["reason"]))
    own = set(_runs_of(log, run, path).values())
    for row in log.findings():
        if row["run"] in own and row["status"] != OPEN:
            found[key_of(row["rule"], row["subject"])] = (row["status"], row["reason"])
    return found


def left_to_do(diagnosis: Diagnosis, made: Answers) -> dict[str, Finding]:
    """The findings by name, without those that were dismissed or are done."""
    named = zip(finding_names(diagnosis.findings), diagnosis.findings, keys_of(diagnosis), strict=True)
    return {name: finding for name, finding, key in named if made.get(key, (OPEN,))[0] not in (DISMISSED, DONE)}


def ranked(diagnosis: Diagnosis, made: Answers, show: str = OPEN) -> pd.DataFrame:
    """The findings of which this was made, or all, costliest first; without rows if none is.

    Columns: `finding` (its name in addresses), `severity`, `cost_ns`, `share_of_step`, `title`, `subject` (whom it concerns), and
    `status` where all are shown.
    """
    columns = ["finding", "severity", "cost_ns", "share_of_step", "title", "subject", "status"]
    rows = [
        (name, finding.severity, finding.cost_ns, finding.share_of_step, finding.title, _whom(finding), made.get(key, (OPEN,))[0])
        for name, finding, key in zip(finding_names(diagnosis.findings), diagnosis.findings, keys_of(diagnosis), strict=True)
    ]
    frame = pd.DataFrame(rows, columns=columns)
    shown = frame if show == ALL else frame[frame["status"] == show].drop(columns="status").reset_index(drop=True)
    shown.attrs["title"] = f"Findings ({show}); choose one to see its evidence"
    return brief(shown, "finding", "severity", "cost_ns", "share_of_step", "title", "status")


def _whom(finding: Finding) -> str:
    return "; ".join(map(told, subject_text(finding.subject, most=4, width=LONGEST_SUBJECT).split("; ")))


def dismissals(made: Answers) -> list[str]:
    """The findings that were dismissed, each with its reason, as sentences."""
    return [f"Dismissed: {key.split(' ')[0]}, because {reason}" for key, (status, reason) in made.items() if status == DISMISSED]


def keep_findings(run: Run, diagnosis: Diagnosis, path: str) -> tuple[int, list[int]]:
    """Write the findings to the open round, with their recording if the round lacks it; gives the round and the ids."""
    project = own_project("findings")
    log = ExperimentLog(project.folder)
    number = _open_round(log)
    if number is None:
        raise InputError("findings", ["all rounds of the project are decided; start the next one on page 00"])
    run_id = _runs_of(log, run, path).get(number)
    if run_id is None:
        run_id = log.attach(number, path, "run", run=run)
    return number, log.add_findings(run_id, to_dict(diagnosis)["findings"])


def findings_kept(run: Run, diagnosis: Diagnosis, path: str) -> str:
    """Write the findings to the open round as `keep_findings` does, and say so."""
    number, ids = keep_findings(run, diagnosis, path)
    return f"Saved to round {number}: {len(ids)} finding{'s' * (len(ids) != 1)} of {run.name}."


def answer(run: Run, diagnosis: Diagnosis, path: str, *, finding: Finding | None, status: str, reason: str = "") -> str:
    """Say what was made of a finding; a planned one gives the next round its hypothesis. Gives the sentence for the page.

    Raises InputError without a finding, a status or a project, and where a finding is dismissed without a reason.
    """
    known = [value for _, value in ANSWERED]
    missing = ["finding: none is listed above"] if finding is None else []
    missing += [] if status in known else [f"status: choose what becomes of it: {', '.join(known)}"]
    if finding is None or missing:
        raise InputError("finding", missing)
    log, place = ExperimentLog(own_project("findings").folder), diagnosis.findings.index(finding)
    if status == DISMISSED and not reason.strip():
        raise InputError("dismiss", ["reason: say why the finding is dismissed"])
    number = _open_round(log)
    if number is not None:
        number, ids = keep_findings(run, diagnosis, path)
        log.answer_finding(ids[place], status, reason)
    title, text, change = hypothesis(finding, diagnosis)
    planned = status == "planned"
    detail: dict[str, Any] = {"recording": run.name, "key": keys_of(diagnosis)[place], "status": status, "reason": reason}
    draft = {"title": title, "hypothesis": text, "change": change} if planned else {}
    log.record_event(ANSWER, {**detail, **draft}, page="20_findings", number=number)
    if planned and number is None:
        return f"Round {log.start(title, text, change=change)} is started with this hypothesis."
    if planned:
        return f"Planned: the hypothesis is in the log of round {number}; it is the next round's once this one is decided."
    return f"Noted: {finding.rule} is {status}."


def _open_round(log: ExperimentLog) -> int | None:
    rounds = log.show("json")["rounds"]
    if not rounds:
        return log.start("Baseline", "what the training does before anything is changed")
    return next((row["number"] for row in rounds if not row["verdict"]), None)


def _runs_of(log: ExperimentLog, run: Run, path: str) -> dict[int, int]:
    """The id of this recording by round: runs of its format whose kept file or folder has its name."""
    name = Path(path).name
    return {
        int(row["number"]): int(entry["id"])
        for row in log.show("json")["rounds"]
        for entry in row["runs"]
        if entry["format"] == run.format and entry["path"] and Path(entry["path"]).name == name
    }
