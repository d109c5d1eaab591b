"""Variables: what each environment variable is for, of exports and of those that stand before a command."""

from __future__ import annotations

import re

from perfkit.config.dialects.launchers import CONTAINER, PROGRAMS, in_one_word, inside
from perfkit.config.fragments.meanings import ENVIRONMENT, meanings
from perfkit.config.fragments.secrets import MASK
from perfkit.config.lint.subjects import Environment
from perfkit.core.texts import say

SIZES = {
    "TP": "tensor parallel",
    "PP": "pipeline parallel",
    "CP": "context parallel",
    "EP": "expert parallel",
    "DP": "data parallel",
    "MBS": "micro batch size",
    "GBS": "global batch size",
}
"""What variables of launch scripts are, by the names that most of them use."""
_FIRST = r"(?:(?:cd|source|\.|export|set)\s[^\n]*?(?:&&|;)\s*)?(?:nohup\s+|time\s+|exec\s+|sudo\s+|env\s+)*"
_STARTS = re.compile(rf"^\s*{_FIRST}(?:[A-Za-z_]\w*=\S*\s+)*{PROGRAMS}\b(?!:)")
_CONTAINER = re.compile(rf"^\s*(?:nohup\s+|time\s+|exec\s+|sudo\s+)*{CONTAINER}")


def starts_program(line: str) -> bool:
    """Whether a line starts a training, by itself or in a container, whatever stands before the program."""
    return _CONTAINER.match(line) is not None or _STARTS.match(in_one_word(inside(line))) is not None


def variable_lines(environment: Environment) -> list[str]:
    """A sentence a variable: its value, what it is for and its default; of one that is not known, that it is not."""
    known = meanings(ENVIRONMENT)
    says: list[str] = []
    for one in environment.variables:
        meaning = known.get(one.name)
        value = "a secret, not shown" if one.value == MASK else one.value
        form = "{key} = {value}: {meaning} (default {default})" if meaning else "{key} = {value}: not known to perfkit"
        text, default = (meaning.text, meaning.default) if meaning else ("", "")
        if meaning is None and (size := SIZES.get(one.name.removesuffix("_SIZE"))):
            form, text = "{key} = {value}: by its name {meaning}; it counts where the script hands it to an option", size
        says.append(say(form, key=one.name, value=value, meaning=text, default=default))
    return says
