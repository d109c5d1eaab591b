"""Teach with perfkit: worked answers of a class for its instructor, and removing what a class has left.

example: perfkit class answers --seed 2024 --student s01
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from perfkit.cli._command import Command
from perfkit.errors import InputError


def _add(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    answers = actions.add_parser("answers", help="inputs and right answers of one student")
    answers.add_argument("--seed", type=int, required=True, help="the seed of the class")
    answers.add_argument("--student", required=True, metavar="NAME", help="the name that the student typed")
    answers.add_argument("--json", action="store_true", help="print one JSON document")
    answers.set_defaults(act=_answers)
    purge = actions.add_parser("purge", help="remove class.sqlite of the project: all names, answers and points")
    purge.add_argument("--folder", help="the tuning project (default: the nearest one above this folder)")
    purge.set_defaults(act=_purge)


def _run(arguments: argparse.Namespace) -> int:
    return int(arguments.act(arguments))


def _answers(arguments: argparse.Namespace) -> int:
    from perfkit.classroom import answers, exercises, student_name

    rows = answers(arguments.seed, student_name(arguments.student))
    if arguments.json:
        print(json.dumps({"answers": rows}, ensure_ascii=False))
        return 0
    width = max(len(exercise.title) for exercise in exercises().values())
    for row in rows:
        inputs = ", ".join(f"{name}={_short(value)}" for name, value in row["params"].items())
        title = exercises()[row["exercise"]].title
        unit = "" if row["unit"] == "1" else f" {row['unit']}"
        print(f"{row['exercise']}  {title:<{width}}  {row['answer']:.12g}{unit}   ({inputs})")
    return 0


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _purge(arguments: argparse.Namespace) -> int:
    from perfkit.classroom import purge
    from perfkit.project import find_project

    folder = find_project(arguments.folder)
    if folder is None:
        raise InputError("class purge", ["no project here; name one with --folder, or go to a folder with a perfkit.toml"])
    removed = purge(folder)
    print(
        f"removed {', '.join(path.name for path in removed)} in {folder}" if removed else f"no class has left anything in {folder}"
    )
    return 0


COMMAND = Command(name="class", add=_add, run=_run)
