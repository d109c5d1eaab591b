"""The command line: parse, call, print. Every public module here is one command, and every command is one call into the package.

Exit codes: 0 done, 1 something was found that the user must act on, 2 the input or the call is wrong. Errors go to standard error
with all problems; a traceback shows only with `--debug`.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import traceback
from collections.abc import Callable, Sequence

from perfkit.core.discover import constants
from perfkit.core.errors import PerfkitError
from perfkit.face.cli._command import Command


def commands() -> tuple[Command, ...]:
    """All commands, by name."""
    return tuple(constants("perfkit.face.cli", "COMMAND"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code."""
    words = sys.argv[1:] if argv is None else argv
    arguments = _parser(next((word for word in words if not word.startswith("-")), "")).parse_args(words)
    run: Callable[[argparse.Namespace], int] = arguments.run_command
    try:
        return run(arguments)
    except PerfkitError as error:
        if arguments.debug:
            traceback.print_exc()
        print(f"perfkit: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except Exception as error:
        if arguments.debug:
            raise
        print(
            f"perfkit: unexpected {type(error).__name__}: {error}; this is a bug, run again with --debug to see where",
            file=sys.stderr,
        )
        return 2


def _parser(wanted: str) -> argparse.ArgumentParser:
    """The parser of all commands; only the wanted one declares its arguments, as that may import what it documents."""
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser = argparse.ArgumentParser(prog="perfkit", description="Predict, measure and tune the training of large models.")
    from perfkit import __version__

    parser.add_argument("--version", action="version", version=f"perfkit {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in commands():
        doc = (importlib.import_module(command.run.__module__).__doc__ or "").strip()
        summary, _, example = doc.partition("\n")
        sub = subparsers.add_parser(
            command.name,
            parents=[shared],
            help=summary,
            description=summary,
            epilog=example.strip() or None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if command.name == wanted:
            command.add(sub)
        sub.set_defaults(run_command=command.run)
    return parser
