"""The syntax of a launch script: its commands, branches, choices and loops, with the line that each begins on.

As much of the POSIX shell's grammar and Bash's as launch scripts use. Words keep their quotes and expansions as written. What is
out of place is taken as it comes: a flat list of options, or a piece cut out of a script, is read as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from perfkit.config.dialects._shell_given import GivenTexts
from perfkit.core.errors import InputError

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
SPACE = frozenset(" \t\r")
CONTINUED = ("\\\n", "\\\r\n")
MAX_DEPTH = 40
_OPERATOR = re.compile(r"&&|\|\||;;&|;&|;;|[;&|()\n]")
_REDIRECTION = re.compile(r"(?:\d+|&)?(?:>>|>\||>&|<<<|<&|<>|[<>])(?:&?[\d-](?![\w./]))?")
_BRACKETS = {"{": re.compile(r"[{}]"), "(": re.compile(r"[()]")}
_PIECE_ENDS = frozenset({";", "&", "\n"})
_PLAIN = re.compile(r"[^\s;&|()'\"\\`$<>]*")
"""What ends no word, opens no quote and is replaced by nothing: passed over at once, for scripts are mostly that."""
_QUOTED = re.compile(r'[^"\\$]*')


@dataclass(frozen=True, slots=True)
class Word:
    """A word as written, or the words of an array (`NAME=(a b)`: `text` is `NAME=`)."""

    text: str
    line: int
    items: tuple[Word, ...] | None = None
    is_operator: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Both:
    """`left && right` (`wanted`) or `left || right`."""

    left: Statement
    right: Statement
    wanted: bool


@dataclass(frozen=True, slots=True)
class Branches:
    """`if`: the arms are conditions with what follows them, the last may have none."""

    line: int
    arms: tuple[tuple[Block, Block], ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """`case`: what is looked at, and patterns with what follows them."""

    line: int
    word: Word
    arms: tuple[tuple[tuple[Word, ...], Block], ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """`for name in words`, or `while condition` and `until` (not `wanted`) with no name."""

    line: int
    name: str
    words: tuple[Word, ...]
    condition: Block
    body: Block
    wanted: bool = True


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    body: Block


@dataclass(frozen=True, slots=True)
class Group:
    """`{ ...; }` or `( ... )`."""

    body: Block


Statement = Command | Both | Branches | Choice | Loop | Function | Group
Block = tuple[Statement, ...]


def parse_script(text: str, name: str) -> Block:
    """The statements of a script. Raises InputError if a quote is never closed."""
    return _Parser(list(_tokens(text, name))).script()


def closing_bracket(text: str, start: int) -> int:
    """Behind the bracket that closes the one at `start`; the end of the text if none does."""
    opening, depth = text[start], 0
    for found in _BRACKETS[opening].finditer(text, start):
        depth += 1 if found[0] == opening else -1
        if depth == 0:
            return found.end()
    return len(text)


def expansion_end(text: str, start: int) -> int:
    """Behind what stands at `start` and is replaced as one: `${...}`, `$(...)` or a command between backquotes; else `start`."""
    if text.startswith(("${", "$("), start):
        return closing_bracket(text, start + 1)
    if text.startswith("`", start):
        end = text.find("`", start + 1)
        return len(text) if end < 0 else end + 1
    return start


def pieces(text: str, line: int) -> Iterator[Word]:
    """The words that an unquoted text is split into where it is used, each with its line."""
    position, start, counted = 0, -1, 0
    while position <= len(text):
        if (plain := _behind(_PLAIN, text, position)) > position:
            position, start = plain, position if start < 0 else start
        char = text[position : position + 1]
        if not char or char in " \t\r\n" or text.startswith(CONTINUED, position):
            if start >= 0:
                line += text.count("\n", counted, start)
                counted = start
                yield Word(text[start:position], line)
                start = -1
            position += 1
            continue
        start = position if start < 0 else start
        position = max(expansion_end(text, position), position + 1)


def _tokens(text: str, name: str) -> Iterator[Word]:
    position, line = 0, 1
    given = GivenTexts(text)
    while position < len(text):
        start = position
        if text[position] in SPACE:
            position += 1
        elif text.startswith(CONTINUED, position):
            position = text.index("\n", position) + 1
        elif text[position] == "#":
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
        elif stop := given.behind(position):
            position = stop
        elif found := _REDIRECTION.match(text, position):
            yield Word(found[0], line, is_operator=True)
            position = found.end()
        elif text.startswith("((", position):
            position = closing_bracket(text, position)
            yield Word(text[start:position], line)
        elif found := _OPERATOR.match(text, position):
            yield Word(found[0], line, is_operator=True)
            position = found.end()
        else:
            position = _word_end(text, position, line, name)
            yield Word(text[start:position], line)
        line += text.count("\n", start, position)


def _word_end(text: str, start: int, line: int, name: str) -> int:
    position = start
    while (
        (position := _behind(_PLAIN, text, position)) < len(text)
        and text[position] not in SPACE
        and not _OPERATOR.match(text, position)
    ):
        char = text[position]
        if char in "'\"":
            end = _closing_quote(text, position)
            if end < 0:
                raise InputError(name, [f"line {line + text.count(chr(10), start, position)}: the quote {char} is never closed"])
            position = end + 1
        elif text.startswith(CONTINUED, position):
            break
        elif char == "\\":
            position += 2
        elif char == "`" and text.find("`", position + 1) < 0:
            raise InputError(name, [f"line {line + text.count(chr(10), start, position)}: the quote ` is never closed"])
        elif char in "<>" and position > start:
            break
        else:
            position = max(expansion_end(text, position), position + 1)
    return max(min(position, len(text)), start + 1)


def _closing_quote(text: str, start: int) -> int:
    if text[start] == "'":
        return text.find("'", start + 1)
    position = start + 1
    while (position := _behind(_QUOTED, text, position)) < len(text) and text[position] != '"':
        if text.startswith("$(", position):
            position = closing_bracket(text, position + 1)
        else:
            position += 2 if text[position] == "\\" else 1
    return position if position < len(text) else text.find('"', start + 1)


def _behind(run: re.Pattern[str], text: str, start: int) -> int:
    """Behind the longest run of such characters from `start` on, which may be none."""
    return found.end() if (found := run.match(text, start)) else start


class _Parser:
    """Recursive descent over the tokens of a script."""

    def __init__(self, tokens: list[Word]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def script(self) -> Block:
        found: list[Statement] = []
        while self._at < len(self._tokens):
            found += self._block(frozenset())
            self._at += 1  # a closing word that nothing opened
        return tuple(found)

    def _next(self) -> Word | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _takes(self, *texts: str) -> bool:
        token = self._next()
        if token is None or token.text not in texts:
            return False
        self._at += 1
        return True

    def _line(self) -> int:
        return self._tokens[min(self._at, len(self._tokens) - 1)].line

    def _block(self, ends: frozenset[str]) -> Block:
        """Statements up to a word of `ends`, which is left standing."""
        found: list[Statement] = []
        self._depth += 1
        while (token := self._next()) is not None and token.text not in ends:
            if token.is_operator and token.text in (")", ";;", ";&", ";;&"):
                break
            before = self._at
            if (statement := self._chain(ends)) is not None:
                found.append(statement)
            self._at += self._at == before  # what nothing here takes is passed over
        self._depth -= 1
        return tuple(found)

    def _chain(self, ends: frozenset[str]) -> Statement | None:
        left = self._statement(ends)
        while (token := self._next()) is not None and token.is_operator and token.text in ("&&", "||"):
            self._at += 1
            while self._takes("\n"):
                continue
            right = self._statement(ends)
            left = Both(left, right, token.text == "&&") if left and right else left or right
        return left

    def _statement(self, ends: frozenset[str]) -> Statement | None:
        token = self._next()
        if token is None or token.text in ends:
            return None
        if self._depth < MAX_DEPTH:
            if token.is_operator and token.text == "(":
                self._at += 1
                body = self._block(frozenset({")"}))
                self._takes(")")
                return Group(body)
            read = {"if": self._branches, "case": self._choice, "{": self._group, "function": self._function}.get(token.text)
            if read is not None:
                self._at += 1
                return read()
            if token.text in ("for", "select", "while", "until"):
                self._at += 1
                return self._loop(token.text)
        return self._command()

    def _command(self) -> Statement | None:
        words: list[Word] = []
        first = self._next()
        in_test = first is not None and first.text == "[["
        while (token := self._next()) is not None:
            if token.is_operator:
                if token.text == "(" and words and words[-1].text.endswith("=") and ASSIGNMENT.fullmatch(words[-1].text):
                    words[-1] = self._array(words[-1])
                    continue
                if token.text == "(" and len(words) == 1 and self._is_at(1, ")"):
                    self._at += 2
                    return self._body_of(words[0].text)
                if in_test and token.text != "\n":
                    words.append(Word(token.text, token.line))
                elif _REDIRECTION.fullmatch(token.text):
                    self._skip_target(token.text)
                else:
                    break
            else:
                words.append(token)
                in_test = in_test and token.text != "]]"
            self._at += 1
        token = self._next()
        if token is not None and token.is_operator and (token.text in _PIECE_ENDS or token.text == "|"):
            self._at += 1
        return Command(tuple(words)) if words else None

    def _is_at(self, ahead: int, text: str) -> bool:
        return self._at + ahead < len(self._tokens) and self._tokens[self._at + ahead].text == text

    def _skip_target(self, redirection: str) -> None:
        following = self._tokens[self._at + 1] if self._at + 1 < len(self._tokens) else None
        if not redirection[-1].isdigit() and redirection[-1] != "-" and following is not None and not following.is_operator:
            self._at += 1

    def _array(self, name: Word) -> Word:
        self._at += 1
        items: list[Word] = []
        while (token := self._next()) is not None and not (token.is_operator and token.text == ")"):
            if not token.is_operator:
                items.append(token)
            self._at += 1
        self._at += 1
        return Word(name.text, name.line, tuple(items))

    def _until(self, *ends: str) -> Block:
        return self._block(frozenset(ends))

    def _branches(self) -> Statement:
        line, arms = self._line(), []
        while True:
            condition = self._until("then", "fi")
            self._takes("then")
            arms.append((condition, self._until("elif", "else", "fi")))
            if not self._takes("elif"):
                break
        if self._takes("else"):
            arms.append(((), self._until("fi")))
        self._takes("fi")
        return Branches(line, tuple(arms))

    def _choice(self) -> Statement:
        word = self._next() or Word("", 0)
        self._at += 1
        while self._takes("\n", "in"):
            continue
        arms = []
        while (token := self._next()) is not None and token.text != "esac":
            patterns: list[Word] = []
            while (token := self._next()) is not None and not (token.is_operator and token.text == ")"):
                if not token.is_operator:
                    patterns.append(token)
                self._at += 1
            self._at += 1
            arms.append((tuple(patterns), self._until("esac")))
            while self._takes(";;", ";&", ";;&", "\n"):
                continue
        self._takes("esac")
        return Choice(word.line, word, tuple(arms))

    def _loop(self, kind: str) -> Statement:
        line, name, words = self._line(), "", list[Word]()
        condition: Block = ()
        if kind in ("for", "select"):
            name = (self._next() or Word("", 0)).text
            self._at += 1
            if self._takes("in"):
                while (token := self._next()) is not None and not token.is_operator:
                    words.append(token)
                    self._at += 1
            while self._takes(";", "\n"):
                continue
        else:
            condition = self._until("do")
        self._takes("do")
        body = self._until("done")
        self._takes("done")
        return Loop(line, name, tuple(words), condition, body, kind != "until")

    def _group(self) -> Statement:
        body = self._until("}")
        self._takes("}")
        return Group(body)

    def _function(self) -> Statement:
        name = (self._next() or Word("", 0)).text
        self._at += 1
        if self._takes("("):
            self._takes(")")
        return self._body_of(name)

    def _body_of(self, name: str) -> Statement:
        while self._takes("\n"):
            continue
        return Function(name, (self._group(),) if self._takes("{") else ())
