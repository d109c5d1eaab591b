"""The engine: files in, the checks of their kinds run on each, silenced findings counted, everything else reported.

Nothing that is read is executed or imported. A file that cannot be parsed is a problem with its line; the others are still checked.
A check that raises is a defect of perfkit: it is named, and the other checks still run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from perfkit.config.dialects.manifests import Manifest, manifest_of
from perfkit.config.dialects.registry import dialect_named
from perfkit.config.dialects.table import problems_of_rows, read_table
from perfkit.config.dialects.table_file import read_frame
from perfkit.config.dialects.unread import unread_program
from perfkit.config.fragments.place import Placed, placed
from perfkit.config.fragments.repair import as_yaml
from perfkit.config.lint.check import SEVERITIES, Check, Found, Kind, LintReport, Problem
from perfkit.config.lint.subjects import Code, Config, NotStatedError, Subject, Text, code_of, config_of, dialect_of, environment_of
from perfkit.core.discover import constants
from perfkit.core.errors import InputError
from perfkit.core.texts import joined, say

LARGEST_BYTES = 20_000_000
CONFIGS = (".yaml", ".yml", ".json", ".toml", ".sh", ".args", ".txt")
PIECES = (".yaml", ".yml")
ENVIRONMENTS = (".sh", ".env", ".bash", ".txt", ".dockerfile")
MANIFEST = ".sh"
"""What a manifest of containers is read as."""
TABLE = ".csv"
SOURCE = ".py"
"""Python, which makes the arguments of a training where one dialect has them; other dialects have none of their settings in it."""
CODE = (SOURCE, ".ipynb")
LEFT_OUT = frozenset({"__pycache__", "node_modules", "site-packages"})
SILENCED = re.compile(r"#\s*perfkit:\s*ignore\[([\w\s,-]+)\]")

UNREADABLE = "unreadable-config"
SYNTAX = "syntax-error"
PLACE = "key-without-parents"
PLAN = "plan-invalid"
FILLED_IN = "filled-in-elsewhere"

Progress = Callable[[str, int, int], None]


def all_checks() -> tuple[Check, ...]:
    """All checks, by name."""
    return tuple(constants("perfkit.config.lint.checks", "CHECK"))


def lint(*paths: str | Path, progress: Progress | None = None) -> LintReport:
    """Check files and folders: configurations, launch scripts and environments, Python files and notebooks, logs.

    A folder is searched for all of these; a file in it that is none of them is left alone. Raises InputError that lists every path
    that does not exist.
    """
    missing = [say("{path}: does not exist", path=str(path)) for path in paths if not Path(path).exists()]
    if missing or not paths:
        raise InputError("lint", missing or ["no file or folder is given"])
    files = [file for path in paths for file in _files(Path(path))]
    run = _Run(all_checks())
    for number, (file, is_named) in enumerate(files):
        if progress is not None:
            progress(str(file), number, len(files))
        run.file(file, is_named=is_named)
    return run.report()


def lint_text(name: str, text: str, kinds: Sequence[Kind] | None = None) -> LintReport:
    """As `lint`, for a text that is already in memory; its name says what it is, `kinds` may say it instead."""
    run = _Run(all_checks())
    run.text(name, text, is_named=True, kinds=kinds)
    return run.report()


def lint_environment(text: str) -> LintReport:
    """As `lint`, for variables of a launch as somebody types them: `NAME=value NAME=value`, or lines of a script."""
    if not text.strip():
        return LintReport(problems=())
    return lint_text("environment", text.replace(" export ", "\n"), ["environment"])


def check_table(report: LintReport) -> pd.DataFrame:
    """All checks, most found first: `rule`, `title`, `looks_at`, `level`, `found`."""
    counts = Counter(problem.rule for problem in report.problems)
    rows = [(check.name, check.title, check.kind, check.severity, counts[check.name]) for check in all_checks()]
    frame = pd.DataFrame(rows, columns=["rule", "title", "looks_at", "level", "found"])
    return frame.sort_values("found", ascending=False, kind="stable", ignore_index=True)


def check_named(rule: str) -> Check | None:
    """The check of a rule's name; None for what is no check, as a file that cannot be parsed."""
    return next((check for check in all_checks() if check.name == rule), None)


