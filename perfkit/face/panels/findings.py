"""Findings: what is wrong with a run, by what it costs, and what to do about the chosen one.

The verdicts are those of `perfkit.diagnose`; the page adds which of them are planned, done or dismissed in the project's log.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from perfkit import __version__
from perfkit.core.errors import InputError
from perfkit.core.run import Run
from perfkit.core.texts import t, told
from perfkit.core.units import NS_PER_MS, format_ns, format_ratio
from perfkit.explain.diagnose import Diagnosis, Finding, all_rules
from perfkit.explain.diagnose.reported import bug_report, cost_text, evidence_rows, evidence_text, hypothesis, subject_text
from perfkit.explain.diagnose.rule import by_recording
from perfkit.face.charts.findings import cost_bars
from perfkit.face.charts.ledger import sentence, waterfall, waterfall_rows
from perfkit.face.charts.steps import part_rows, rank_bars
from perfkit.face.panels._diagnosis import chosen_finding, diagnosis_of, pages_of
from perfkit.face.widgets import context
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.control import Choice, PathPicker, Text
from perfkit.face.widgets.finding_place import finding_names
from perfkit.face.widgets.panel import Action, Answer, Code, Empty, Panel
from perfkit.face.widgets.table import Table
from perfkit.project.findings import OPEN, Answers, answer, answers, findings_kept, keys_of

SHOWN = (OPEN, "planned", "done", "dismissed", "all")
MOST_BARS = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """The recording, the chosen finding by its name, which findings are listed, and the reason as it is typed."""

    run: str
    finding: str = ""
    show: str = OPEN
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The diagnosis, the finding that is open, and what was made of the findings so far."""

    state: State
    run: Run
    diagnosis: Diagnosis
    answers: Answers

    @property
    def listed(self) -> list[tuple[str, Finding, str]]:
        """Name, finding and status of those that are listed."""
        found = [
            (name, finding, self.answers.get(key, (OPEN, ""))[0])
            for name, finding, key in zip(
                finding_names(self.diagnosis.findings), self.diagnosis.findings, keys_of(self.diagnosis), strict=True
            )
        ]
        return found if self.state.show == "all" else [row for row in found if row[2] == self.state.show]

    @property
    def chosen(self) -> tuple[str, Finding] | None:
        """The finding whose evidence is shown: the one asked for if it is listed, else the costliest that is."""
        named = {name: finding for name, finding, _ in self.listed}
        name = self.state.finding if self.state.finding in named else next(iter(named), None)
        return None if name is None else (name, named[name])


def start() -> State:
    """The project's open recording, else the bundled two-rank profile."""
    return State(run=context.first_run(context.SAMPLES))


def compute(state: State, progress: context.Progress | None = None) -> Result:
    """Diagnose the recording; raises NothingYet without one and InputError for one that cannot be read."""
    run, diagnosis = diagnosis_of(state.run, progress)
    return Result(state=state, run=run, diagnosis=diagnosis, answers=answers(context.current_project(), run, state.run))


def view(result: Result) -> Answer:
    """The ranking, the evidence of the chosen finding with what to do, and what is healthy or was not measured."""
    chosen = result.chosen
    charts: dict[str, Any] = {}
    if result.listed:
        charts["findings"] = Figure(
            chart=cost_bars({"findings": _bars(result)}),
            title=context.marked(result.state.run, told("What each finding costs a step")),
            alt=_sentence(result),
            sources=[f"diagnosed: {result.run.name}, {len(all_rules())} rules"],
            table="findings",
            wide=True,
        )
    found = result.diagnosis.ledger
    if found.explained_share is not None:
        charts["ledger"] = Figure(
            chart=waterfall({"ledger": waterfall_rows(found.waterfall())}),
            title=context.marked(result.state.run, told("Where every nanosecond of the mean step went")),
            alt=told(sentence(found.explained_share)),
            sources=[f"{found.kind}: {found.name}, all judged steps"],
            wide=True,
        )
    if chosen is not None and (figure := _ranks_figure(result, chosen[1])) is not None:
        charts["evidence"] = figure
    tables: dict[str, Any] = {
        "findings": Table(
            frame=_finding_table(result), title=f"Findings ({result.state.show}); choose one to see its evidence", selectable=True
        )
    }
    if chosen is not None:
        name, finding = chosen
        tables["evidence"] = Table(frame=pd.DataFrame(evidence_rows(finding.evidence)), title=f"Evidence of {name}")
        tables["actions"] = Table(frame=_action_table(finding), title=f"What to do about {name}")
    tables |= _other_tables(result.diagnosis)
    return Answer(charts, tables, _sentence(result), _notes(result), _texts(result))


