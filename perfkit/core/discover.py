"""Discovery: the one constant of every plug-in module below a package, so that adding a plug-in edits no list."""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path
from typing import Any


@cache
def modules(package: str, name: str) -> dict[str, str]:
    """The public modules below `package` whose text assigns the constant `name`, by their own name, in its order.

    Other modules beside them hold what plug-ins share. Only texts are read: nothing but the package itself is imported.
    """
    assigns = re.compile(rf"^{name}\b[^=\n]*=", re.MULTILINE)
    found = {}
    for folder in map(Path, importlib.import_module(package).__path__):
        for path in folder.rglob("*.py"):
            if not path.stem.startswith("_") and assigns.search(path.read_text(encoding="utf-8")):
                found[path.stem] = ".".join((package, *path.relative_to(folder).with_suffix("").parts))
    return dict(sorted(found.items()))


@cache
def constants(package: str, name: str) -> tuple[Any, ...]:
    """The constant `name` of every plug-in below `package`, ordered by module name."""
    return tuple(getattr(importlib.import_module(module), name) for module in modules(package, name).values())


def constant(package: str, module: str, name: str) -> Any:
    """The constant of the plug-in `module`, importing no other one. Raises ImportError if there is none."""
    known = modules(package, name)
    if module not in known:
        raise ImportError(f"{package} has no plug-in {module!r}")
    return getattr(importlib.import_module(known[module]), name)
