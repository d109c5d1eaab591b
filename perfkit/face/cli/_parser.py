"""The parser of all commands: help in the order of a manual page, and errors that name what was meant.

A module's docstring is the manual of its command: a line that says what it does, what else is to say, and its examples after
"example:", one a line; a line of more than one call is one example.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from perfkit.core import texts
from perfkit.core.texts import told
from perfkit.face.cli._command import Command
from perfkit.face.cli._screen import Styled, say

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

_Action = TypeVar("_Action", bound=argparse.Action)
EXIT_CODES = """\
  0 done; 1 something was found to act on (lint, compare --fail-above); 2 the input or the call is wrong, and standard error
  says all of it"""
MENDED_BY = {"hardware is not named": "--device"}
_MARK = "example:"
_CHOICES = re.compile(r"invalid choice: '?(.*?)'? \(choose from (.*)\)")


@dataclass(frozen=True, slots=True)
class Manual:
    """What the docstring of a command says."""

    summary: str
    description: str
    examples: tuple[str, ...]


def manual_of(command: Command) -> Manual:
    """The manual of a command."""
    doc = (importlib.import_module(command.run.__module__).__doc__ or "").strip()
    text, _, examples = doc.partition(_MARK)
    summary, _, description = text.strip().partition("\n")
    return Manual(summary, description.strip(), tuple(line.strip() for line in examples.strip().split("\n")))


def parse(words: Sequence[str], commands: Sequence[Command]) -> argparse.Namespace:
    """The arguments of one command; a call that is wrong ends here with exit code 2 and says what was meant."""
    parser = parser_of(commands, [next((word for word in words if not word.startswith("-")), "")])
    arguments, unknown = parser.parse_known_args(words)
    if unknown:
        _used(parser, words).refuse(unknown)
    return arguments


def parser_of(commands: Sequence[Command], wanted: Collection[str]) -> Parser:
    """The parser of all commands; only the wanted ones declare their arguments, as that may import what it documents."""
    from perfkit import __version__

    shared = Parser(add_help=False)
    shared.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser = Parser(prog="perfkit", description=told("Predict, measure and tune the training of large models."))
    more = ("perfkit COMMAND --help says more about a command, with examples.", "perfkit completion SHELL completes words.")
    parser.epilog = "\n".join(map(told, more))
    parser.add_argument("--version", action="version", version=f"perfkit {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in commands:
        manual = manual_of(command)
        summary, description = told(manual.summary), told(manual.description)
        sub = subparsers.add_parser(command.name, parents=[shared], help=summary)
        sub.description = "\n\n".join(part for part in (f"{sub.prog} - {summary}", description) if part)
        sub.epilog = "\n".join(["examples:", *(f"  {line}" for line in manual.examples), "", "exit codes:", told(EXIT_CODES)])
        if command.name in wanted:
            command.add(sub)
        mends = {lack: option for lack, option in MENDED_BY.items() if option in sub.options()}
        sub.set_defaults(run_command=command.run, mends=mends)
    return parser


class Parser(argparse.ArgumentParser):
    """An argparse parser that prints through the screen, in the language of the process, and names the nearest word."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"formatter_class": argparse.RawDescriptionHelpFormatter, **options})
        self.color = False  # Python 3.14 colours help by itself; here that is the screen's

    def _add_action(self, action: _Action) -> _Action:
        """Arguments come by here, those of groups too: argparse lists its actions nowhere in public."""
        action.help = action.help and told(action.help)
        self.known = (*getattr(self, "known", ()), action)
        return super()._add_action(action)

    def add_subparsers(self, **options: Any) -> Any:
        """Declare words of which one follows."""
        found = super().add_subparsers(**options)
        self.known = (*self.known, found)
        return found

    def options(self) -> dict[str, argparse.Action]:
        """The arguments that begin with a dash, by every spelling."""
        return {spelling: action for action in self.known for spelling in action.option_strings}

    def parts(self) -> dict[str, Parser]:
        """The parsers of the words that may follow, by word; empty where none do."""
        choices = [action.choices for action in self.known if isinstance(action.choices, Mapping)]
        return {word: found for each in choices for word, found in each.items() if isinstance(found, Parser)}

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Print the help on standard output, its headings bold."""
        for line in self.format_help().rstrip("\n").split("\n"):
            heading = re.fullmatch(r"\w[\w ]*:", line)
            say(sys.stdout, Styled(told(line), "bold") if heading else told(line) if line.startswith("usage: ") else line)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and what was meant; exit code 2."""
        chosen = _CHOICES.search(message)
        near = difflib.get_close_matches(chosen[1], re.findall(r"[\w.-]+", chosen[2]), 1) if chosen else []
        self._end([_meant(message, near)])

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Say which words the command does not take, each with the nearest option."""
        problems = []
        for word in unknown:
            name = word.partition("=")[0]
            near = difflib.get_close_matches(name, self.options(), 1) if name.startswith("-") else []
            form = "{program} takes no option {name}" if word.startswith("-") else "{program} takes no argument {name}"
            problems.append(_meant(texts.say(form, program=self.prog, name=name), near))
        self._end(problems)

    def _end(self, problems: Sequence[str]) -> NoReturn:
        for line in told(self.format_usage()).rstrip("\n").split("\n"):
            say(sys.stderr, line, wrapped=False)
        for problem in problems:
            say(sys.stderr, Styled("perfkit: ", "red"), problem)
        say(sys.stderr, texts.say("{program} --help says more", program=self.prog))
        raise SystemExit(2)


def _meant(problem: str, near: Sequence[str]) -> str:
    return told(texts.say("{problem}; did you mean {near}", problem=problem, near=f"{near[0]}?")) if near else told(problem)


def _used(parser: Parser, words: Sequence[str]) -> Parser:
    """The parser of the command, question or action that the words name."""
    for word in words:
        parser = parser.parts().get(word, parser)
    return parser