def _bars(result: Result) -> list[dict[str, Any]]:
    longest = max((finding.cost_ns or 0 for _, finding, _ in result.listed), default=0) / NS_PER_MS
    return [
        {
            "finding": name,
            "severity": finding.severity or "low",
            "cost_ms": None if finding.cost_ns is None else finding.cost_ns / NS_PER_MS,
            "label": "" if finding.cost_ns is None else f"{format_ns(finding.cost_ns)}, {format_ratio(finding.share_of_step)}",
            "title": told(finding.title),
            "order": order,
            "room": 1.25 * longest,
        }
        for order, (name, finding, _) in enumerate(result.listed)
    ]


def _ranks_figure(result: Result, finding: Finding) -> Figure | None:
    """Where the step went on the ranks that a finding concerns, beside others: the chart that its numbers are about."""
    parts = result.run.frame("step_parts")
    if parts.empty:
        return None
    named = [int(rank) for rank in finding.subject.get("ranks", ())] or [
        int(end) for link in finding.subject.get("links", ()) for end in link
    ]
    present = sorted(int(rank) for rank in parts["rank"].unique())
    mine = [rank for rank in dict.fromkeys(named) if rank in present][:MOST_BARS]
    shown = sorted([*mine, *[rank for rank in present if rank not in mine][: max(2, MOST_BARS - len(mine))]])
    steps = result.run.steps()
    asked = finding.subject.get("steps") or [int(steps["step"].max())]
    step = int(asked[0]) if int(asked[0]) in set(steps["step"]) else int(steps["step"].max())
    rows = part_rows(parts[parts["rank"].isin(shown) & (parts["step"] == step)])
    order = {str(rank): place for place, rank in enumerate(shown)}
    rows = rows.sort_values(["rank", "order"], key=lambda column: column.map(order) if column.name == "rank" else column)
    who = told(f"; the finding is about rank{'s' * (len(mine) > 1)} {', '.join(map(str, mine))}") if mine else ""
    return Figure(
        chart=rank_bars(rows, unit="ms"),
        title=f"Step {step} by rank{who}",
        alt=told(f"Where step {step} went on {len(shown)} ranks{who}."),
        sources=[f"{result.run.kind}: {result.run.name}, table step_parts"],
        wide=True,
    )


def _finding_table(result: Result) -> pd.DataFrame:
    columns = ["finding", "severity", "cost_ns", "share_of_step", "title", "subject"]
    rows = [
        {
            "finding": name,
            "severity": told(finding.severity or ""),
            "title": told(finding.title),
            "cost_ns": finding.cost_ns,
            "share_of_step": finding.share_of_step,
            "subject": "; ".join(map(told, subject_text(finding.subject, most=4).split("; "))),
            "status": t(status),
        }
        for name, finding, status in result.listed
    ]
    return pd.DataFrame(rows, columns=[*columns, "status"] if result.state.show == "all" else columns)


def _action_table(finding: Finding) -> pd.DataFrame:
    rows = [{"step": number, "what": told(action)} for number, action in enumerate(finding.actions, start=1)]
    pages = ", ".join(f"{page.number} ({t(page.title)})" for page in pages_of(finding))
    rules = ", ".join(name for name in finding.next if not name[:2].isdigit())
    rows += [{"step": len(rows) + 1, "what": told(f"look at page {pages}")}] if pages else []
    rows += [{"step": len(rows) + 1, "what": told(f"it also explains or goes with: {rules}")}] if rules else []
    return pd.DataFrame(rows, columns=["step", "what"])


def _other_tables(diagnosis: Diagnosis) -> dict[str, Table]:
    titles = {rule.name: rule.title for rule in all_rules()}
    tables = {}
    if diagnosis.healthy:
        rows = [
            {"rule": entry.rule, "about": t(titles.get(entry.rule, "")), "evidence": evidence_text(entry.evidence)}
            for entry in diagnosis.healthy
        ]
        tables["healthy"] = Table(frame=pd.DataFrame(rows), title="Healthy, with the numbers that say so")
    if diagnosis.not_measured:
        missing = [
            {"how to collect it": told(how), "would answer": ", ".join(entry.rule for entry in entries)}
            for how, entries in by_recording(diagnosis.not_measured).items()
        ]
        tables["not_measured"] = Table(frame=pd.DataFrame(missing), title="Not measured, and how to collect it")
    if diagnosis.failed:
        failed = [{"rule": entry.rule, "error": entry.error} for entry in diagnosis.failed]
        tables["failed"] = Table(frame=pd.DataFrame(failed), title="Rules that failed (a bug of perfkit)")
    return tables


