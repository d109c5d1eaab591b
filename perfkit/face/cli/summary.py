"""Per rank and step: where the time went.

example: perfkit summary profile/ --step 50
         perfkit summary profile/ --group guide --json
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from perfkit.face.cli._command import Command
from perfkit.face.cli._document import kept_document, print_document
from perfkit.face.cli._progress import Progress


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a folder or file in any known format")
    parser.add_argument("--step", type=int, help="only this step")
    parser.add_argument("--group", choices=("guide", "pynative"), help="the time in the terms of the tuning guides")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _run(arguments: argparse.Namespace) -> int:
    question = f"summary, step {arguments.step}, group {arguments.group}"
    summary = kept_document(arguments.run, question, lambda: _summary(arguments), as_json=arguments.json)
    if arguments.json:
        print_document(summary)
    else:
        from perfkit.face.cli._summaries import print_summary

        print_summary(summary, sys.stdout)
    return 0


def _summary(arguments: argparse.Namespace) -> dict[str, Any]:
    from perfkit.explain.summary import summarize
    from perfkit.record.load import load

    with Progress(sys.stderr) as progress:
        return summarize(load(arguments.run, progress=progress), step=arguments.step, group=arguments.group)


COMMAND = Command(name="summary", add=_add, run=_run)
