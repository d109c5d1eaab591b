"""What is wrong with a run: findings by cost, what is healthy, and what was not measured.

example: perfkit diagnose profile/
         perfkit diagnose profile/ --baseline profile_of_last_week/ --json
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
    parser.add_argument("--baseline", metavar="RUN", help="an earlier run of the same job: also tells what became slower")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _run(arguments: argparse.Namespace) -> int:
    def make() -> dict[str, Any]:
        return _document(arguments)

    document = make() if arguments.baseline else kept_document(arguments.run, "diagnose", make, as_json=arguments.json)
    if arguments.json:
        print_document(document)
    else:
        from perfkit.face.cli._findings import print_diagnosis

        print_diagnosis(document, sys.stdout)
    return 0


def _document(arguments: argparse.Namespace) -> dict[str, Any]:
    from perfkit.explain.diagnose import diagnose, to_dict
    from perfkit.record.load import load

    with Progress(sys.stderr) as progress:
        run = load(arguments.run, progress=progress)
        baseline = load(arguments.baseline, progress=progress) if arguments.baseline else None
    return to_dict(diagnose(run, baseline))


COMMAND = Command(name="diagnose", add=_add, run=_run)
