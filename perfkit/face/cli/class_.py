"""Teach with perfkit: worked answers and notes for the instructor, results of a class, and removing what it has left.

example: perfkit class answers --seed 2024 --student s01
         perfkit class paper --seed 2024 --student s01 --rounds 1 --out sheets.html
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from perfkit.core import texts
from perfkit.core.errors import InputError
from perfkit.core.shortening import width_of
from perfkit.core.texts import told
from perfkit.core.units import format_entry
from perfkit.face.cli._command import Command
from perfkit.face.cli._document import print_document
from perfkit.face.cli._screen import say


def _add(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    answers = actions.add_parser("answers", help=told("inputs and right answers of one student"))
    answers.add_argument("--seed", type=int, required=True, help="the seed of the class")
    answers.add_argument("--student", required=True, metavar="NAME", help="the name that the student typed")
    answers.add_argument("--json", action="store_true", help="print one JSON document")
    answers.set_defaults(act=_answers)
    notes = actions.add_parser("notes", help=told("the lesson as slides: what to say, what to ask, which traps"))
    notes.add_argument("--out", metavar="FILE", required=True, help="where to write the page; an existing file is replaced")
    notes.set_defaults(act=_notes)
    paper = actions.add_parser("paper", help=told("the fault game on paper: sheets for students, or the solutions"))
    paper.add_argument("--seed", type=int, required=True, help="the seed of the class")
    paper.add_argument(
        "--student", required=True, action="append", dest="students", metavar="NAME", help="a student; again for more"
    )
    paper.add_argument("--rounds", type=int, default=3, metavar="N", help="rounds G01 to GN (default: 3)")
    paper.add_argument("--solutions", action="store_true", help="what is true instead of the sheets")
    paper.add_argument("--out", metavar="FILE", required=True, help="where to write the page; an existing file is replaced")
    paper.set_defaults(act=_paper)
    results = actions.add_parser("results", help=told("what the class of the project has done, as a page or as CSV"))
    results.add_argument("--folder", help="the tuning project (default: the nearest one above this folder)")
    results.add_argument("--seed", type=int, help="the seed of the class (default: that of the last class)")
    results.add_argument("--anonymous", action="store_true", help="s01, s02, ... in place of names")
    results.add_argument("--out", metavar="FILE", required=True, help="FILE.html: pictures and tables; FILE.csv: all rows")
    results.set_defaults(act=_results)
    codes = actions.add_parser("codes", help=told("a code for each student, as a sheet to print: who has one needs no token"))
    codes.add_argument("--folder", help="the tuning project (default: the nearest one above this folder)")
    codes.add_argument("--student", action="append", dest="students", metavar="NAME", help="a student; again for more")
    codes.add_argument("--number", type=int, default=20, metavar="N", help="s01 to sN where no student is named (default: 20)")
    codes.set_defaults(act=_codes)
    purge = actions.add_parser("purge", help=told("remove class.sqlite of the project: all names, answers and points"))
    purge.add_argument("--folder", help="the tuning project (default: the nearest one above this folder)")
    purge.set_defaults(act=_purge)


def _run(arguments: argparse.Namespace) -> int:
    return int(arguments.act(arguments))


def _answers(arguments: argparse.Namespace) -> int:
    from perfkit.teach import answers, exercises, student_name

    rows = answers(arguments.seed, student_name(arguments.student))
    if arguments.json:
        print_document({"answers": rows})
        return 0
    titles = {name: told(exercise.title) for name, exercise in exercises().items()}
    width = max(map(width_of, titles.values()))
    for row in rows:
        inputs = ", ".join(f"{name}={_short(value)}" for name, value in row["params"].items())
        title = titles[row["exercise"]]
        space = " " * (width - width_of(title))
        unit = "" if row["unit"] == "1" else f" {told(row['unit'])}"
        say(sys.stdout, f"{row['exercise']}  {title}{space}  {format_entry(row['answer'])}{unit}   ({inputs})")
    return 0


def _short(value: Any) -> str:
    return format_entry(value) if isinstance(value, float) else str(value)


def _notes(arguments: argparse.Namespace) -> int:
    from perfkit.face.report import lesson_notes, save_page

    save_page(lesson_notes(), arguments.out)
    say(sys.stdout, texts.say("{file}: open it in a browser; PageDown turns to the next block", file=arguments.out))
    return 0


def _paper(arguments: argparse.Namespace) -> int:
    from perfkit.face.report import paper_game, save_page
    from perfkit.teach import student_name

    if not 1 <= arguments.rounds <= 99:
        raise InputError("--rounds", [f"{arguments.rounds} must be 1 to 99"])
    students = [student_name(name) for name in arguments.students]
    rounds = [f"G{number:02}" for number in range(1, arguments.rounds + 1)]
    save_page(paper_game(arguments.seed, students, rounds, solutions=arguments.solutions), arguments.out)
    counts = {"students": str(len(students)), "rounds": str(arguments.rounds)}
    say(sys.stdout, texts.say("{file}: {students} students, {rounds} rounds", file=arguments.out, **counts))
    return 0


def _results(arguments: argparse.Namespace) -> int:
    from perfkit.face.report import class_results, save_page
    from perfkit.teach import class_files, class_store, report

    folder = _project("class results", arguments.folder)
    if not class_files(folder):
        raise InputError("class results", [f"no class was held in {folder}"])
    store = class_store(folder)
    seed = arguments.seed if arguments.seed is not None else store.control("seed")
    rows = store.rows(seed) if seed is not None else []
    if not rows:
        raise InputError("class results", [f"nobody has answered in the class {seed}"])
    as_rows = arguments.out.lower().endswith(".csv")
    page = (
        report.results_csv(rows, anonymous=arguments.anonymous)
        if as_rows
        else class_results(rows, store.teams(), anonymous=arguments.anonymous)
    )
    save_page(page, arguments.out)
    counts = {"students": str(len({row["student"] for row in rows})), "rows": str(len(rows))}
    say(sys.stdout, texts.say("{file}: {students} students, {rows} rows", file=arguments.out, **counts))
    return 0


def _project(command: str, named: str | None) -> Path:
    from perfkit.project import find_project

    folder = find_project(named)
    if folder is None:
        raise InputError(command, ["no project here; name one with --folder, or go to a folder with a perfkit.toml"])
    return folder


def _codes(arguments: argparse.Namespace) -> int:
    from perfkit.teach import new_codes

    if not 1 <= arguments.number <= 500:
        raise InputError("--number", [f"{arguments.number} is none of 1 to 500"])
    students = arguments.students or [f"s{number:02}" for number in range(1, arguments.number + 1)]
    codes = new_codes(_project("class codes", arguments.folder), students)
    width = max(map(len, codes))
    for student, code in codes.items():
        say(sys.stdout, f"{student:<{width}}   {code}")
        say(sys.stdout)
    return 0


def _purge(arguments: argparse.Namespace) -> int:
    from perfkit.teach import purge

    folder = _project("class purge", arguments.folder)
    removed = purge(folder)
    form = "removed {files} in {folder}" if removed else "no class has left anything in {folder}"
    say(sys.stdout, texts.say(form, files=", ".join(path.name for path in removed), folder=str(folder)))
    return 0


COMMAND = Command(name="class", add=_add, run=_run)
