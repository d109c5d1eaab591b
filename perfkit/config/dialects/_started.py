"""A training that a script starts with a file of settings: the plan of that file, with what the launch line says instead."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from perfkit.config.dialects import args
from perfkit.config.dialects._script_beside import script_beside
from perfkit.config.dialects._shell import END, Shell
from perfkit.config.dialects.launchers import in_one_word, inside
from perfkit.core.errors import InputError

STARTED = re.compile(
    r"^[^#\n]*\b(?:msrun|torchrun|mpirun|deepspeed|accelerate|llamafactory-cli|python3?|bash)\b(?!:)[^\n]*?\s"
    r"(?<!--config_file\s)(?<!--deepspeed_config_file\s)(?!--)(\S+\.(?:ya?ml|toml|json))\b",
    re.MULTILINE,
)
"""A line that starts a program with a file of settings, which those of `accelerate` are not; only asked where the text is none."""
OPTION = re.compile(r"--([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:[= ]+([^\s=\\]+(?!\S*=))(?=\s|$))?")
"""Options on such a line that state a key of the file anew; one without a value switches on."""
ASSIGNED = re.compile(r"\+{0,2}([a-z_]\w*(?:\.\w+)*)=(.+)")
"""A key stated anew as OmegaConf has it, after the file's name."""
SET_FIRST = re.compile(r"([A-Za-z_]\w*)=(?:\"[^\"\n]*\"|'[^'\n]*'|\S*)\s+")
"""A variable that is set for one command, before its program."""
FLAGS = frozenset({"use_deepspeed", "use_fsdp", "use_megatron_lm", "multi_gpu", "multi_cpu", "standalone", "no_python"})
"""Options of launchers without a value."""
SECRET = re.compile(r"(?:^|_)(?:token|secret|password|passwd|api_?key)$", re.IGNORECASE)
PLAIN = (bool, int, float, str, list, dict, type(None))
"""What a key of a file may be; a day or a set that YAML makes of a text is that text."""


@dataclass(frozen=True, slots=True)
class Started:
    """The file of settings by its name in the script, where it lies (None where it is not here), and the keys stated anew.

    `launcher` are options of what starts the program and variables, `program` the program's own options: only the file's dialect
    knows which of them are for it.
    """

    named: str
    file: Path | None
    anew: dict[tuple[str, ...], Any]
    launcher: dict[str, Any]
    program: dict[str, Any]

    def changes(self, keys: Container[str]) -> dict[tuple[str, ...], Any]:
        """The keys of the file that are stated anew, of which `keys` stand in it with a plain value."""
        return {**{(name,): value for name, value in self.program.items() if name in keys}, **self.anew}

    def counted(self, known: Container[str]) -> dict[tuple[str, ...], Any]:
        """What the launcher says of those options and variables that the dialect takes."""
        return {(name,): value for name, value in self.launcher.items() if name in known}

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
    until = joined[: end if end >= 0 else len(joined)]
    named, line = found[1], until[found.start() :]
    anew = {tuple(option[1].split(".")): _value(option[2]) for option in OPTION.finditer(line) if option[2] != named}
    file = script_beside(path, named)
    try:
        shell = Shell()
        shell.run(in_one_word(inside(until)), named, path)
    except (InputError, RecursionError):
        return Started(named, file, anew, {}, {})
    launcher, program, after = _parted(shell, named)
    anew |= {tuple(key[1].split(".")): _value(key[2]) for word in after if (key := ASSIGNED.fullmatch(word)) and "$" not in key[2]}
    variables = {
        name: value for name, value in shell.texts().items() if name in {*_set_for_all(until[: found.start()]), *_set_first(line)}
    }
    return Started(named, file, anew, _known(variables) | _options(launcher), _options(program))


def _parted(shell: Shell, named: str) -> tuple[list[str], list[str], list[str]]:
    """Of the last command that is given the file: words before its program, words after that, and those after the file."""
    words: list[str] = []
    own: list[str] = []
    for word, _ in (*shell.used, (END, None)):
        if word == END:
            own = words if named in words else own
            words = []
        else:
            words += word.split()  # a launcher may take a whole command in one word
    if not own:
        return [], [], []
    at = own.index(named)
    script = next((place for place, word in enumerate(own[:at]) if word.endswith(".py")), None)
    if script is None:  # the program is the command itself
        return [], own[at + 1 :], own[at + 1 :]
    return own[1:script], [*own[script + 1 : at], *own[at + 1 :]], own[at + 1 :]


def _options(words: list[str]) -> dict[str, Any]:
    """Options of a command by name, as YAML has their values."""
    stated = args.parse(json.dumps(words), "", FLAGS, frozenset()).values
    return _known({name: value for name, value in stated.items() if "." not in name})


def _known(stated: dict[str, Any]) -> dict[str, Any]:
    """What is known without running the script, and is no secret."""
    return {name: _value(value) for name, value in stated.items() if "$" not in str(value) and not SECRET.search(name)}


def _set_for_all(text: str) -> Iterator[str]:
    """The variables that lines set for all commands after them."""
    for line in re.split(r"[\n;]|&&", text):
        rest = re.sub(r"^\s*(?:export|declare|readonly)\s+(?:-\w+\s+)*", "", line).strip() + " "
        names = [found[1] for found in SET_FIRST.finditer(rest)]
        if names and re.fullmatch(rf"(?:{SET_FIRST.pattern})+(?:#.*)?", rest):
            yield from names


def _set_first(line: str) -> Iterator[str]:
    """The variables that a line sets before its command."""
    at = len(line) - len(line.lstrip())
    while found := SET_FIRST.match(line, at):
        yield found[1]
        at = found.end()


def _value(text: Any) -> Any:
    """A value of the launch line as YAML has it, which is how programs read them; a text with marks of YAML's own is a text."""
    if text is None or (isinstance(text, str) and text.startswith("--")):
        return True
    if not isinstance(text, str):
        return text
    plain = text.strip("'\"")
    if re.search(r"[&*!]", plain):
        return plain
    try:
        value = yaml.safe_load(plain)
    except (yaml.YAMLError, ValueError, RecursionError):
        return text
    return value if isinstance(value, PLAIN) else plain
