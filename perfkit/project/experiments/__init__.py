"""Experiments: the log of tuning rounds in perfkit.sqlite: what was tried, predicted, measured and decided.

A round is one hypothesis with one configuration, a prediction made before the measurement, a run and a decision. Rows are only
added; a second prediction supersedes the first and both stay. Every operation is one transaction with an `event` row that names
its author, so that several people and processes can write at once. Rounds are named by their number, from 0.
"""

from __future__ import annotations

import getpass
import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, overload

import pandas as pd

from perfkit.config.flat_keys import config_keys, difference, num_devices
from perfkit.core import settings
from perfkit.core.errors import InputError
from perfkit.core.run import Run
from perfkit.project import is_sample
from perfkit.project.experiments import _findings, _import, _views, artefacts
from perfkit.project.experiments import export as _export
from perfkit.project.experiments._figures import facts_of_run, figures_of_run, known_beside
from perfkit.project.experiments._figures import figures_of_log as figures_of_log
from perfkit.project.experiments._rules import CONFIRMATION as CONFIRMATION
from perfkit.project.experiments._rules import FEWEST_PASS_STEPS, decision_problems, missing_evidence, skip_problems
from perfkit.project.experiments._rules import goal_met as goal_met
from perfkit.project.experiments._schema import ACCURACY, METRIC_UNITS, OWN_ACTIONS, RUN_KINDS, VERDICTS, unknown_metric
from perfkit.project.experiments.artefacts import write_text
from perfkit.project.experiments.database import reading, writing
from perfkit.project.experiments.writer import Measurement as Measurement
from perfkit.project.experiments.writer import Writer, evidence_of, prediction_problems, round_row, to_json

AttachAs = Literal["config", "as_run", "run", "log", "trace", "ir", "report", "chart"]


