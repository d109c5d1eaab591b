"""User code: what costs time in scripts, notebooks, launch scripts, environments and configurations, read and never run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from perfkit.config.lint import SEVERITIES, Check, LintReport, Problem, all_checks, lint, lint_text
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.face.charts.lint import problem_bars, problem_rows
from perfkit.face.widgets import context
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.control import Choice, PathPicker, Text
from perfkit.face.widgets.panel import Action, Answer, Code, Panel
from perfkit.face.widgets.status import NothingYet
from perfkit.face.widgets.table import Table
from perfkit.project.experiments import ExperimentLog

SAMPLES = {
    "A script that loses time": "code/train_slow.py",
    "The same script, repaired": "code/train_tuned.py",
    "A launch script": "code/launch.sh",
    "All three": "code",
    "Llama2-13B configuration": "configs/pretrain_llama2_13b.yaml",
}
SHOWN = ("errors and warnings", "everything", "errors")
LEVELS = {"errors": ("error",), "errors and warnings": ("error", "warning"), "everything": ("error", "warning", "information")}


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """What is checked, which problems are shown, and the one whose example is open."""

    path: str = ""
    environment: str = ""
    shown: str = "everything"
    rule: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The report, and what of it is shown."""

    state: State
    report: LintReport

    @property
    def problems(self) -> list[Problem]:
        """The problems of the levels that are shown."""
        return [problem for problem in self.report.problems if problem.severity in LEVELS[self.state.shown]]


def start() -> State:
    """The project's scripts in uploads if there are any, else the sample that loses time."""
    project = context.current_project()
    own = project is not None and any(project.folder.glob("uploads/**/*.py"))
    return State(
        path=str(project.folder / "uploads")
        if project is not None and own
        else str(data_folder() / SAMPLES["A script that loses time"])
    )


def compute(state: State) -> Result:
    """Check the path and the typed environment; raises InputError for a path that does not exist."""
    if not state.path.strip() and not state.environment.strip():
        raise NothingYet("Choose a file or a folder of scripts, or type the environment of the launch.")
    report = lint(Path(state.path.strip()).expanduser()) if state.path.strip() else LintReport(problems=())
    if state.environment.strip():
        typed = lint_text("environment", state.environment.replace(" export ", "\n"), ["environment"])
        report = replace(report, problems=(*report.problems, *typed.problems), checked={**report.checked, **typed.checked})
    return Result(state=state, report=report)


def view(result: Result) -> Answer:
    """Problems by rule as bars, all of them as a table, the example of the chosen rule as code."""
    state, problems = result.state, result.problems
    sample = context.marked(state.path, "What was found") if state.path else "What was found"
    charts = {}
    if problems:
        charts["rules"] = Figure(
            chart=problem_bars(problem_rows([(problem.rule, problem.severity) for problem in problems])),
            title=sample,
            alt=_sentence(result),
            sources=["read from the files; nothing was run or imported"],
            table="rules",
        )
    tables = {
        "problems": Table(frame=_table(problems), title="By file and line; choose one to see how to write it", selectable=True)
    }
    if result.report.skipped:
        skipped = pd.DataFrame(result.report.skipped, columns=["file", "reason"])
        tables["skipped"] = Table(frame=skipped, title="Left out")
    return Answer(charts, tables, _sentence(result), _notes(result), _example(state.rule))


def _table(problems: list[Problem]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "place": _place(problem),
                "level": problem.severity,
                "rule": problem.rule,
                "what": problem.message,
                "instead": problem.fix,
            }
            for problem in problems
        ],
        columns=["place", "level", "rule", "what", "instead"],
    )


def _place(problem: Problem) -> str:
    parts = [Path(problem.file).name, f"cell {problem.cell}" if problem.cell else "", str(problem.line or "")]
    return ":".join(part for part in parts if part)


def _example(rule: str) -> tuple[Code, ...]:
    check = _check_named(rule)
    if check is None:
        return ()
    return (
        Code(title=f"{check.name}: {check.title}. {check.why}", text=check.bad),
        Code(title=f"Instead: {check.fix}", text=check.good),
    )


def _check_named(rule: str) -> Check | None:
    return next((check for check in all_checks() if check.name == rule), None)


def _sentence(result: Result) -> str:
    report = result.report
    files = sum(report.checked.values())
    if not report.problems:
        return (
            f"Nothing was found in {files} file{'s' if files != 1 else ''}."
            if files
            else "There is nothing in this path that can be checked."
        )
    errors, warnings, notes = (report.count(level) for level in ("error", "warning", "information"))
    text = f"{errors} error{'s' * (errors != 1)}, {warnings} warning{'s' * (warnings != 1)} and {notes} note{'s' * (notes != 1)}"
    first = next((problem for problem in report.problems if problem.severity != "information"), report.problems[0])
    return f"{text} in {files} file{'s' * (files != 1)}. First: {_place(first)}, {first.message}."


def _notes(result: Result) -> tuple[str, ...]:
    report = result.report
    notes = []
    hidden = len(report.problems) - len(result.problems)
    if hidden:
        notes.append(f"{hidden} of lower level are not shown.")
    if report.num_silenced:
        notes.append(f"{report.num_silenced} are silenced by comments in the files.")
    notes += [
        f"The check {rule} failed on {Path(file).name}: {reason}. This is a bug of perfkit." for rule, file, reason in report.failed
    ]
    return tuple(notes)


def save_counts(state: State) -> str:
    """Note in the log of the project how much was found, as an event."""
    project = context.current_project()
    if project is None:
        raise InputError("project", ["no project is open; make one on page 00"])
    report = compute(state).report
    counts: dict[str, int] = {level: report.count(level) for level in SEVERITIES}
    ExperimentLog(project.folder).record_event(
        "lint", {"path": state.path, **counts}, page="23_user_code", number=project.open_round
    )
    return f"Noted: {counts['error']} errors, {counts['warning']} warnings, {counts['information']} notes."


def choose_rule(state: State, _table: str, row: dict[str, object]) -> State:
    """Open the example of the chosen problem's rule."""
    return replace(state, rule=str(row.get("rule", "")))


def options(_state: object = None) -> list[tuple[str, str, str]]:
    """Uploads of the project, then the bundled samples."""
    project = context.current_project()
    own = [project.folder / "uploads"] if project is not None and any((project.folder / "uploads").glob("**/*.py")) else []
    return [
        *((path.name, str(path), "Project") for path in own),
        *((label, str(data_folder() / path), "Samples") for label, path in SAMPLES.items()),
    ]


PANEL = Panel(
    title="Scripts and settings",
    start=start,
    compute=compute,
    view=view,
    shared=("path",),
    on_row=choose_rule,
    actions=(
        Action(
            name="save",
            label="Note the counts in the round",
            run=save_counts,
            help="one event in the log",
            visible=context.can_save,
        ),
    ),
    controls=(
        PathPicker(
            path="path", options=options, label="File or folder", placeholder="a script, a notebook, a YAML, or a folder of them"
        ),
        Text(
            path="environment",
            label="Environment of the launch",
            placeholder='MS_ALLOC_CONF="enable_vmm:True" OMP_NUM_THREADS=16',
            help="variables as NAME=value, as a launch script sets them",
            max_length=20_000,
        ),
        Choice(path="shown", options=SHOWN, label="Show"),
    ),
)
