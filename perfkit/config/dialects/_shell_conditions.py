"""Conditions of a launch script: `[ ... ]`, `[[ ... ]]`, `((...))` and what joins them, as far as the file decides them.

A variable that nothing sets is empty, as in a shell; one that an undecided branch set, an argument of the script, or what a command
prints leaves a condition open.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfkit.config.dialects._shell_sums import computed
from perfkit.config.dialects._shell_syntax import Both, Command, Statement, Word
from perfkit.config.dialects._shell_words import Value, expanded, is_known, unquoted

_SIGNS = {"-eq": "==", "-ne": "!=", "-lt": "<", "-le": "<=", "-gt": ">", "-ge": ">=", "<": "<", ">": ">"}
_JOINED = (("||", False), ("-o", False), ("&&", True), ("-a", True))
"""What joins two tests, the weakest first, and whether it wants both."""
_TESTS = frozenset({"[", "[[", "test", "!", "command", "which", "type", "hash", "grep"})
"""What begins a statement that asks; the last five ask for something that is not in the file."""
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")


def is_test(statement: Statement) -> bool:
    """Whether a statement asks something of texts and numbers."""
    first = statement.words[0].text if isinstance(statement, Command) else ""
    return first in _TESTS or first.startswith("((")


def emptied(text: str) -> str:
    """A text in which variables that nothing set are empty."""
    return _VARIABLE.sub("", text)


def line_of(statement: Statement) -> int:
    """Where a statement begins; 0 for what is no command."""
    return statement.words[0].line if isinstance(statement, Command) else 0


def length_of(statement: Statement) -> int:
    """Characters of a condition."""
    if isinstance(statement, Both):
        return length_of(statement.left) + length_of(statement.right)
    return sum(len(word.text) for word in statement.words) if isinstance(statement, Command) else 0


@dataclass(frozen=True, slots=True)
class Conditions:
    """What holds with these variables; `undecided` are those that may have more than one value."""

    variables: Mapping[str, Value]
    undecided: set[str]

    def tested(self, statement: Statement) -> bool | None:
        """Whether a condition holds; None if that is not known here."""
        if isinstance(statement, Both):
            return _joined(self.tested(statement.left), self.tested(statement.right), statement.wanted)
        if not isinstance(statement, Command):
            return None
        words = list(statement.words)
        if words[0].text == "!":
            holds = self.tested(Command(tuple(words[1:]))) if len(words) > 1 else None
            return None if holds is None else not holds
        first = words[0].text
        if first in ("true", "false"):
            return first == "true"
        if first.startswith("((") and first.endswith("))"):
            value = self._number(f"$({first})")
            return None if value is None else bool(value)
        if first in ("[", "[[", "test"):
            inner = words[1:] if first == "test" else words[1:-1]
            return self._test(inner)
        return None

    def _test(self, words: Sequence[Word]) -> bool | None:
        texts = [word.text for word in words]
        for sign, wanted in _JOINED:
            if sign in texts:
                at = texts.index(sign)
                return _joined(self._test(words[:at]), self._test(words[at + 1 :]), wanted)
        if texts[:1] == ["!"]:
            holds = self._test(words[1:])
            return None if holds is None else not holds
        values = [unquoted(word.text, self._put_in) for word in words]
        if not all(map(self.are_decided, values)):
            return None
        values = [emptied(value) for value in values]
        match values:
            case [value] | ["-n", value]:
                return bool(value)
            case ["-z", value]:
                return not value
            case [left_text, "=" | "==", right_text]:
                return fnmatch.fnmatchcase(left_text, right_text) if words[2].text == right_text else left_text == right_text
            case [left_text, "!=", right_text]:
                return left_text != right_text
            case [left_text, sign, right_text] if sign in _SIGNS:
                number = computed(f"({left_text}){_SIGNS[sign]}({right_text})")
                return None if number is None else bool(number)
        return None

    def _number(self, text: str) -> int | None:
        value = self._put_in(text)
        return int(value) if re.fullmatch(r"-?\d+", value) else None

    def are_decided(self, text: str) -> bool:
        """Whether all that is left in a text are variables that nothing sets, which are empty."""
        if is_known(text):
            return True
        named = {plain or braced for plain, braced in _VARIABLE.findall(text)}
        return is_known(emptied(text)) and not self.undecided & named

    def _put_in(self, text: str) -> str:
        return expanded(text, self.variables)


def _joined(left: bool | None, right: bool | None, both: bool) -> bool | None:
    """Whether both hold, or one does; one alone may decide it."""
    if (not both) in (left, right):
        return not both
    return None if left is None or right is None else both
