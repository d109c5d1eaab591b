"""Serve the guided pages as an app on 127.0.0.1, or open them in JupyterLab, with a project or any file or folder open.

example: perfkit serve my-project --port 8866
         perfkit serve profile/            the verdict on a recording, in a project that is made for it
         perfkit serve before/ after/      two recordings beside each other
         perfkit serve pretrain.yaml       what a configuration costs
"""

from __future__ import annotations

import argparse

from perfkit.face.cli._command import Command
from perfkit.face.cli._serving import add_serving, serve_with


def _add(parser: argparse.ArgumentParser) -> None:
    add_serving(parser)
    parser.add_argument("--open", action="store_true", help="open the first page in a browser")


def _run(arguments: argparse.Namespace) -> int:
    return serve_with(arguments, open_browser=arguments.open)


COMMAND = Command(name="serve", add=_add, run=_run)
