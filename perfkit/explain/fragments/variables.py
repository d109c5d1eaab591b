"""Variables: what each environment variable is for, of exports and of those that stand before a command."""

from __future__ import annotations

import re

from perfkit.config.fragments.meanings import ENVIRONMENT, meanings
from perfkit.config.fragments.secrets import MASK
from perfkit.config.lint.subjects import Environment
from perfkit.core.texts import say

PROGRAMS = (
    r"(?:msrun|torchrun|mpirun|mpiexec|srun|deepspeed|accelerate\s+launch|python3?(?:\.\d+)?\s+(?:-\w\s+\S+\s+)*\S+|bash\s+\S+\.sh)"
)
"""Programs that start a training."""
STARTED = re.compile(rf"^\s*(?:[A-Z_]\w*=\S+\s+)+{PROGRAMS}\b")
"""Variables of one command, in front of it."""


def variable_lines(environment: Environment) -> list[str]:
    """A sentence a variable: its value, what it is for and its default; of one that is not known, that it is not."""
    known = meanings(ENVIRONMENT)
    says: list[str] = []
    for one in environment.variables:
        meaning = known.get(one.name)
        value = "a secret, not shown" if one.value == MASK else one.value
        form = "{key} = {value}: {meaning} (default {default})" if meaning else "{key} = {value}: not known to perfkit"
        text, default = (meaning.text, meaning.default) if meaning else ("", "")
        says.append(say(form, key=one.name, value=value, meaning=text, default=default))
    return says
