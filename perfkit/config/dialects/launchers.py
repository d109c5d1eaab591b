"""Commands that start another one: in a container, on other nodes, under a tool. What they hand to it, and the command alone.

`docker run -e HCCL_BUFFSIZE=400 image torchrun train.py` is `HCCL_BUFFSIZE=400 torchrun train.py`, with options that no training
has. Texts keep their lines.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence

PROGRAMS = (
    r"(?:msrun|torchrun|mpirun|mpiexec|srun|deepspeed|accelerate\s+launch|llamafactory-cli\s+\w+"
    r"|python3?(?:\.\d+)?\s+(?:-\w\s+\S+\s+)*\S+|bash\s+\S+\.sh)"
)
"""Programs that start a training."""
CONTAINER = (
    r"(?:(?:docker|podman|nerdctl)(?:[ -]compose)?\s+(?:container\s+)?(?:run|exec)"
    r"|(?:kubectl|oc)(?:\s+-\S+(?:\s+[^-\s]\S*)?){0,8}\s+(?:exec|run)"
    r"|(?:singularity|apptainer)\s+(?:exec|run)|enroot\s+start)\b"
)
"""Commands that run another one in a container."""
_TOOL = r"(?:numactl|taskset|timeout|stdbuf|nsys\s+profile|ncu|(?:conda|uv|poetry)\s+run|ssh|pdsh)\b"
_SHELL = r"(?<![\w./~-])(?:[\w./~-]*/)?(?:ba|z)?sh\s+-[a-z]*c\s"
_COMMAND = re.compile(r"(?:\\\r?\n|[^\n;|&])+")
_STARTER = re.compile(rf"(?<![\w./-])(?:sudo\s+(?:-\S+\s+)*)?(?:{CONTAINER}|{_TOOL})")
_HANDS = re.compile(rf"(?<![\w./-])(?:{CONTAINER}|(?:srun|mpirun|mpiexec)\b)")
_BEGINS = re.compile(rf"(?<=\s)(?<!--name\s)(?:--\s+)?(?={_SHELL}|env\s+\w+=|{PROGRAMS}(?![\w:/@-]))")
MOST_WORDS = 8
HANDING = frozenset({"-x", "-e", "--env", "--export"})
_BEGUN = re.compile(rf"[A-Za-z_]\w*=\S|(?:[\w./~-]*/)?(?:{PROGRAMS}|(?:ba|z)?sh\s+-[a-z]*c\s)")
"""How a command begins: with a variable that is set for it, a program or a shell."""
_VALUE = r"(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s\"']*)"
_ENV = re.compile(
    rf"(^|[;&|])([ \t]*(?:[A-Za-z_]\w*={_VALUE}[ \t]+)*)(?:sudo\s+(?:-\S+\s+)*)?(?:/usr/bin/)?env\s+(?:-(?:i|u\s*\w+)\s+)*"
    r"(?=[A-Za-z_]\w*=)",
    re.MULTILINE,
)
"""`env` before the variables that it sets for one command."""
_HANDED = re.compile(
    r"(?<!\S)(?:-e|-x|--env|--export)[ =]"
    rf"(?:\"([A-Za-z_]\w*=[^\"\n]*)\"|'([A-Za-z_]\w*=[^'\n]*)'|((?:ALL,|NONE,)?[A-Za-z_]\w*={_VALUE}))"
)
_KEPT = re.compile(rf"{_HANDED.pattern}|(\\\r?\n)")
_SET_FOR_IMAGE = re.compile(r"^([ \t]*)ENV[ \t]+(?:([A-Za-z_]\w*)[ \t]+(?![ \t=]))?", re.MULTILINE)
_STARTED_BY_IMAGE = re.compile(r"^[ \t]*(?:CMD|ENTRYPOINT)[ \t]+(\[.*\])[ \t\r]*$", re.MULTILINE)
_WORD = r"\s*(?:\"((?:\\.|[^\"\\])*)\"|'([^']*)')"
_REMOTE = re.compile(rf"(?<![\w./-])ssh(?:\s+-\S+){{0,8}}\s+[^-\s]\S*\s{_WORD}", re.DOTALL)
_IN_ONE_WORD = re.compile(_SHELL + _WORD, re.DOTALL)


def inside(text: str) -> str:
    """The text with programs that a container, a tool or another node runs as commands of their own, after what they are handed.

    Of the lines of a Dockerfile `ENV` becomes `export`, and what `CMD` or `ENTRYPOINT` starts a command.
    """
    text = _SET_FOR_IMAGE.sub(lambda found: f"{found[1]}export " + (f"{found[2]}=" if found[2] else ""), text)
    text = _STARTED_BY_IMAGE.sub(lambda found: _words(found[1]) or found[0], text)
    return _ENV.sub(r"\1\2", _COMMAND.sub(lambda found: _alone(found[0]), _REMOTE.sub(_unquoted, text)))


def in_one_word(text: str) -> str:
    """The text with commands that a shell is given in one word (`bash -c "..."`) as commands of their own."""
    return _IN_ONE_WORD.sub(_unquoted, _REMOTE.sub(_unquoted, text))


def _words(listed: str) -> str:
    """A command whose words stand in a JSON list; empty for another one."""
    try:
        words = json.loads(listed)
    except ValueError:
        return ""
    return shlex.join(words) if all(isinstance(word, str) for word in words) else ""


def _unquoted(found: re.Match[str]) -> str:
    return found[2] if found[1] is None else re.sub(r"\\([\"$`])", r"\1", found[1])


def begins(words: Sequence[str]) -> int:
    """At which of the words of a command that starts another one that one stands; 0 where none is known.

    A variable behind an option that hands it on begins nothing.
    """
    at_most = (at for at in range(1, len(words)) if words[at - 1] not in HANDING)
    return next((at for at in at_most if _BEGUN.match(" ".join(words[at : at + MOST_WORDS]))), 0)


def handed(text: str) -> Iterator[tuple[int, str, str]]:
    """Environment variables that commands hand to what they start, as options: the line, the name and the value of each."""
    line, at = 1, 0
    for command in _COMMAND.finditer(text):
        starter = None if _is_remark(command[0]) else _HANDS.search(command[0])
        if starter is None:
            continue
        begins = _BEGINS.search(command[0], starter.end())
        for found in _HANDED.finditer(command[0], starter.end(), begins.start() if begins else len(command[0])):
            line, at = line + text.count("\n", at, command.start() + found.start()), command.start() + found.start()
            for one in _set(found):
                name, _, value = one.partition("=")
                yield line, name, value.strip("\"'")


def _alone(command: str) -> str:
    if _is_remark(command):
        return command
    found, at = [], 0
    while (starter := _STARTER.search(command, at)) and (begins := _BEGINS.search(command, starter.end())):
        between = _KEPT.finditer(command, starter.end(), begins.end())
        kept = [one[0] if one[4] else " ".join(_set(one)) for one in between]
        found += [command[at : starter.start()], *(f"{one} " for one in kept)]
        at = begins.end()
    return "".join(found) + command[at:]


def _set(found: re.Match[str]) -> list[str]:
    """The assignments of one option, as a shell has them; those of a queue stand behind each other."""
    if quoted := found[1] or found[2]:
        name, _, value = quoted.partition("=")
        return [f"{name}='{value}'"]
    return re.split(r",(?=[A-Za-z_]\w*=)", found[3].removeprefix("ALL,").removeprefix("NONE,"))


def _is_remark(command: str) -> bool:
    return command.lstrip().startswith("#")
