"""Open a recording, a log, a configuration, a graph dump or a project in the browser: `perfkit serve` with `--open`.

example: perfkit open profile/
         perfkit open before/ after/
"""

from __future__ import annotations

import argparse

from perfkit.face.cli._command import Command
from perfkit.face.cli._serving import add_serving, serve_with


def _run(arguments: argparse.Namespace) -> int:
    return serve_with(arguments, open_browser=True)


COMMAND = Command(name="open", add=add_serving, run=_run)
