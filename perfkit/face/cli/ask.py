"""A question to a run, answered as a table, as JSON or as CSV: the methods of `perfkit.load(...)`, with their options.

example: perfkit ask profile/ kernels --rank 0 --by type --top 10
         perfkit ask profile/ collectives --csv > collectives.csv
         perfkit ask profile/ sql --query "SELECT COUNT(*) AS kernels FROM kernels"
"""

from __future__ import annotations

import argparse
import sys
from typing import Literal

from perfkit.core.texts import told
from perfkit.face.cli._command import Command
from perfkit.face.cli._progress import Progress

TOP = 20


def _add(parser: argparse.ArgumentParser) -> None:
    from perfkit.face.cli._questions import options_of, questions

    parser.add_argument("run", metavar="RUN", help="a folder or file in any known format")
    asked = parser.add_subparsers(dest="question", metavar="QUESTION", required=True)
    for name, question in questions().items():
        doc = (question.__doc__ or "").strip()
        sub = asked.add_parser(
            name, help=told(doc.partition("\n")[0]), description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        for option in options_of(question):
            sub.add_argument(f"--{option.name}", type=option.read, default=option.default, required=option.required)
        sub.add_argument("--top", type=int, metavar="N", help=f"the first N rows (default: {TOP} in a terminal, else all)")
        form = sub.add_mutually_exclusive_group()
        form.add_argument("--json", action="store_true", help="print one JSON document")
        form.add_argument("--csv", action="store_true", help="print the rows as CSV, units in the names of columns")


def _run(arguments: argparse.Namespace) -> int:
    from perfkit.face.cli._answers import print_answer
    from perfkit.face.cli._questions import options_of, questions
    from perfkit.record.load import load

    question = questions()[arguments.question]
    with Progress(sys.stderr) as progress:
        run = load(arguments.run, progress=progress)
        answer = question(run, **{option.name: getattr(arguments, option.name) for option in options_of(question)})
    form: Literal["text", "json", "csv"] = "json" if arguments.json else "csv" if arguments.csv else "text"
    top = arguments.top if arguments.top is not None else TOP if form == "text" else None
    print_answer(answer, sys.stdout, run=run.name, question=arguments.question, form=form, top=top)
    return 0


COMMAND = Command(name="ask", add=_add, run=_run)
