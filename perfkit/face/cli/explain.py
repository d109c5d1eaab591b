"""Say what a pasted piece means: keys, exports, launch lines, log lines, graph lines, tables, formulas, in any mixture.

example: perfkit explain - --plan pretrain.yaml < pasted.txt
"""

from __future__ import annotations

import argparse
import sys

from perfkit.face.cli._command import Command
from perfkit.face.cli._document import print_document
from perfkit.face.cli._screen import say


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="a text file, or - for standard input")
    parser.add_argument("--plan", metavar="CONFIG", help="configuration of the project, in whose light the piece is read")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _run(arguments: argparse.Namespace) -> int:
    from perfkit.config.dialects.read import load_document
    from perfkit.explain.fragments import explain_fragment
    from perfkit.predict.reading import read_config

    document = load_document(arguments.path)
    plan = read_config(arguments.plan) if arguments.plan else None
    found = explain_fragment(document.text, plan, name=document.name)
    if arguments.json:
        print_document(found.to_dict())
    else:
        for line in found.text.rstrip("\n").split("\n"):
            say(sys.stdout, line)
    return 1 if any(problem.severity != "information" for problem in found.problems) else 0


COMMAND = Command(name="explain", add=_add, run=_run)
