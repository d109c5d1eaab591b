"""Print the script that completes commands, options, devices and files in a shell.

Put its line into the shell's start file, such as ~/.bashrc; scripts know the commands of this version, so print them anew after an
upgrade.

example: perfkit completion bash > perfkit.bash && source perfkit.bash
         perfkit completion zsh > _perfkit.zsh
         perfkit completion fish > perfkit.fish
"""

from __future__ import annotations

import argparse
import sys

from perfkit.face.cli._command import Command
from perfkit.face.cli._completion import SHELLS, completion
from perfkit.face.cli._screen import write_text


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or fish")


def _run(arguments: argparse.Namespace) -> int:
    from perfkit.face.cli import commands
    from perfkit.face.cli._parser import parser_of

    known = commands()
    write_text(sys.stdout, completion(parser_of(known, [command.name for command in known]), arguments.shell))
    return 0


COMMAND = Command(name="completion", add=_add, run=_run)
