"""Write the sample project: six rounds of tuning Llama2-13B, with real configs, a profile and a log.

example: perfkit demo my-demo && perfkit serve my-demo
"""

from __future__ import annotations

import argparse
import sys

from perfkit.core import texts
from perfkit.face.cli._command import Command
from perfkit.face.cli._screen import say


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", metavar="FOLDER", nargs="?", default="perfkit-demo", help="where to write it (default: perfkit-demo)"
    )


def _run(arguments: argparse.Namespace) -> int:
    from perfkit.project.sample import demo

    project = demo(arguments.folder)
    form = "sample project written to {folder}; look at it with: perfkit serve {given}"
    say(sys.stdout, texts.say(form, folder=str(project.folder), given=arguments.folder))
    return 0


COMMAND = Command(name="demo", add=_add, run=_run)