def _sentence(result: Result) -> str:
    diagnosis = result.diagnosis
    healthy, missing = len(diagnosis.healthy), len(diagnosis.not_measured)
    rest = " " + told(f"{healthy} rules found nothing wrong; {missing} could not judge what was not recorded.")
    if not diagnosis.findings:
        return told(f"Nothing was found in {result.run.name}.") + rest
    known = [finding.cost_ns for finding in diagnosis.findings if finding.cost_ns is not None]
    share = sum(known) / diagnosis.step_ns if known and diagnosis.step_ns else None
    count = told(f"{len(diagnosis.findings)} finding{'s' * (len(diagnosis.findings) > 1)}")
    total = "" if share is None else told(f", together at most {format_ns(sum(known))} of a step ({format_ratio(share)})")
    if result.chosen is None:
        return count + total + told(f"; none of them is {result.state.show}.") + rest
    _, finding = result.chosen
    action = "" if not finding.actions else " " + told(f"Do: {finding.actions[0]}.")
    return f"{count}{total}. {told(finding.title)}: {told(cost_text(finding))}.{action}{rest}"


def _notes(result: Result) -> tuple[str, ...]:
    notes = [told(note) for note in result.diagnosis.notes]
    if len(result.diagnosis.findings) > 1:
        notes.append(
            told("Causes overlap. Each cost is cut to what the costlier ones leave, so that they never sum to more than the step.")
        )
    status = {name: entry for name, entry in result.answers.items() if entry[0] == "dismissed"}
    notes += [told(f"Dismissed: {name.split(' ')[0]}, because {reason}") for name, (_, reason) in status.items()]
    if result.run.kind == "simulated":
        notes.append(told("This run is simulated; its findings are about the plan and the faults that were put in."))
    return tuple(notes)


def _texts(result: Result) -> tuple[Code, ...]:
    if result.chosen is None:
        return ()
    name, finding = result.chosen
    title, text, change = hypothesis(finding, result.diagnosis)
    return (
        Code(title="Hypothesis of the next round", text=f"{title}\n{text}\nChange: {change}\n", folded=True),
        Code(
            title=f"Bug report of {name}, with everything that somebody elsewhere needs", text=_report(result, finding), folded=True
        ),
    )


def _report(result: Result, finding: Finding) -> str:
    return bug_report(result.run, result.diagnosis, finding, version=__version__)


def plan(state: State) -> str:
    """Answer the chosen finding with `planned`; its hypothesis goes to the log."""
    return _answer(state, "planned")


def dismiss(state: State) -> str:
    """Answer the chosen finding with `dismissed` and the typed reason."""
    return _answer(state, "dismissed")


def done(state: State) -> str:
    """Answer the chosen finding with `done`."""
    return _answer(state, "done")


def _answer(state: State, status: str) -> str:
    result = compute(state)
    if result.chosen is None:
        raise InputError("findings", [f"there is no {state.show} finding to answer"])
    return answer(result.run, result.diagnosis, state.run, finding=result.chosen[1], status=status, reason=state.reason)


def save(state: State) -> str:
    """Write all findings to the open round."""
    run, diagnosis = diagnosis_of(state.run)
    return findings_kept(run, diagnosis, state.run)


def pick(state: State, place: str, row: dict[str, Any]) -> State:
    """The state after a click on a bar or a row of the findings: that one is chosen."""
    return replace(state, finding=str(row["finding"])) if place == "findings" and row.get("finding") else state


def fill(state: State) -> State:
    """The bundled two-rank profile."""
    return replace(state, run=context.run_options()[-1][1] if context.run_options() else "")


def _has_finding(state: State) -> bool:
    return context.can_save() and bool(state.run) and chosen_finding(diagnosis_of(state.run)[1], state.finding) is not None


PANEL = Panel(
    title="Findings",
    start=start,
    compute=compute,
    view=view,
    empty=Empty(action="Use the sample profile", fill=fill),
    on_select=pick,
    on_row=pick,
    shared=("run", "finding"),
    controls=(
        PathPicker(path="run", options=context.run_options, label="Recording", help="a folder of profiles or a trace file"),
        Choice(path="show", options=SHOWN, buttons=True, label="Show"),
        Text(
            path="reason",
            label="Reason to dismiss it",
            placeholder="why the finding is not worth a round",
            visible=lambda _: context.can_save(),
        ),
    ),
    actions=(
        Action(name="plan", label="Plan it", run=plan, help="writes the next round's hypothesis", visible=_has_finding),
        Action(name="dismiss", label="Dismiss it", run=dismiss, help="needs the reason", visible=_has_finding),
        Action(name="done", label="Mark as done", run=done, help="after it was repaired", visible=_has_finding),
        Action(name="save", label="Save all to the round", run=save, help="findings of the open round", visible=_has_finding),
    ),
)
