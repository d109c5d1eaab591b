"""Command-line options out of a launch script, a flat list of arguments, JSON or sections of YAML; nothing is executed.

A script is followed as a shell would (`_shell.py`), and every `--name value...` that reaches a command counts. In a file without a
command, such as one that others source, every option counts that stands in a variable.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfkit.config.dialects import yaml
from perfkit.config.dialects._shell import END, Placed, Shell
from perfkit.config.dialects._shell_words import expanded, is_known
from perfkit.config.dialects._slurm import world_size
from perfkit.config.dialects.key_effects import leaves
from perfkit.config.dialects.launchers import in_one_word, inside
from perfkit.core.errors import InputError

MAX_DEPTH = 10
OPTIONS, ENVIRONMENT = "MODEL_ARGS", "ENV_VARS"
TESTED = re.compile(rf"^{OPTIONS}[ \t]*:[ \t]*(?:#[^\n]*)?$", re.MULTILINE)
"""The section of options in the YAML of Megatron's own tests (`tests/functional_tests/test_cases/*/*/model_config.yaml`)."""
GROUPED = tuple(re.compile(rf"^{group}[ \t]*:[ \t]*(?:#[^\n]*)?$", re.MULTILINE) for group in ("system", "model"))
"""The groups of FlagScale's YAML (`conf/train/*.yaml`), whose runner makes an option of everything in them."""


@dataclass(slots=True)
class Arguments:
    """Options of a text: values by name with `_` (True for an option without a value), lines, what stood twice, what lacks."""

    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    repeated: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, value: Any, line: int | None) -> None:
        """Take an option; a second, different value replaces the first, as in the program, and is reported."""
        key = name.lstrip("-").rstrip(":").replace("-", "_")
        if key in self.values and self.values[key] != value:
            self.repeated.append(f"--{key.replace('_', '-')} stands twice: {self.values[key]!r}, then {value!r}, which counts")
        self.values[key] = value
        if line is None:
            self.lines.pop(key, None)
        else:
            self.lines[key] = line


def parse(text: str, name: str, flags: frozenset[str], lists: frozenset[str], path: Path | None = None) -> Arguments:
    """The options of a script, list or JSON document. Raises InputError if it is broken.

    Options in `flags` never take a value, those in `lists` take all words up to the next option, all others take one. `path` is
    where the script lies; what it sources is read from there, and has no lines.
    """
    stripped = text.lstrip()
    if stripped.startswith(("{", "[")):
        return _from_json(text, name, flags, lists)
    if TESTED.search(text):
        return _from_yaml(text, name, lists)
    if in_groups(text):
        return _from_groups(text, name, lists)
    shell = Shell()
    try:
        shell.run(in_one_word(inside(text)), name, path)
    except RecursionError as error:
        raise InputError(name, ["its commands are nested too deeply to be followed"]) from error
    variables = shell.texts()
    if (devices := world_size(variables)) is not None:
        variables.setdefault("WORLD_SIZE", devices)
    stated, used = (_collected(words, variables, flags, lists) for words in (shell.stated, shell.used))
    if not used.values:
        return dataclasses.replace(stated, absent=shell.absent, variables=variables)
    unused = ", ".join(f"--{key.replace('_', '-')}" for key in stated.values if key not in used.values)
    left_out = [f"left out, because no command uses the variables that they stand in: {unused}"] if unused else []
    lines = {key: line for key, line in {**stated.lines, **used.lines}.items() if key in used.values}
    return dataclasses.replace(used, lines=lines, absent=[*shell.absent, *left_out], variables=variables)


def _from_json(text: str, name: str, flags: frozenset[str], lists: frozenset[str]) -> Arguments:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(name, [f"not JSON: {error}"]) from error
    if isinstance(value, list):
        bad = [item for item in value if isinstance(item, list | dict) or item is None]
        if bad:
            raise InputError(name, [f"a list of arguments holds texts only, found {str(item)[:60]!r}" for item in bad])
        return _collected([(str(item), None) for item in value], {}, flags, lists)
    if isinstance(value, dict):
        arguments = Arguments()
        for key, item in value.items():
            if item is not None and item is not False:
                arguments.add(key, item, None)
        return arguments
    raise InputError(name, ["JSON must be a list of arguments or an object of names and values"])


