"""Check configurations, environments, user code and logs for what is wrong or slow, without running anything.

example: perfkit lint pretrain.yaml run.sh train.py
         perfkit lint - --plan pretrain.yaml < pasted.txt
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import TYPE_CHECKING

from perfkit.face.cli._command import Command
from perfkit.face.cli._document import print_document
from perfkit.face.cli._progress import Progress

if TYPE_CHECKING:
    from perfkit.config.lint import LintReport

STANDARD_INPUT = "-"


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", metavar="PATH", nargs="+", help="files and folders; - is a pasted piece on standard input")
    parser.add_argument("--plan", metavar="CONFIG", help="configuration of the project, in whose light a pasted piece is checked")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_const", dest="format", const="json", help="print one JSON document")
    form.add_argument("--format", choices=("text", "json", "sarif"), help="default: text")
    parser.set_defaults(format="text")


def _run(arguments: argparse.Namespace) -> int:
    from perfkit.config.lint import lint

    if arguments.paths == [STANDARD_INPUT]:
        report = _pasted(arguments.plan)
    else:
        with Progress(sys.stderr) as progress:
            report = lint(*arguments.paths, progress=progress)
    if arguments.format == "json":
        print_document(report.to_dict())
    elif arguments.format == "sarif":
        from perfkit import __version__
        from perfkit.config.lint.sarif import to_sarif

        print_document(to_sarif(report, __version__))
    else:
        from perfkit.face.cli._problems import print_problems

        print_problems(report, sys.stdout)
    return 1 if report.count("error") or report.count("warning") else 0


def _pasted(plan: str | None) -> LintReport:
    """The problems of a piece of text of any kind."""
    from perfkit.config.dialects.read import load_document
    from perfkit.config.lint import LintReport
    from perfkit.explain.fragments import explain_fragment
    from perfkit.predict.reading import read_config

    document = load_document(STANDARD_INPUT)
    found = explain_fragment(document.text, read_config(plan) if plan else None, name=document.name)
    kinds = Counter(part.kind for part in found.parts)
    unknown = ((document.name, "is nothing that perfkit knows"),) if not found.parts else ()
    return LintReport(problems=found.problems, checked=dict(kinds), skipped=unknown)


COMMAND = Command(name="lint", add=_add, run=_run)
