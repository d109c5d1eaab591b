"""A training that a script starts with a file of settings: the plan of that file, with what the launch line says instead."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from perfkit.config.dialects import args
from perfkit.config.dialects._script_beside import script_beside
from perfkit.core.errors import InputError

STARTED = re.compile(
    r"^[^#\n]*\b(?:msrun|torchrun|mpirun|deepspeed|accelerate|llamafactory-cli|python3?|bash)\b(?!:)[^\n]*?\s(?<!--config_file\s)(?!--)(\S+\.(?:ya?ml|toml|json))\b",
    re.MULTILINE,
)
"""A line that starts a program with a file of settings, which that of `accelerate` is not; only asked where the text is none."""
OPTION = re.compile(r"--([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:[= ]+([^\s=\\]+(?!\S*=))(?=\s|$))?")
"""Options on such a line that state a key of the file anew; one without a value switches on."""


ASSIGNED = re.compile(r"(?<=\s)\+{0,2}([a-z_]\w*(?:\.\w+)*)=([^\s=\\]+)(?=\s|$)")
"""A key stated anew as OmegaConf has it, after the file's name."""


@dataclass(frozen=True, slots=True)
class Started:
    """The file of settings by its name in the script, where it lies (None where it is not here), and the keys stated anew.

    `beside` are options and variables by name, of which only the file's own dialect knows whether they are for it.
    """

    named: str
    file: Path | None
    anew: dict[tuple[str, ...], Any]
    beside: dict[str, Any]

    def changes(self, known: Container[str]) -> dict[tuple[str, ...], Any]:
        """What is said anew to a program that takes the options and variables in `known`."""
        return {**{(name,): value for name, value in self.beside.items() if name in known}, **self.anew}

    def told(self) -> str:
        """What the script does, where its file cannot be opened."""
        told = f"starts a training whose configuration is {self.named}: open that file"
        keys = ", ".join(".".join(path) for path in self.anew)
        return f"{told}; options of the launch line win over it: {keys}" if keys else told


def started(text: str, path: Path | None) -> Started | None:
    """The training that a script starts with a file of settings; None where it starts none."""
    joined = re.sub(r"\\\r?\n", " ", text)
    found = STARTED.search(joined)
    if found is None:
        return None
    end = joined.find("\n", found.start())
    line = joined[found.start() : end if end >= 0 else len(joined)]
    stated = [*OPTION.finditer(line), *ASSIGNED.finditer(line, found.end() - found.start())]
    anew = {tuple(option[1].split(".")): _value(option[2]) for option in stated if option[2] != found[1]}
    return Started(found[1], script_beside(path, found[1]), anew, _beside(text, path, found[1]))


def _beside(text: str, path: Path | None, named: str) -> dict[str, Any]:
    """Options and variables of the script that are known without running it."""
    try:
        script = args.parse(text, "", frozenset(), frozenset(), path)
    except InputError:
        return {}
    stated = {name: _value(value) for name, value in (script.variables | script.values).items() if value != named}
    return {name: value for name, value in stated.items() if "$" not in str(value)}


def _value(text: Any) -> Any:
    """A value of the launch line as YAML has it, which is how programs read them."""
    if text is None or (isinstance(text, str) and text.startswith("--")):
        return True
    if not isinstance(text, str):
        return text
    try:
        return yaml.safe_load(text.strip("'\""))
    except yaml.YAMLError:
        return text
