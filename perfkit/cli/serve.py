"""Serve the guided pages as an app on 127.0.0.1, or open them in JupyterLab.

example: perfkit serve my-project --port 8866
"""

from __future__ import annotations

import argparse

from perfkit.cli._command import Command


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", nargs="?", default=".", help="the tuning project (default: here)")
    parser.add_argument("--port", type=int, default=8866, help="port (default: 8866)")
    parser.add_argument("--lab", action="store_true", help="open JupyterLab, with the code visible")
    parser.add_argument("--read-only", action="store_true", help="never write to the project")


def _run(arguments: argparse.Namespace) -> int:
    from perfkit.app.server import serve

    serve(arguments.folder, port=arguments.port, lab=arguments.lab, read_only=arguments.read_only)
    return 0


COMMAND = Command(name="serve", add=_add, run=_run)
