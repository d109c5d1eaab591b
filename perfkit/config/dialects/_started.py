"""A training that a script starts with a file of settings: the plan of that file, with what the launch line says instead."""

from __future__ import annotations

import json
import re
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from perfkit.config.dialects import args
from perfkit.config.dialects._script_beside import script_beside
from perfkit.config.dialects._shell import END, Shell
from perfkit.config.dialects._slurm import world_size
from perfkit.config.dialects.launchers import in_one_word, inside
from perfkit.core.errors import InputError

STARTED = re.compile(
    r"^(?!\s*(?:echo|printf)\b[^;&|\n]*$)"
    r"[^#\n]*\b(?:msrun|torchrun|mpirun|deepspeed|accelerate|llamafactory-cli|python3?|bash)\b(?!:)[^\n]*?\s"
    r"(?<!--config_file\s)(?<!--deepspeed_config_file\s)(?!--)[\"']?(?![\"']|--)(\S+\.(?:ya?ml|toml|json))\b",
    re.MULTILINE,
)
"""A line that starts a program with a file of settings, which those of `accelerate` are not; only asked where the text is none."""
OPTION = re.compile(r"--([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:[= ]+([^\s=\\]+(?!\S*=))(?=\s|$))?")
"""Options on such a line that state a key of the file anew; one without a value switches on."""
ASSIGNED = re.compile(r"\+{0,2}([a-z_]\w*(?:\.\w+)*)=(.+)")
"""A key stated anew as OmegaConf has it, after the file's name."""
SET_FIRST = r"[A-Za-z_]\w*=(?!\()(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s\"'`$]|\$(?!\())*[ \t]+"
FOR_ONE = re.compile(rf"(^|[;&|])[ \t]*(?:{SET_FIRST})+(?![A-Za-z_]\w*=|[\s#;&|]|\Z)", re.MULTILINE)
"""Variables that are set for one command, before its program."""
NEXT = re.compile(r"[;|\n]|&&")
"""What ends a command."""
FLAGS = frozenset({"use_deepspeed", "use_fsdp", "use_megatron_lm", "multi_gpu", "multi_cpu", "standalone", "no_python"})
"""Options of launchers without a value."""
SECRET = re.compile(r"(?:^|_)(?:token|secret|passw(?:or)?d|credentials?|(?:api|access|private|wandb)_?key)(?:_id)?$", re.IGNORECASE)
PLAIN = (bool, int, float, str, list, dict, type(None))
"""What a key of a file may be; a day or a set that YAML makes of a text is that text."""
MAX_VALUE = 1000
"""Characters of a value that YAML is asked for."""


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
        return {**_known(self.program, keys), **self.anew}

    def counted(self, known: Container[str]) -> dict[tuple[str, ...], Any]:
        """What the launcher says of those options and variables that the dialect takes."""
        return _known(self.launcher, known)

    def told(self) -> str:
        """What the script does, where its file cannot be opened."""
        told = f"starts a training whose configuration is {self.named}: open that file"
        keys = ", ".join(".".join(path) for path in self.anew)
        return f"{told}; options of the launch line win over it: {keys}" if keys else told


