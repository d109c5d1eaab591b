"""A launch script followed as a shell would, as far as its text alone decides; nothing is executed.

Assignments take effect in their order; of branches that are decided only one counts, of others what all agree on. A variable that
is not set is empty where a condition asks for it, as when the script is started without an environment of its own. Arguments of the
script, what commands print and whether files exist are not known. A script that another one sources or starts (`bash run.sh 8B`,
`sbatch job.sh`) counts in its place, if it lies in the folder of the script or below, as do the commands of `srun bash -c "..."`.
"""

from __future__ import annotations

import copy
import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from perfkit.config.dialects._script_beside import NO_SCRIPTS, script_beside
from perfkit.config.dialects._shell_arguments import all_arguments, given, named_arguments, put
from perfkit.config.dialects._shell_conditions import Conditions, emptied, is_test, length_of, line_of
from perfkit.config.dialects._shell_syntax import (
    ASSIGNMENT,
    Block,
    Both,
    Branches,
    Choice,
    Command,
    Function,
    Group,
    Loop,
    Statement,
    Word,
    parse_script,
    pieces,
)
from perfkit.config.dialects._shell_words import Value, expanded, unquoted
from perfkit.config.dialects._slurm import MPI, asked, directives, plain
from perfkit.config.dialects.launchers import begins

END = "\0"
"""Between the words of two commands."""
Placed = tuple[str, int | None]
"""A word and the line that it is written on; None where a variable brought it or in another script."""

MAX_CALLS, MAX_TURNS, MAX_WORK = 6, 200, 200_000
CHARS_A_STEP = 8
"""Work is counted in statements, words that they come to, characters that are read for them, and variables that a branch copies."""
_DECLARES = frozenset({"export", "declare", "local", "readonly", "typeset"})
_SHELLS = frozenset({"bash", "sh", "zsh"})
_QUEUES = frozenset({"sbatch", "srun", "salloc", *MPI})
_ALONE = re.compile(r"\"?\$(?:(\w+)|\{(\w+)(?:\[[@*]\])?\})\"?")
_SET_IF_NOT = re.compile(r"\$\{(\w+):?=(.*)\}", re.DOTALL)
_OPTION = re.compile(r"--[A-Za-z]")


@dataclass
class Shell:
    """What a script comes to.

    `stated` are the words of assignments, `used` those of commands, `absent` says what is not known, `undecided` are the variables
    that may have more than one value, `ended` says that an `exit` was reached.
    """

    variables: dict[str, Value] = field(default_factory=dict)
    stated: list[Placed] = field(default_factory=list)
    used: list[Placed] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    undecided: set[str] = field(default_factory=set)
    ended: bool = False
    _functions: dict[str, Block] = field(default_factory=dict)
    _left: int = MAX_WORK

    def run(self, text: str, name: str, path: Path | None, calls: int = MAX_CALLS, *, is_main: bool = True) -> None:
        """Follow a script that lies at `path`. Raises InputError if a quote is never closed."""
        self.learn(asked(directives(text)))
        _Run(self, path, calls, is_main).block(parse_script(text, name))
        if is_main and self.is_spent:
            self.absent.append(f"the script takes more than {MAX_WORK} steps; what comes after them is not followed")

    def learn(self, variables: Mapping[str, str]) -> None:
        """Take variables that the surroundings set, where nothing has set them before."""
        self.variables = {**variables, **self.variables}

    def spend(self, work: int) -> None:
        """Count work against what a script may take."""
        self._left -= work

    @property
    def is_spent(self) -> bool:
        """Whether the script has taken what it may."""
        return self._left < 0

    def texts(self) -> dict[str, str]:
        """The variables, arrays as one text."""
        return {name: value.strip() if isinstance(value, str) else " ".join(value) for name, value in self.variables.items()}