def _files(path: Path) -> Iterator[tuple[Path, bool]]:
    """Files with whether the user named them, in a fixed order; hidden and installed ones are not searched."""
    if path.is_file():
        yield path, True
        return
    for found in sorted(path.iterdir()):
        if found.name.startswith(".") or found.name in LEFT_OUT or found.is_symlink():
            continue
        if found.is_dir():
            yield from _files(found)
        elif _suffix(found) in (*CONFIGS, *ENVIRONMENTS, *CODE, ".log"):
            yield found, False


def _suffix(path: Path) -> str:
    """How the name of a file ends; a Dockerfile is one by how its name begins."""
    return ".dockerfile" if path.name.lower().startswith("dockerfile") else path.suffix.lower()


@dataclass(slots=True)
class _Run:
    """What was found so far."""

    known: tuple[Check, ...]
    problems: list[Problem] = field(default_factory=list)
    checked: Counter[str] = field(default_factory=Counter)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    failed: list[tuple[str, str, str]] = field(default_factory=list)
    num_silenced: int = 0

    def report(self) -> LintReport:
        """Everything, by file and line, errors first on a line."""
        order = sorted(
            self.problems,
            key=lambda found: (found.file, found.cell or 0, found.line or 0, SEVERITIES.index(found.severity), found.rule),
        )
        return LintReport(
            problems=tuple(order),
            checked=dict(self.checked),
            skipped=tuple(self.skipped),
            num_silenced=self.num_silenced,
            failed=tuple(self.failed),
        )

    def file(self, path: Path, *, is_named: bool) -> None:
        """Check one file; one that cannot be read is skipped with the reason."""
        try:
            if path.stat().st_size > LARGEST_BYTES:
                self.skipped.append((str(path), say("has more than {value} MB", value=str(LARGEST_BYTES // 1_000_000))))
                return
            raw = path.read_bytes()
        except OSError as error:
            self.skipped.append((str(path), say("cannot be read: {strerror}", strerror=str(error.strerror))))
            return
        if b"\0" in raw:
            self.skipped.append((str(path), "is binary"))
            return
        self.text(str(path), raw.decode("utf-8-sig", errors="replace"), is_named=is_named, path=path)

    def text(self, file: str, text: str, *, is_named: bool, kinds: Sequence[Kind] | None = None, path: Path | None = None) -> None:
        """Check one text as everything that its name and content make it; `path` is where it lies, with what it refers to."""
        before = sum(self.checked.values())
        suffix = _suffix(Path(file))
        if suffix in PIECES and (manifest := manifest_of(text)).script != text:
            self._brought(file, manifest)
            suffix, text = MANIFEST, manifest.placed

        def wants(kind: Kind, by_name: bool) -> bool:
            return by_name if kinds is None else kind in kinds

        if wants("code", suffix in CODE):
            self._code(file, text)
        dialect = dialect_of(file, text) if wants("config", suffix in (*CONFIGS, TABLE, SOURCE)) else ""
        if dialect and suffix == SOURCE and dialect_named(dialect).suffix != SOURCE:
            dialect = ""  # options that a program declares, or shows in its usage, start nothing
        unread = "" if dialect else unread_program(text)
        piece = placed(text) if not (dialect or unread) and suffix in PIECES and kinds is None else None
        if dialect == "table":
            self._table(file, text)
        elif dialect:
            self._config(file, text, dialect, path)
        elif piece is not None:
            self._piece(file, piece)
        if wants("environment", suffix in ENVIRONMENTS):
            environment = environment_of(file, text)
            if environment.variables:
                self._run("environment", file, environment)
        if wants("log", suffix == ".log" or (suffix == ".txt" and not dialect)):
            self._run("log", file, Text(file=file, text=text))
        if is_named and sum(self.checked.values()) == before:
            self.skipped.append(
                (file, unread or "is no configuration, environment, Python file, notebook or log that perfkit knows")
            )

    def _code(self, file: str, text: str) -> None:
        try:
            self._run("code", file, code_of(file, text))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None)
            message = getattr(error, "msg", None) or str(error) or type(error).__name__
            self._problem(
                SYNTAX,
                file,
                say("cannot be parsed: {message}", message=message),
                line,
                "repair the line; the rest of the file was not checked",
            )
        except InputError as error:
            self._problem(SYNTAX, file, joined(error.problems, "; "), None, "save the notebook again")

    def _table(self, file: str, text: str) -> None:
        """Check every row of a table of plans."""
        self.checked["config"] += 1
        problems: Sequence[str]
        try:
            problems = problems_of_rows(read_table(read_frame(file, text)).problems)
        except InputError as error:
            problems = error.problems
        for problem in problems:
            self._problem(PLAN, file, problem, None, "see the message for the nearest valid values")

    def _piece(self, file: str, piece: Placed) -> None:
        """Check a piece of a configuration with the parents that it lacks; lines are those of the file."""
        before = len(self.problems)
        if piece.text.strip():
            self._config(file, piece.text, piece.dialect)
        self.checked["config"] += not piece.text.strip()
        for place, found in enumerate(self.problems[before:], before):
            self.problems[place] = replace(found, line=piece.lines.get(found.line or 0, found.line))
        for key, parents in piece.belongs:
            message = say("{key} has no effect at the top level: it belongs under {parents}", key=key, parents=parents)
            self.problems.append(
                Problem(
                    rule=PLACE,
                    severity="information",
                    file=file,
                    line=None,
                    key=key,
                    message=message,
                    fix=say("write it below {parents}:", parents=parents),
                )
            )

    def _brought(self, file: str, manifest: Manifest) -> None:
        """Check the files of settings that a manifest brings along, with its lines; say what it leaves to its cluster."""
        for one in manifest.files.values():
            self.text(file, "\n" * (one.line - 1) + one.text, is_named=False)
        if manifest.unknown:
            fix = say("write the value, or put its ConfigMap into this file")
            self.problems.append(
                Problem(rule=FILLED_IN, severity="information", file=file, line=None, key="", message=manifest.told(), fix=fix)
            )

    def _config(self, file: str, text: str, dialect: str, path: Path | None = None) -> None:
        before = len(self.problems)
        if dialect_named(dialect).language == "yaml":
            self._run("config-text", file, Text(file=file, text=text))
        try:
            subject = config_of(file, text, dialect, path)
        except InputError as error:
            if len(self.problems) == before:
                for problem in error.problems:
                    line, message = _line_in(problem)
                    self._problem(UNREADABLE, file, message, line, "repair the line")
            # What a repair makes readable is checked too, so that one misprint does not hide the others.
            try:
                subject = config_of(file, as_yaml(text).text, dialect)
            except InputError:
                self.checked["config"] += 1
                return
        self._run("config", file, subject)

    def _problem(self, rule: str, file: str, message: str, line: int | None, fix: str) -> None:
        self.problems.append(Problem(rule=rule, severity="error", file=file, line=line, key="", message=message, fix=fix))
        if rule == SYNTAX:
            self.checked["code"] += 1

    def _run(self, kind: Kind, file: str, subject: Subject) -> None:
        if kind != "config-text":
            self.checked[kind] += 1
        silenced = _silenced(subject.text)
        for check in self.known:
            if check.kind != kind:
                continue
            found: list[Found] = []
            try:
                found.extend(check.check(subject))
            except NotStatedError:
                pass  # what was found before rests on what the piece states
            except Exception as error:
                self.failed.append((check.name, file, f"{type(error).__name__}: {error}"))
                continue
            self._add(check, file, subject, found, silenced)

    def _add(self, check: Check, file: str, subject: Subject, found: Iterable[Found], silenced: Mapping[int, set[str]]) -> None:
        for item in found:
            line = item.line
            if line is None and item.key and isinstance(subject, Config):
                line = subject.line_of(item.key)
            if line is not None and check.name in silenced.get(line, ()):
                self.num_silenced += 1
                continue
            cell, line = subject.places.get(line or 0, (None, line)) if isinstance(subject, Code) else (None, line)
            self.problems.append(
                Problem(
                    rule=check.name,
                    severity=item.severity or check.severity,
                    file=file,
                    line=line,
                    key=item.key,
                    message=item.message,
                    fix=item.fix or check.fix,
                    cell=cell,
                )
            )


def _silenced(text: str) -> dict[int, set[str]]:
    """Names of checks that a comment on a line silences."""
    if "perfkit:" not in text:
        return {}
    return {
        number: {name.strip() for name in found[1].split(",")}
        for number, line in enumerate(text.splitlines(), 1)
        if (found := SILENCED.search(line))
    }


def _line_in(problem: str) -> tuple[int | None, str]:
    """The line that a message begins with, and the rest of it."""
    found = re.match(r"line (\d+)(?:, column \d+)?(?:: |, )", problem)
    return (int(found[1]), problem[found.end() :]) if found else (None, problem)
