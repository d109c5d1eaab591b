"""Run a page from top to bottom without a browser, on a recording of your own, as one HTML page that requests nothing.

example: perfkit run-notebook 11 --run profile/ --out report.html
"""

from __future__ import annotations

import argparse
import sys

from perfkit.core import texts
from perfkit.core.errors import InputError
from perfkit.face.cli._command import Command
from perfkit.face.cli._screen import say


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("page", metavar="PAGE", help="the number of a page (11), its name, or a notebook file")
    parser.add_argument("--run", metavar="PATH", help="the recording or log: sets the parameter `path` of the page")
    parser.add_argument("--config", metavar="PATH", dest="run", help="the configuration: sets `path` of a page about plans")
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="another parameter; repeatable")
    parser.add_argument("--out", metavar="FILE", required=True, help="where to write the page; an existing file is replaced")


def _run(arguments: argparse.Namespace) -> int:
    from perfkit.core.units import format_bytes
    from perfkit.face.report import save_page
    from perfkit.face.report.notebook import run_notebook

    wrong = [item for item in arguments.set if "=" not in item]
    if wrong:
        raise InputError("run-notebook", [f"--set {item} needs NAME=VALUE" for item in wrong])
    parameters = {name: value for name, _, value in (item.partition("=") for item in arguments.set)}
    if arguments.run is not None:
        parameters["path"] = arguments.run
    finished = run_notebook(arguments.page, parameters)
    save_page(finished.page, arguments.out)
    say(sys.stdout, f"{arguments.out}: {format_bytes(len(finished.page.encode()))}")
    for title in finished.empty:
        say(sys.stderr, texts.say("nothing to show: {title}", title=title))
    for title in finished.failed:
        say(sys.stderr, texts.say("failed: {title}; the page says why", title=title))
    return 1 if finished.failed else 0


COMMAND = Command(name="run-notebook", add=_add, run=_run)
