"""Check configurations, environments, user code and logs for what is wrong or slow, without running anything.

example: perfkit lint pretrain.yaml run.sh train.py
"""

from __future__ import annotations

import argparse
import json
import sys

from perfkit.face.cli._command import Command
from perfkit.face.cli._progress import Progress


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", metavar="PATH", nargs="+", help="files and folders; a folder is searched for all known kinds")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_const", dest="format", const="json", help="print one JSON document")
    form.add_argument("--format", choices=("text", "json", "sarif"), help="default: text")
    parser.set_defaults(format="text")


def _run(arguments: argparse.Namespace) -> int:
    from perfkit.config.lint import lint

    with Progress(sys.stderr) as progress:
        report = lint(*arguments.paths, progress=progress)
    if arguments.format == "json":
        print(json.dumps(report.to_dict(), ensure_ascii=False))
    elif arguments.format == "sarif":
        from perfkit import __version__
        from perfkit.config.lint.sarif import to_sarif

        print(json.dumps(to_sarif(report, __version__), ensure_ascii=False))
    else:
        from perfkit.face.cli._problems import print_problems

        print_problems(report, sys.stdout)
    return 1 if report.count("error") or report.count("warning") else 0


COMMAND = Command(name="lint", add=_add, run=_run)
