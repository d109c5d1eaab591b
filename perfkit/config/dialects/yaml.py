"""YAML with the rules of the loader that MindFormers uses (YAML 1.1, safe), and the line of every key.

Tags of Python objects are refused before anything is built; duplicate keys are reported, and the last one wins, as in the loader.
libyaml cuts a text into its parts where it does so as that loader would, in an eighth of the time; nodes are made by the loader.
"""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import yaml
from yaml.composer import Composer, ComposerError

from perfkit.config.dialects.dialect import Parsed
from perfkit.core.errors import InputError
from perfkit.core.texts import say

SAFE_TAGS = frozenset(
    f"tag:yaml.org,2002:{name}"
    for name in (
        "null",
        "bool",
        "int",
        "float",
        "str",
        "seq",
        "map",
        "timestamp",
        "binary",
        "set",
        "omap",
        "pairs",
        "merge",
        "value",
    )
)
MAX_NODES = 200_000
_OTHERWISE = frozenset("\t?\x85\u2028\u2029\ufeff")
"""What libyaml reads otherwise than the loader: tabs within words, keys that are asked for, ends of lines beside the usual ones."""


if yaml.__with_libyaml__:

    class _Fast(Composer, yaml.CSafeLoader):
        """The loader, with libyaml before it, whose own way to make nodes ends the process on a text that is nested too deeply."""

        def __init__(self, text: str) -> None:
            yaml.CSafeLoader.__init__(self, text)
            Composer.__init__(self)


def parse(text: str, name: str) -> Parsed:
    """Values and lines of a YAML mapping. Raises InputError for anything else, with the line of every problem found."""
    found = _parsed(text, name)
    return replace(found, values=deepcopy(found.values))


def composed(text: str) -> yaml.Node | None:
    """The nodes of a text that `parse` has read, with the places of its scalars and flow collections."""
    for loader in _loaders(text):
        with suppress(yaml.YAMLError, UnicodeError):
            return loader(text).get_single_node()  # type: ignore[no-any-return]
    return None


def loaded(text: str) -> Any:
    """What a text holds, mapping or not. Raises YAMLError, or ValueError for a value that cannot be one."""
    *fast, last = _loaders(text)
    for loader in fast:
        with suppress(yaml.YAMLError, UnicodeError):
            return yaml.load(text, Loader=loader)
    return yaml.load(text, Loader=last)


def _loaders(text: str) -> tuple[type[Any], ...]:
    """What reads a text, the fastest first; the last one says what is wrong with it."""
    return (_Fast, yaml.SafeLoader) if yaml.__with_libyaml__ and _OTHERWISE.isdisjoint(text) else (yaml.SafeLoader,)


@lru_cache(maxsize=8)
def _parsed(text: str, name: str) -> Parsed:
    # Writing a plan reads the same text up to five times, 25 ms each.
    *fast, last = _loaders(text)
    for loader in fast:
        with suppress(InputError, UnicodeError):
            return _read(loader, text, name)
    return _read(last, text, name)


def _read(kind: type[Any], text: str, name: str) -> Parsed:
    try:
        loader = kind(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise InputError(name, [f"line {line}: the character {text[error.position]!r} is not allowed in YAML"]) from error
    try:
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            raise InputError(name, ["the YAML holds no keys at its top level"])
        walk = _Walk({}, [], [], set())
        walk.visit(node, "")
        if walk.problems:
            raise InputError(name, walk.problems)
        values = loader.construct_document(node)
    except yaml.YAMLError as error:
        raise InputError(name, _syntax_problems(error, text)) from error
    except RecursionError as error:
        raise InputError(name, ["sections or lists are nested too deeply to be a configuration"]) from error
    except (ValueError, OverflowError, TypeError) as error:
        raise InputError(name, [f"a value cannot be read: {error}"]) from error
    finally:
        loader.dispose()
    return Parsed(values, walk.lines, tuple(walk.duplicates))


@dataclass(slots=True)
class _Walk:
    """One pass over the nodes; a node that several aliases name is visited once."""

    lines: dict[str, int]
    duplicates: list[str]
    problems: list[str]
    seen: set[int]

    def visit(self, node: yaml.Node, path: str) -> None:
        if id(node) in self.seen:
            return
        self.seen.add(id(node))
        if len(self.seen) > MAX_NODES:
            raise InputError("YAML", [f"more than {MAX_NODES} values; a configuration has a few hundred"])
        if node.tag not in SAFE_TAGS:
            tag = node.tag.replace("tag:yaml.org,2002:", "!!")
            self.problems.append(f"line {_line(node)}, {path or 'top level'}: tag {tag!r} is refused; it is never executed")
        if isinstance(node, yaml.MappingNode):
            self._visit_mapping(node, path)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self.visit(item, f"{path}[{index}]")

    def _visit_mapping(self, node: yaml.MappingNode, path: str) -> None:
        first: dict[str, int] = {}
        for key, value in node.value:
            word = str(key.value) if isinstance(key, yaml.ScalarNode) else "?"
            name = f"{path}.{word}" if path else word
            if name in first and word != "<<":
                self.duplicates.append(
                    say(
                        "line {line}, {name}: stands twice (first on line {first}); the last one counts",
                        line=str(_line(key)),
                        name=name,
                        first=str(first[name]),
                    )
                )
            first[name] = self.lines[name] = _line(key)
            self.visit(key, name)
            self.visit(value, name)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _syntax_problems(error: yaml.YAMLError, text: str) -> list[str]:
    tabs = [number for number, line in enumerate(text.splitlines(), 1) if "\t" in line[: len(line) - len(line.lstrip())]]
    problems = [f"line {number}: indented with a tab; YAML allows spaces only" for number in tabs]
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        return problems or [f"not YAML: {error}"]
    if isinstance(error, ComposerError) and error.context == "expected a single document in the stream":
        problems.append(
            f"line {mark.line + 1}: a second document begins; cut the file here because a configuration is one document"
        )
    elif mark.line + 1 not in tabs:
        lines = text.splitlines()
        found = lines[mark.line].strip() if mark.line < len(lines) else "the end of the file"
        reason = getattr(error, "problem", None) or "not YAML"
        problems.append(f"line {mark.line + 1}, column {mark.column + 1}: {reason}; found {found[:60]!r}")
    return problems
