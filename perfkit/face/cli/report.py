"""Write a run or a tuning project as one HTML page that requests nothing.

example: perfkit report profile/ --out report.html
"""

from __future__ import annotations

import argparse
import sys

from perfkit.face.cli._command import Command
from perfkit.face.cli._progress import Progress
from perfkit.face.cli._screen import say


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="RUN|FOLDER", help="a recording in any known format, or the folder of a tuning project")
    parser.add_argument("--out", metavar="FILE", required=True, help="where to write the page; an existing file is replaced")


def _run(arguments: argparse.Namespace) -> int:
    from perfkit.core.units import format_bytes
    from perfkit.face.report import report

    with Progress(sys.stderr) as progress:
        page = report(arguments.source, arguments.out, progress=progress)
    say(sys.stdout, f"{arguments.out}: {format_bytes(len(page.encode()))}")
    return 0


COMMAND = Command(name="report", add=_add, run=_run)