def started(text: str, path: Path | None) -> Started | None:
    """The training that a script starts with a file of settings; None where it starts none."""
    joined = inside(re.sub(r"\\\r?\n", " ", text))
    found = STARTED.search(joined)
    if found is None:
        return None
    end = joined.find("\n", found.start())
    until = joined[: end if end >= 0 else len(joined)]
    named, line = found[1], until[found.start() :]
    begins = max(found.start(), *(until.rfind(sign, 0, found.end(1)) for sign in (";", "&&")))
    behind = NEXT.search(until, found.end(1))
    ends = behind.start() if behind else len(until)
    upto = FOR_ONE.sub(r"\1", until[:begins]) + until[begins:ends]  # what is set for another command is not set for this one
    shell = _followed((upto + FOR_ONE.sub(r"\1", until[ends:]), upto + FOR_ONE.sub(r"\1", joined[ends:]), line), named, path)
    launcher, program, after = _parted(shell, named)
    options = OPTION.finditer(" ".join(program) or line)
    anew = {tuple(option[1].split(".")): option[2] for option in options if not (option[2] and _is(option[2], named))}
    anew |= {tuple(key[1].split(".")): key[2] for word in after if (key := ASSIGNED.fullmatch(word))}
    variables = shell.texts()
    if (devices := world_size(variables)) is not None:
        variables.setdefault("WORLD_SIZE", devices)
    told = {key: _value(value) for key, value in anew.items() if "$" not in str(value) and not SECRET.search(key[-1])}
    return Started(named, script_beside(path, named), told, variables | _options(launcher), _options(program))


def _followed(texts: tuple[str, ...], named: str, path: Path | None) -> Shell:
    """The shell that comes to the command: up to its line, else in the whole script (a function), else in that line alone."""
    first: Shell | None = None
    for text in texts:
        shell = Shell(variables=dict(first.variables) if first and text is texts[-1] else {})
        try:
            shell.run(in_one_word(inside(text)), named, path)
        except (InputError, RecursionError):
            continue
        if any(_is(part, named) for word, _ in shell.used for part in word.split()):
            return shell
        first = first or shell
    return first or Shell()


def _is(word: str, named: str) -> bool:
    """Whether a word is the file, whose folder may stand in a variable."""
    return word.strip("\"'").rpartition("/")[2] == named.rpartition("/")[2]


def _parted(shell: Shell, named: str) -> tuple[list[str], list[str], list[str]]:
    """Of the last command that starts the file: words before its program, words after that, and those after the file."""
    words: list[str] = []
    own: list[str] = []
    for word, _ in (*shell.used, (END, None)):
        if word == END:
            own = words if any(_is(one, named) for one in words) and STARTED.search(" ".join(words)) else own
            words = []
        else:
            parts = word.split()  # a launcher may take a whole command in one word
            words += parts if any(_is(part, named) for part in parts) else [word]
    if not own:
        return [], [], []
    at = next(place for place, word in enumerate(own) if _is(word, named))
    script = next((place for place, word in enumerate(own[:at]) if word.endswith(".py")), None)
    if script is None and (modules := [place for place, word in enumerate(own[:at]) if word in ("-m", "--module")]):
        script = modules[-1] + 1
    if script is None:  # the program is the command itself
        return [], own[at:], own[at + 1 :]
    return own[1:script], own[script + 1 :], own[at + 1 :]


def _options(words: list[str]) -> dict[str, Any]:
    """Options of a command by name, without those that have dots."""
    stated = args.parse(json.dumps(words), "", FLAGS, frozenset()).values
    return {name: value for name, value in stated.items() if "." not in name}


def _known(stated: dict[str, Any], wanted: Container[str]) -> dict[tuple[str, ...], Any]:
    """Of what is stated that which is wanted, is known without running the script, and is no secret."""
    named = {name: value for name, value in stated.items() if name in wanted and not SECRET.search(name)}
    return {(name,): _value(value) for name, value in named.items() if "$" not in str(value)}


def _value(text: Any) -> Any:
    """A value of the launch line as YAML has it, which is how programs read them; a text with marks of YAML's own is a text."""
    if text is None or (isinstance(text, str) and text.startswith("--")):
        return True
    if not isinstance(text, str):
        return text
    plain = text.strip("'\"")
    if re.fullmatch(r"[+-]?\d+(?:\.\d*)?[eE][+-]?\d+", plain):
        return float(plain)
    if len(plain) > MAX_VALUE or re.search(r"[&*!]|\d:\d", plain):
        return plain
    try:
        value = yaml.safe_load(plain)
    except (yaml.YAMLError, ValueError, RecursionError):
        return text
    return value if isinstance(value, PLAIN) else plain
