"""A training that a script starts with a file of settings: the plan of that file, with what the launch line says instead."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from perfkit.config.dialects._script_beside import script_beside

STARTED = re.compile(
    r"^[^#\n]*\b(?:msrun|torchrun|mpirun|deepspeed|accelerate|llamafactory-cli|python3?|bash)\b(?!:)[^\n]*?\s(?<!--config_file\s)(?!--)(\S+\.(?:ya?ml|toml|json))\b",
    re.MULTILINE,
)
"""A line that starts a program with a file of settings, which that of `accelerate` is not; only asked where the text is none."""
OPTION = re.compile(r"--([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:[= ]+([^\s=\\]+(?!\S*=))(?=\s|$))?")
"""Options on such a line that state a key of the file anew; one without a value switches on."""


@dataclass(frozen=True, slots=True)
class Started:
    """The file of settings by its name in the script, where it lies (None where it is not here), and the keys stated anew."""

    named: str
    file: Path | None
    anew: dict[tuple[str, ...], Any]

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
    anew = {tuple(option[1].split(".")): _value(option[2]) for option in OPTION.finditer(line) if option[2] != found[1]}
    return Started(found[1], script_beside(path, found[1]), anew)


def _value(text: str | None) -> Any:
    """A value of the launch line as YAML has it, which is how programs read them."""
    if text is None or text.startswith("--"):
        return True
    try:
        return yaml.safe_load(text.strip("'\""))
    except yaml.YAMLError:
        return text