class ExperimentLog:
    """The experiment log of the project in `folder`; made on the first write.

    `author` is written to every row (default: the user of this process), `clock` gives ns since the epoch. With `read_only`, or
    `PERFKIT_READ_ONLY`, every operation that writes raises InputError.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        read_only: bool = False,
        author: str | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.folder = Path(folder).resolve()
        self.read_only = read_only or settings.read_only()
        self.author = author or settings.author() or _user()
        self._clock = clock

    def set_project(
        self,
        name: str,
        *,
        goal_metric: str = "tokens_per_s_per_device",
        goal_value: float | None = None,
        goal_op: str = ">=",
        peak_flops_per_s: float | None = None,
        device_memory_bytes: int | None = None,
        accuracy_rule: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the goal and the limits that rounds are judged by; a second call replaces them and leaves an event."""
        if goal_metric not in METRIC_UNITS:
            raise InputError("set_project", [unknown_metric(goal_metric)])
        values = {
            "name": name,
            "goal_metric": goal_metric,
            "goal_value": goal_value,
            "goal_op": goal_op,
            "peak_flops_per_s": peak_flops_per_s,
            "device_memory_bytes": device_memory_bytes,
            "accuracy_rule": None if accuracy_rule is None else to_json(dict(accuracy_rule)),
        }
        with self._writing() as writer:
            if writer.connection.execute("SELECT 1 FROM project").fetchone():
                assignments = ", ".join(f"{column} = ?" for column in values)
                writer.connection.execute(f"UPDATE project SET {assignments}", tuple(values.values()))
            else:
                writer.insert("project", id=1, created_ns=self._clock(), **values)
            writer.event("set_project", values)

    def start(
        self,
        title: str,
        hypothesis: str = "",
        *,
        parent: int | None = None,
        change: str = "",
        abandon: str | None = None,
    ) -> int:
        """Open the next round and give its number; `parent` is by default the last kept round.

        Refused while a round is open, unless `abandon` gives the reason to drop that one (it is then decided `revert`).
        """
        problems = [] if title.strip() else ["title is empty; name the lever of this round"]
        with self._writing() as writer:
            current = writer.open_round()
            if current is not None and abandon is None:
                problems.append(f"round {current} is open; decide it, or say why it is abandoned (abandon=...)")
            elif current is not None:
                evidence = evidence_of(writer.connection, current)
                problems += decision_problems("revert", abandon or "", evidence, "")
            if problems:
                raise InputError("start", problems)
            if current is not None:
                writer.decision(current, "revert", abandon or "", "")
            return writer.new_round(title, hypothesis, change, parent)

    def attach(
        self,
        number: int,
        path: Path | str,
        as_: AttachAs,
        *,
        run: Run | None = None,
        devices: int | None = None,
        ranks_expected: int | None = None,
        figures: Iterable[Measurement] | None = None,
    ) -> int:
        """Keep a file or folder with a round: copied up to 64 MiB, else linked. Gives the id of the artefact, or of the run.

        `config` is the planned, `as_run` the measured configuration; `devices` is needed where the file does not tell. `run`
        needs the loaded run, of which a bundled sample is kept as `reported`; `figures` are by default those of page 01 for a log
        and of the steady step for a profile. A run that the round has gets what it lacks; InputError if that is nothing.
        """
        source = Path(path)
        if as_ in ("config", "as_run"):
            return self._attach_config(number, source, "plan" if as_ == "config" else "as_run", devices)
        if as_ == "run" and run is not None:
            return self._attach_run(number, source, run, ranks_expected=ranks_expected, figures=figures)
        if as_ == "run":
            raise InputError("attach", [f"{source}: as_='run' needs run=perfkit.load({str(path)!r})"])
        if as_ not in ("log", "trace", "ir", "report", "chart"):
            raise InputError("attach", [f"as_ = {as_!r} must be config, as_run, run, log, trace, ir, report or chart"])
        with self._keeping(number, source, source.name) as (writer, stored):
            return writer.artefact(round_row(writer.connection, number)["id"], as_, stored)

    def add_run(self, number: int, measurements: Iterable[Measurement], *, kind: str = "reported", format: str = "reported") -> int:
        """A run without files: figures that somebody published, with `measurements`. Gives the id of the run."""
        if kind not in RUN_KINDS:
            raise InputError("add_run", [f"kind = {kind!r} must be one of {', '.join(RUN_KINDS)}"])
        with self._writing() as writer:
            run = writer.run(number, None, kind=kind, format=format)
            writer.measurements(run, measurements)
            return run

    def measure(self, run_id: int, measurements: Iterable[Measurement]) -> None:
        """Add figures to a run; a metric that the run has already is refused, because rows are never changed."""
        with self._writing() as writer:
            writer.measurements(run_id, measurements)

    def predict(
        self,
        number: int,
        metric: str,
        value: float,
        *,
        low: float | None = None,
        high: float | None = None,
        method: str,
        based_on_run_id: int | None = None,
    ) -> None:
        """Predict a metric of a round, with a range `low` to `high`. Refused once the round has a run; a second one supersedes."""
        if problems := prediction_problems(metric, value, low, high):
            raise InputError("predict", problems)
        with self._writing() as writer:
            identity = round_row(writer.connection, number, undecided=True)["id"]
            if writer.connection.execute("SELECT 1 FROM run WHERE round_id = ?", (identity,)).fetchone():
                raise InputError("predict", [f"round {number} has a run already; a prediction is made before the measurement"])
            writer.insert(
                "prediction",
                round_id=identity,
                metric=metric,
                value=value,
                low=low,
                high=high,
                unit=METRIC_UNITS[metric],
                method=method,
                based_on_run_id=based_on_run_id,
                created_ns=self._clock(),
            )
            writer.advance(identity, "predict" if metric == "peak_memory_bytes" else "measure")
            writer.event("predict", {"metric": metric, "value": value, "low": low, "high": high}, identity)

    def record_accuracy(
        self,
        number: int,
        verdict: str,
        *,
        note: str = "",
        steps: int | None = None,
        limits: Mapping[str, Any] | None = None,
        **figures: float | None,
    ) -> None:
        """Say whether the model of a round is still the same: `pass` (10 or more steps compared), `fail` or `not_checked`.

        `figures` are `max_rel`, `mean_rel` and `norm_max_rel` (ratios), `run_id` and `reference_run_id`.
        """
        problems = [] if verdict in ACCURACY else [f"verdict = {verdict!r} must be one of {', '.join(ACCURACY)}"]
        known = ("max_rel", "mean_rel", "norm_max_rel", "run_id", "reference_run_id")
        problems += [f"{name} is no figure; figures are {', '.join(known)}" for name in figures if name not in known]
        if verdict == "pass" and (steps or 0) < FEWEST_PASS_STEPS:
            problems.append(f"steps = {steps}: fewer than {FEWEST_PASS_STEPS} compared steps are 'not_checked', not 'pass'")
        if verdict == "not_checked" and not note.strip():
            problems.append("note: say why accuracy was not checked")
        if problems:
            raise InputError("record_accuracy", problems)
        with self._writing() as writer:
            writer.accuracy(number, verdict, note=note, steps=steps, limits=limits, **figures)

    def decide(
        self,
        number: int,
        verdict: str,
        reason: str,
        *,
        next_step: str = "",
        confirmation: str = "",
        memory_limit_bytes: int | None = None,
    ) -> None:
        """Close a round with `keep`, `revert`, `repeat` or `stop`. Raises InputError that lists everything that is missing.

        `keep` needs a measured goal metric, memory below the limit (default: the device's) and accuracy `pass`, or
        `not_checked` with `confirmation="not checked"`. A decided round is refused with its decision.
        """
        if verdict not in VERDICTS:
            raise InputError("decide", [f"verdict = {verdict!r} must be one of {', '.join(VERDICTS)}"])
        with self._writing() as writer:
            round_row(writer.connection, number, undecided=True)
            evidence = evidence_of(writer.connection, number, memory_limit_bytes)
            if problems := decision_problems(verdict, reason, evidence, confirmation):
                raise InputError(f"decide round {number}", problems)
            writer.decision(number, verdict, reason, next_step)

    def skip(self, number: int, state: str, reason: str) -> None:
        """Pass over a state of an open round without its evidence; the reason is kept and shown with the round."""
        with self._writing() as writer:
            identity = round_row(writer.connection, number, undecided=True)["id"]
            if problems := skip_problems(state, reason, evidence_of(writer.connection, number)):
                raise InputError(f"skip in round {number}", problems)
            writer.event("skip", {"state": state, "reason": reason.strip()}, identity)

    def add_findings(self, run_id: int, findings: Iterable[Mapping[str, Any]]) -> list[int]:
        """Keep what a diagnosis found in a run, each as open, once; gives their ids."""
        with self._writing() as writer:
            return _findings.add_findings(writer, run_id, findings)

    def answer_finding(self, finding_id: int, status: str, reason: str = "") -> None:
        """Say what was made of a finding: `planned`, `done`, `dismissed` (with the reason) or `open` again."""
        with self._writing() as writer:
            _findings.answer_finding(writer, finding_id, status, reason)

    def findings(self, number: int | None = None) -> list[dict[str, Any]]:
        """Findings of a round, or of all rounds, costliest first, with `status` and `reason`."""
        with reading(self.folder) as connection:
            return _findings.findings_of(connection, number)

    def import_(self, path: Path | str) -> list[int]:
        """Take earlier rounds from a CSV with `number,metric,value,note`; all or none. Gives their numbers."""
        rounds = _import.read_rounds(Path(path))
        with self._writing() as writer:
            return _import.write_rounds(writer, rounds, Path(path).name)

    def sections(self) -> tuple[_export.Section, ...]:
        """The whole log as headings, sentences and tables, for a report."""
        with reading(self.folder) as connection:
            document = _views.document(connection)
        for row in document["rounds"]:
            row["artefacts"] = [{**item, "shown": artefacts.found_now(self.folder, item)} for item in row["artefacts"]]
        with_config = {row["number"] for row in document["rounds"] if row["configs"]}
        pairs = [(row["parent"], row["number"]) for row in document["rounds"] if {row["parent"], row["number"]} <= with_config]
        return _export.sections(document, {after: self.diff(before, after) for before, after in pairs})

    def export(self, out: Path | str, format: Literal["md", "html"] = "md") -> Path:
        """Write the whole log as Markdown or as one HTML page that requests nothing; equal logs give equal bytes."""
        if format not in ("md", "html"):
            raise InputError("export", [f"format = {format!r} must be 'md' or 'html'"])
        text = (_export.markdown if format == "md" else _export.html_page)(self.sections())
        return write_text(Path(out), text)

    def record_event(
        self, action: str, detail: Mapping[str, Any] | None = None, *, page: str = "", number: int | None = None
    ) -> int:
        """Note that something happened, such as a guess; no action of the log's own, as a way around its rules. Gives its id."""
        if action in OWN_ACTIONS:
            raise InputError("record_event", [f"{action!r} is written by the log itself, by the function for it"])
        with self._writing() as writer:
            identity = None if number is None else round_row(writer.connection, number)["id"]
            return writer.event(action, detail or {}, identity, page)

    @overload
    def show(self, format: Literal["table"] = ...) -> pd.DataFrame: ...
    @overload
    def show(self, format: Literal["json"]) -> dict[str, Any]: ...
    def show(self, format: Literal["table", "json"] = "table") -> pd.DataFrame | dict[str, Any]:
        """The whole log: the ladder as a frame, or everything as one JSON-ready document."""
        if format not in ("table", "json"):
            raise InputError("show", [f"format = {format!r} must be 'table' or 'json'"])
        with reading(self.folder) as connection:
            return _views.ladder(connection) if format == "table" else _views.document(connection)

    def ladder(self) -> pd.DataFrame:
        """One row a round: goal metric with unit and kind, prediction with range, errors, gain, accuracy, verdict, state."""
        return self.show("table")

    def events(self, after: int = 0) -> list[dict[str, Any]]:
        """Events with an id above `after`, oldest first: `id`, `at_ns`, `author`, `page`, `number`, `action`, `detail`."""
        with reading(self.folder) as connection:
            found = _views.events(connection, after)
        return [{**row, "detail": json.loads(row.pop("detail_json"))} for row in found]

    def missing(self, number: int) -> dict[str, list[str]]:
        """Missing evidence of a round by state of the cycle, in its order; an empty list is a state that is done."""
        with reading(self.folder) as connection:
            return missing_evidence(evidence_of(connection, number))

    def diff(self, before: int, after: int) -> list[dict[str, Any]]:
        """Configuration keys that differ between two rounds (as run, else planned): `key`, `old`, `new`, sorted by key."""
        with reading(self.folder) as connection:
            old, new = (_views.config_of(connection, number)["keys"] for number in (before, after))
        return difference(old, new)

    def restore(self, number: int, out: Path | str, *, force: bool = False) -> Path:
        """Write the configuration of a round to `out`, byte for byte; an existing file is only replaced with `force`."""
        with reading(self.folder) as connection:
            config = _views.config_of(connection, number)
        target = Path(out)
        return artefacts.restore(self.folder, config["path"], config["sha256"], target, force=force)

    def _attach_config(self, number: int, source: Path, role: str, devices: int | None) -> int:
        if not source.is_file():
            raise InputError(str(source), ["is no file"])
        dialect, keys = config_keys(source)
        found = devices or num_devices(keys)
        if not found or found < 1:
            raise InputError(str(source), ["does not say how many devices the job has; pass devices=..."])
        name = ("config" if role == "plan" else "as_run") + source.suffix.lower()
        with self._keeping(number, source, name) as (writer, stored):
            return writer.config(number, role, stored, dialect=dialect, devices=found, keys=keys)

    def _attach_run(
        self,
        number: int,
        source: Path,
        run: Run,
        *,
        ranks_expected: int | None,
        figures: Iterable[Measurement] | None,
    ) -> int:
        kind = "reported" if is_sample(source, self.folder) else run.kind
        with self._keeping(number, source, source.name) as (writer, stored):
            if figures is None:
                project, configs = _views.project_row(writer.connection), _views.configs_of(writer.connection, number)
                figures = figures_of_run(run, **known_beside(self.folder, project["peak_flops_per_s"], configs))
            if before := writer.add_to_run(number, stored, figures):
                artefacts.discard(self.folder, stored)
                return before
            attached = writer.run(number, stored, kind=kind, ranks_expected=ranks_expected, **facts_of_run(run))
            writer.measurements(attached, figures)
            return attached

    @contextmanager
    def _writing(self) -> Iterator[Writer]:
        if self.read_only:
            raise InputError(str(self.folder), ["the experiment log is read-only; nothing was written"])
        with writing(self.folder, self.author) as connection:
            yield Writer(connection, self.author, self._clock)

    @contextmanager
    def _keeping(self, number: int, source: Path, name: str) -> Iterator[tuple[Writer, artefacts.Stored]]:
        """A transaction with a stored file; a copy is removed again if the transaction fails."""
        if self.read_only:
            raise InputError(str(self.folder), ["the experiment log is read-only; nothing was written"])
        with reading(self.folder) as connection:
            round_row(connection, number)
        stored = artefacts.store(self.folder, number, source, name)
        try:
            with self._writing() as writer:
                yield writer, stored
        except (InputError, sqlite3.Error):
            artefacts.discard(self.folder, stored)
            raise


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "unknown"