def _from_yaml(text: str, name: str, lists: frozenset[str]) -> Arguments:
    parsed = yaml.parse(text, name)
    options, variables = (parsed.values.get(section) or {} for section in (OPTIONS, ENVIRONMENT))
    if not isinstance(options, Mapping) or not isinstance(variables, Mapping):
        raise InputError(name, [f"{OPTIONS} and {ENVIRONMENT} must be sections of names and values"])
    arguments = Arguments(variables={str(key): str(value) for key, value in variables.items()}, repeated=list(parsed.duplicates))
    for key, value in options.items():
        if value is not None and value is not False:
            arguments.add(str(key), _given(str(key), value, lists), parsed.lines.get(f"{OPTIONS}.{key}"))
    return arguments


def in_groups(text: str) -> bool:
    """Whether a text is YAML that holds options in groups, by their names alone."""
    return all(group.search(text) for group in GROUPED)


def _from_groups(text: str, name: str, lists: frozenset[str]) -> Arguments:
    parsed = yaml.parse(text, name)
    arguments = Arguments(repeated=list(parsed.duplicates))
    for path, value in leaves(parsed.values):
        if value is not None and value is not False and value != {}:
            option = path.rpartition(".")[2]
            arguments.add(option, _given(option, value, lists), parsed.lines.get(path))
    return arguments


def places(text: str, name: str) -> dict[str, tuple[str, ...]]:
    """The key path of every option of a text in groups."""
    return {path.rpartition(".")[2].replace("-", "_"): tuple(path.split(".")) for path, _ in leaves(yaml.parse(text, name).values)}


def _given(option: str, value: Any, lists: frozenset[str]) -> Any:
    """A value of YAML as an option has it: numbers that YAML takes for texts, such as 1e-5, and words of a list."""
    if isinstance(value, str):
        # Shells read these values, so that bars and brackets stand behind backslashes, or a list in brackets.
        plain = value.replace("\\", "")
        bracketed = re.fullmatch(r"\[([\w\s]*)\]", plain)
        value = (bracketed[1] if bracketed else plain).split() if option.lstrip("-").replace("-", "_") in lists else _typed(plain)
    return value


def _collected(flat: list[Placed], variables: Mapping[str, str], flags: frozenset[str], lists: frozenset[str]) -> Arguments:
    arguments = Arguments()
    for index, (word, line) in enumerate(flat):
        if not re.match(r"--[A-Za-z]", word):
            continue
        name, equals, inline = word.partition("=")
        key = name.lstrip("-").replace("-", "_")
        words = [inline] if equals else _following(flat, index + 1, 0 if key in flags else None if key in lists else 1)
        values = [_typed(_bare(_settled(value, variables))) for value in words]
        arguments.add(name, (values if key in lists else values[0]) if values else True, line)
    return arguments


def _bare(text: str) -> str:
    """A text without quotes around it, which a shell takes away where it evaluates a command that stands in a variable."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _following(flat: list[Placed], start: int, most: int | None) -> list[str]:
    """The words after an option up to the next one, at most `most` of them."""
    words: list[str] = []
    for at in range(start, len(flat) if most is None else min(start + most, len(flat))):
        word = flat[at][0]
        if word == END or (word.startswith("-") and not re.match(r"-[\d.]", word)):
            break
        words.append(word)
    return words


def resolve_variable(name: str, variables: Mapping[str, str]) -> Any:
    """The typed value of a variable of the file; None if it is not assigned there or does not resolve."""
    value = _typed(_settled(variables[name], variables)) if name in variables else None
    return None if isinstance(value, str) and not is_known(value) else value


def _settled(text: str, variables: Mapping[str, str]) -> str:
    """A text with variables put in that stand below it in the file, as in a piece of a script."""
    for _ in range(MAX_DEPTH):
        replaced = expanded(text, variables)
        if replaced == text:
            break
        text = replaced
    return text


def _typed(text: str) -> Any:
    if re.fullmatch(r"[+-]?\d{1,18}", text):
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text
