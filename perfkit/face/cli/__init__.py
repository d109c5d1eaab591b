"""The command line: parse, call, print. Every public module here is one command, and every command is one call into the package.

Exit codes: 0 done, 1 something was found that the user must act on, 2 the input or the call is wrong. Errors go to standard error
with all problems; a traceback shows only with `--debug`.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence

from perfkit.core import texts
from perfkit.core.discover import constants
from perfkit.core.errors import InputError, PerfkitError
from perfkit.core.texts import told
from perfkit.face.cli._command import Command
from perfkit.face.cli._parser import parse
from perfkit.face.cli._screen import Styled, say


def commands() -> tuple[Command, ...]:
    """All commands, by name."""
    return tuple(constants("perfkit.face.cli", "COMMAND"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code."""
    try:
        return _done(sys.argv[1:] if argv is None else list(argv))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read has enough, also of a help text
        sys.stderr.close()
        return 0


def _done(words: Sequence[str]) -> int:
    arguments = parse(words, commands())
    run: Callable[[argparse.Namespace], int] = arguments.run_command
    try:
        return run(arguments)
    except PerfkitError as error:
        if arguments.debug:
            traceback.print_exc()
        _say_error(_message(error, arguments.mends))
        return 2
    except BrokenPipeError:
        raise
    except Exception as error:
        if arguments.debug:
            raise
        form = "unexpected {kind}: {error}; this is a bug, run again with --debug to see where"
        _say_error(told(texts.say(form, kind=type(error).__name__, error=str(error))))
        return 2


def _message(error: PerfkitError, mends: Mapping[str, str]) -> str:
    """What an error says, in the language of pages; every line is told by itself."""
    if not isinstance(error, InputError):
        return "\n".join(_with_option(line, mends) for line in str(error).split("\n"))
    first = str(error).partition("\n  - ")[0]
    return "\n  - ".join(_with_option(line, mends) for line in (first, *error.problems))


def _with_option(line: str, mends: Mapping[str, str]) -> str:
    """What calculations that know no command line miss, with the option of this command that gives it."""
    options = (texts.say("; give it with {option}", option=mends[lack]) for lack in mends if lack in line)
    return told(line) + "".join(map(told, options))


def _say_error(message: str) -> None:
    first, *others = message.split("\n")
    say(sys.stderr, Styled("perfkit: ", "red"), first)
    for line in others:
        say(sys.stderr, line)
