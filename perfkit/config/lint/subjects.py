"""Subjects: what checks look at. A file becomes one or two of them by name and content; nothing in it is executed or imported."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any

from perfkit.config.dialects.dialect import Document
from perfkit.config.dialects.launchers import handed, in_one_word, inside
from perfkit.config.dialects.read import read_text
from perfkit.config.dialects.registry import dialect_named, recognised
from perfkit.config.fragments.secrets import masked
from perfkit.config.lint.newer_python import parse_python
from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan

OF_A_MODEL = frozenset({"hidden", "layers", "heads"})
IN_A_MODEL = OF_A_MODEL | {"kv_heads", "ffn", "vocab", "seq_length", "virtual", "interleaved", "zero_shard"}
MODEL_NAMES = ("trainer.model_name", "pretrained_model_dir", "model.model_config.type", "model.model_config.model_type")
VALUE_PROBLEM = re.compile(
    r"(?:line (?P<line>\d+), )?(?P<key>[\w.-]+): (?P<value>'[^{']*(?<!,)'|-?[\d.e+-]+) "
    r"must be (?:a whole number|a number|True or False)"
)
"""What a reader says of a value that its key cannot have, whatever stands beside it.

One in braces is filled in later, one before a comma is a member of an object that is pasted without its braces.
"""
WORD_PROBLEM = re.compile(r"(?:line (?P<line>\d+), )?(?P<key>[\w.-]+): '[^'{$]*(?<!,)' must be one of ")
"""The same of a word that is none of those which its key may have."""
_NOTHING: Any = object()
EXPORT = re.compile(r"^\s*(?:export\s+|set\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)$")


class NotStatedError(LookupError):
    """A check asked a piece of a configuration for what it does not say: nothing can be concluded, whatever the default is."""


@dataclass(kw_only=True)
class Config:
    """A configuration: nested values (Megatron arguments: options by name with `_`), lines by dotted key, and its plan.

    `plan` is None where the file does not make one; `plan_problems` says why. `dialect` is that of `perfkit.config.dialects`.
    Of one that is not `whole`, a piece of a file, only what it states is known: to ask for a default raises NotStatedError, and its
    problems are those of the values that it states.
    """

    file: str
    text: str
    dialect: str
    values: Mapping[str, Any]
    lines: Mapping[str, int]
    duplicates: Sequence[str] = ()
    plan: Plan | None = None
    plan_problems: Sequence[str] = ()
    whole: bool = True

    def get(self, key: str, default: Any = _NOTHING) -> Any:
        """The value at a dotted key; where there is none `default`, or None if a check does not rest on its absence."""
        found: Any = self.values
        for name in key.split("."):
            if not isinstance(found, Mapping) or name not in found:
                if default is _NOTHING:
                    return None
                if not self.whole:
                    raise NotStatedError(key)
                return default
            found = found[name]
        return found

    def line_of(self, key: str) -> int | None:
        """The line of a dotted key, or of the nearest key above it."""
        while key and key not in self.lines:
            key = key.rpartition(".")[0]
        return self.lines.get(key)


@dataclass(frozen=True, kw_only=True, slots=True)
class Variable:
    """One assignment of an environment variable."""

    name: str
    value: str
    line: int


@dataclass(kw_only=True)
class Environment:
    """Environment variables in the order in which a launch script or a file of `NAME=value` lines sets them."""

    file: str
    text: str
    variables: Sequence[Variable]

    def last(self, name: str) -> Variable | None:
        """The assignment that counts."""
        return next((variable for variable in reversed(self.variables) if variable.name == name), None)


@dataclass(kw_only=True)
class Code:
    """A Python file, or the code cells of a notebook as one; `places` maps a line to cell and line in a notebook."""

    file: str
    text: str
    tree: ast.Module
    places: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    _known: dict[str, Any] = field(default_factory=dict, repr=False)

    def once(self, name: str, find: Callable[[], Any]) -> Any:
        """What `find` gives, computed for the first check that asks and kept for the others."""
        if name not in self._known:
            self._known[name] = find()
        return self._known[name]

    @cached_property
    def _by_type(self) -> dict[type, list[ast.AST]]:
        found: dict[type, list[ast.AST]] = {}
        for node in ast.walk(self.tree):
            found.setdefault(type(node), []).append(node)
        return found

    def nodes(self, *kinds: type) -> Iterator[Any]:
        """All nodes of these types in the file; one walk serves all checks."""
        for kind in kinds:
            yield from self._by_type.get(kind, ())

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The node around every node."""
        return {child: node for nodes in self._by_type.values() for node in nodes for child in ast.iter_child_nodes(node)}

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, innermost first."""
        while (found := self.parents.get(node)) is not None:
            yield found
            node = found


@dataclass(kw_only=True)
class Text:
    """A configuration as plain text, which may not parse, or a log."""

    file: str
    text: str

    @cached_property
    def lines(self) -> list[str]:
        """The lines without their ends."""
        return self.text.splitlines()


Subject = Config | Environment | Code | Text


def dialect_of(file: str, text: str) -> str:
    """The name of the dialect that the content is in, or "" for a file that is no configuration."""
    document = Document(name=file, text=text)
    return next((dialect.name for dialect in recognised(document)), "")


def config_of(file: str, text: str, dialect: str, path: Path | None = None) -> Config:
    """A configuration of the given dialect. Raises InputError with the lines of what cannot be parsed at all.

    A text that says nothing of the model, or nothing of the job, is a piece of a configuration: it is no plan. What it refers to is
    looked for beside `path`.
    """
    known = dialect_named(dialect)
    parsed = known.parse(text, file)
    plan: Plan | None = None
    problems: Sequence[str] = ()
    try:
        plan = read_text(text, file, path)
    except InputError as error:
        problems = error.problems
    config = Config(
        file=file,
        text=text,
        dialect=dialect,
        values=parsed.values,
        lines=parsed.lines,
        duplicates=parsed.duplicates,
        plan=plan,
        plan_problems=problems,
    )
    if known.sizes and not _is_whole(config, known.sizes):
        config.whole, config.plan = False, None
        config.plan_problems = [one for one in problems if VALUE_PROBLEM.match(one) or WORD_PROBLEM.match(one)]
    return config


def _is_whole(config: Config, sizes: Mapping[str, Sequence[str]]) -> bool:
    """Whether a configuration states a size of a model, or which one it is, and one of the job: both halves of a plan.

    Of a dialect that does not say where models have their sizes, what makes a plan is whole.
    """
    if not OF_A_MODEL & set(sizes):
        return config.plan is not None
    stated = {name for name, keys in sizes.items() if any(config.get(key) is not None for key in keys)}
    named = any(config.get(key) is not None for key in MODEL_NAMES)
    return bool(stated & OF_A_MODEL or named) and bool(stated - IN_A_MODEL)


def environment_of(file: str, text: str) -> Environment:
    """The assignments of a script or a file of `NAME=value` lines, also several on one line before a command or handed to one.

    Values of secrets are masked.
    """
    text, _ = masked(text)
    alone = inside(text)
    lines = in_one_word(alone).splitlines()
    set_there = [(number, name, value) for number, line in enumerate(lines, 1) for name, value in _assignments(line)]
    variables = sorted((*set_there, *handed(alone)), key=itemgetter(0))
    return Environment(
        file=file, text=text, variables=[Variable(name=name, value=value, line=line) for line, name, value in variables]
    )


def _assignments(line: str) -> Iterator[tuple[str, str]]:
    if "=" not in line or line.lstrip().startswith("#"):
        return
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:
        words = line.split()
    is_command = False
    for word in words:
        if word in (";", "&&"):
            is_command = False
        elif not is_command and word not in ("export", "set", "env"):
            found = EXPORT.match(word)
            is_command = found is None
            if found is not None:
                yield found[1], found[2].rstrip(";")


def code_of(file: str, text: str) -> Code:
    """The syntax tree of a Python file or a notebook. Raises SyntaxError with the line."""
    if not file.lower().endswith(".ipynb"):
        return Code(file=file, text=text, tree=parse_python(text, file))
    lines: list[str] = []
    places: dict[int, tuple[int, int]] = {}
    for number, cell in enumerate(_cells(file, text), 1):
        for inner, line in enumerate(cell, 1):
            lines.append("pass" if line.lstrip().startswith(("%", "!", "?")) and not line[:1].isspace() else line)
            places[len(lines)] = (number, inner)
    joined = "\n".join(lines)
    return Code(file=file, text=joined, tree=parse_python(joined, file), places=places)


def _cells(file: str, text: str) -> Iterator[list[str]]:
    try:
        cells = json.loads(text)["cells"]
        for cell in cells:
            if cell["cell_type"] == "code":
                source = cell["source"]
                yield (source if isinstance(source, str) else "".join(source)).splitlines()
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(file, [f"is no notebook: {error}"]) from error