@dataclass
class _Run:
    """One script, or a function of it, that runs in a shell."""

    shell: Shell
    path: Path | None
    calls: int
    is_main: bool

    def block(self, statements: Iterable[Statement]) -> None:
        for statement in statements:
            self.shell.spend(1)
            if self.shell.ended or self.shell.is_spent:
                return
            self._statement(statement)

    def _statement(self, statement: Statement) -> None:
        match statement:
            case Command(words):
                self._command(words)
            case Both(left, right, wanted):
                self._both(left, right, wanted)
            case Branches(line, arms):
                self._branches(line, arms)
            case Choice(line, word, choices):
                self._choice(line, word, choices)
            case Loop():
                self._loop(statement)
            case Group(body):
                self.block(body)
            case Function(name, body):
                self.shell._functions[name] = body

    def _both(self, left: Statement, right: Statement, wanted: bool) -> None:
        if (holds := self._tested(left)) is not None:
            if holds == wanted:
                self._statement(right)
        elif is_test(left):
            self._undecided(line_of(left), [(right,), ()])
        else:
            self._statement(left)
            if wanted:  # what a command does is taken to succeed
                self._statement(right)

    def _branches(self, line: int, arms: Sequence[tuple[Block, Block]]) -> None:
        open_arms: list[Block] = []
        for condition, body in arms:
            holds = self._holds(condition) if condition else True
            if holds is None:
                open_arms.append(body)
            elif holds:
                open_arms.append(body)
                break
        else:
            open_arms.append(())
        self._undecided(line, open_arms)

    def _choice(self, line: int, word: Word, arms: Sequence[tuple[tuple[Word, ...], Block]]) -> None:
        text = self._text(word)
        known = self._conditions().are_decided(text)
        open_arms: list[Block] = []
        for patterns, body in arms:
            if not known and all(self._text(pattern) != "*" for pattern in patterns):
                open_arms.append(body)
            elif any(fnmatch.fnmatchcase(emptied(text) if known else "", self._text(pattern)) for pattern in patterns):
                open_arms.append(body)
                break
        else:
            open_arms.append(())
        self._undecided(line, open_arms)

    def _loop(self, loop: Loop) -> None:
        if loop.name.startswith("(("):
            self._is_not_followed(loop)
            return
        if loop.name:
            for item in self._all_fields(loop.words)[:MAX_TURNS]:
                self.shell.variables[loop.name] = item
                self.block(loop.body)
            return
        for _ in range(MAX_TURNS):
            if self.shell.ended or self.shell.is_spent:
                return
            holds = self._holds(loop.condition)
            if holds is None:
                self._is_not_followed(loop)
            if holds is not loop.wanted:
                return
            self.block(loop.body)

    def _is_not_followed(self, loop: Loop) -> None:
        text = f"line {loop.line}: how often the loop runs is not known from the file; it is taken as not run"
        if text not in self.shell.absent:
            self.shell.absent.append(text)

    def _undecided(self, line: int, arms: Sequence[Block]) -> None:
        """Run one arm; of several, each from the same state, of which stays what all of those that go on agree on."""
        if len(arms) == 1:
            self.block(arms[0])
            return
        before, after = copy.copy(self.shell), []
        for arm in arms:
            before.spend(len(before.variables) + len(before.undecided) + len(before.absent))
            state = copy.copy(before)
            state.variables, state.undecided = dict(before.variables), set(before.undecided)
            state.stated, state.used, state.absent = [], [], []
            _Run(state, self.path, self.calls, self.is_main).block(arm)
            before._left = self.shell._left = state._left
            after.append(state)
        going_on = [state for state in after if not state.ended] or after
        self._join(line, going_on)

    def _join(self, line: int, states: Sequence[Shell]) -> None:
        shell, first = self.shell, states[0]
        names = {name for state in states for name in state.variables}
        differing = sorted(name for name in names if len({state.variables.get(name) for state in states}) > 1)
        shell.variables = {name: value for name, value in first.variables.items() if name not in differing}
        shell.undecided = {*differing, *(name for state in states for name in state.undecided)}
        for state in states:
            shell.absent += [text for text in state.absent if text not in shell.absent]
        for kind in ("stated", "used"):
            words: list[list[Placed]] = [getattr(state, kind) for state in states]
            if all([word for word, _ in each] == [word for word, _ in words[0]] for each in words):
                getattr(shell, kind).extend(words[0])
            else:
                differing += sorted({word for each in words for word, _ in each if _OPTION.match(word)} - set(differing))
        shell.ended = all(state.ended for state in states)
        if differing:
            named = ", ".join(differing[:8]) + (f" and {len(differing) - 8} more" if len(differing) > 8 else "")
            shell.absent.append(f"line {line}: which branch runs is not known from the file; left out is what differs: {named}")

    def _command(self, words: Sequence[Word]) -> None:
        rest = list(words)
        declares = rest[0].text in _DECLARES
        if declares:
            rest.pop(0)
        while rest and (found := ASSIGNMENT.fullmatch(rest[0].text)):
            self._assign(found[1], bool(found[2]), found[3], rest.pop(0))
        if not rest or (declares and all(re.fullmatch(r"-?\w+", word.text) for word in rest)):
            return
        match rest[0].text:
            case "source" | "." if len(rest) > 1:
                self._source(rest)
            case name if name in _SHELLS and len(rest) > 1 and self._started(rest):
                return
            case name if plain(name) in _QUEUES and self._queued(rest):
                return
            case ":":
                for word in rest[1:]:
                    if (found := _SET_IF_NOT.fullmatch(word.text.strip('"'))) and not self.shell.variables.get(found[1]):
                        self._assign(found[1], False, found[2], word)
            case "exit" | "return":
                self.shell.ended = True
            case "shift":
                self._shift(int(rest[1].text) if len(rest) > 1 and rest[1].text.isdigit() else 1)
            case name if name in self.shell._functions:
                self._call(self.shell._functions[name], self._all_fields(rest[1:]))
            case _ if not self._commanded(rest):
                self._emit(rest)

    def _assign(self, name: str, more: bool, text: str, word: Word) -> None:
        shell = self.shell
        line = word.line if self.is_main else None
        before = shell.variables.get(name, "")
        if word.items is not None:
            if any(_OPTION.search(item.text) for item in word.items):
                for item in word.items:
                    self._state(self._text(item), item.line)
                shell.stated.append((END, line))
            items = self._all_fields(word.items)
            held = (before,) if isinstance(before, str) and before else tuple(before)
            shell.variables[name] = (*held, *items) if more else items
        else:
            if "--" in text:
                for piece in pieces(unquoted(text, str), word.line):
                    if shell.is_spent:
                        break
                    self._state(self._put_in(piece.text), piece.line)
                shell.stated.append((END, line))
            value = self._text(Word(text, word.line))
            whole = before if isinstance(before, str) else " ".join(before)
            value = whole + value if more else value
            self._spend_on(value)
            shell.variables[name] = value
        shell.undecided.discard(name)

    def _state(self, text: str, line: int) -> None:
        """Take the words of a text that is assigned on a line."""
        words = [piece.text for piece in islice(pieces(text, 1), max(0, self.shell._left))]
        self.shell.spend(1 + len(words))
        self.shell.stated += [(word, line if self.is_main else None) for word in words]

    def _emit(self, words: Sequence[Word]) -> None:
        used = self.shell.used
        for word in words:
            line = word.line if self.is_main else None
            used += [(item, line if item.partition("=")[0] in word.text else None) for item in self._fields(word)]
        if not words[0].text.startswith("-"):
            used.append((END, None))

    def _all_fields(self, words: Iterable[Word]) -> tuple[str, ...]:
        return tuple(item for word in words for item in self._fields(word))

    def _fields(self, word: Word) -> list[str]:
        """The words that a word becomes; none once the script has taken what it may."""
        fields = list(islice(self._split(word), max(0, self.shell._left)))
        self.shell.spend(len(fields))
        return fields

    def _split(self, word: Word) -> Iterable[str]:
        if found := _ALONE.fullmatch(word.text):
            value = self.shell.variables.get(found[1] or found[2])
            if isinstance(value, tuple):  # without quotes its elements are split once more
                return value if word.text.startswith('"') else (piece.text for item in value for piece in pieces(item, 1))
            return (found[0].strip('"'),) if value is None else (piece.text for piece in pieces(value, 1))
        text = self._text(word)
        if word.text.startswith(("'", '"')) and not _OPTION.match(text):
            return (text,)
        return (piece.text for piece in pieces(text, 1)) if "$" in word.text or " --" in text else (text,)

    def _text(self, word: Word) -> str:
        self._spend_on(word.text)
        return unquoted(word.text, self._put_in)

    def _spend_on(self, text: str) -> None:
        self.shell.spend(1 + len(text) // CHARS_A_STEP)

    def _put_in(self, text: str) -> str:
        return expanded(text, self.shell.variables)

    def _source(self, words: Sequence[Word]) -> None:
        named = self._text(words[1])
        if not self._follow(named, self._all_fields(words[2:])):
            self.shell.absent.append(f"{named} is sourced and is not here; what it sets is not known")

    def _started(self, words: Sequence[Word]) -> bool:
        """Whether a script that a shell of its own runs was followed."""
        rest = [word for word in words[1:] if not re.fullmatch(r"-[a-z]+", word.text)]
        return self._commanded(words) or (bool(rest) and self._follow(self._text(rest[0]), self._all_fields(rest[1:])))

    def _queued(self, words: Sequence[Word]) -> bool:
        """Whether the command or script that a queue is given was followed; what the queue is asked for holds in it."""
        texts = [self._text(word) for word in words]
        at = begins(texts)
        self.shell.learn(asked(texts[: at or None]))
        if at:
            self._command(words[at:])
            return True
        return any(self._follow(text, self._all_fields(words[at:])) for at, text in enumerate(texts[1:], 2) if text[:1] != "-")

    def _commanded(self, words: Sequence[Word]) -> bool:
        """Whether there are commands in one word (`sh -c "..."`), which are followed as a script."""
        for at, word in enumerate(words[:-2]):
            if word.text.rpartition("/")[2] in _SHELLS and re.fullmatch(r"-[a-z]*c", words[at + 1].text) and self.calls:
                self.shell.run(self._text(words[at + 2]), "commands in one word", self.path, self.calls - 1, is_main=False)
                self.shell.ended = False
                return True
        return False

    def _follow(self, named: str, arguments: Sequence[str]) -> bool:
        file = script_beside(self.path, named) if self.calls and not named.endswith(NO_SCRIPTS) else None
        if file is None:
            return False
        before = given(self.shell.variables)
        if arguments:
            put(self.shell.variables, named_arguments(arguments))
        self.shell.used.append((END, None))
        self.shell.run(file.read_text(encoding="utf-8", errors="replace"), file.name, file, self.calls - 1, is_main=False)
        self.shell.used.append((END, None))
        self.shell.ended = False
        if arguments:
            put(self.shell.variables, before)
        return True

    def _call(self, body: Block, arguments: Sequence[str]) -> None:
        if not self.calls:
            return
        before = given(self.shell.variables)
        put(self.shell.variables, named_arguments(arguments))
        _Run(self.shell, self.path, self.calls - 1, self.is_main).block(body)
        self.shell.ended = False
        put(self.shell.variables, before)

    def _shift(self, by: int) -> None:
        if "#" in self.shell.variables:
            left = all_arguments(self.shell.variables)[by:]
            self.shell.spend(len(left))
            put(self.shell.variables, named_arguments(left))

    def _holds(self, condition: Block) -> bool | None:
        for statement in condition[:-1]:
            self._statement(statement)
        return self._tested(condition[-1]) if condition else None

    def _tested(self, statement: Statement) -> bool | None:
        self.shell.spend(1 + length_of(statement) // CHARS_A_STEP)
        return self._conditions().tested(statement)

    def _conditions(self) -> Conditions:
        return Conditions(self.shell.variables, self.shell.undecided)
