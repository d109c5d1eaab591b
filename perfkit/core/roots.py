"""Roots: the folders outside of which the app opens nothing for its visitors, and the one check of it.

In the app these are the project, the samples, and what was named at the start: `PERFKIT_ROOTS`, and what the project's own file
opens. Elsewhere there is no limit unless `PERFKIT_ROOTS` sets one: whoever runs perfkit in a shell or a notebook has the machine.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from perfkit.core import settings
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder

_ABSOLUTE = re.compile(r"(^|[\s'\"(:=])(?:/[\w.@+~-]+){2,}/([\w.@+~-]+)")
"""A path of the server in a sentence."""


def roots() -> tuple[Path, ...]:
    """Folders that may be opened, links followed; empty: any."""
    chosen = settings.allowed_roots()
    if not chosen and not settings.in_app():
        return ()
    project = settings.project_folder()
    own = (project.resolve(),) if project else ()
    return tuple(dict.fromkeys((*chosen, *own, *settings.named_at_start(), data_folder().resolve())))


def is_allowed(path: str | Path) -> bool:
    """Whether `path`, with its links followed now, lies where files may be opened."""
    found = roots()
    return not found or any(_real(path).is_relative_to(root) for root in found)


def checked(path: str | Path) -> Path:
    """`path` with `~` for what it stands for; raises InputError if it lies outside of the roots."""
    if not is_allowed(path):
        raise InputError(Path(path).name, ["is outside of the folders that this server opens (PERFKIT_ROOTS names others)"])
    return Path(path).expanduser()


def told(text: str) -> str:
    """`text` for visitors: where a folder of this server stands in it, its last name is enough."""
    for root in sorted(map(str, roots()), key=len, reverse=True):
        text = text.replace(f"{root}{os.sep}", f"{os.path.basename(root)}{os.sep}").replace(root, os.path.basename(root))  # noqa: PTH119
    return _ABSOLUTE.sub(r"\1…/\2", text) if roots() else text


def _real(path: str | Path) -> Path:
    try:
        return Path(path).expanduser().resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, no home, a NUL: nothing that could be opened
        return Path("/dev/null/none")
