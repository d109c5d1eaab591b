"""Discovery: the one constant of every module in a plug-in package, so that adding a plug-in edits no list."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any


@cache
def constants(package: str, name: str) -> tuple[Any, ...]:
    """The constant `name` of every public module in `package`, ordered by module name.

    Modules whose name starts with an underscore hold types and helpers and are left out. A module without the constant is a
    programming error and raises AttributeError.
    """
    parent = importlib.import_module(package)
    modules = sorted(info.name for info in pkgutil.iter_modules(parent.__path__) if not info.name.startswith("_"))
    return tuple(getattr(importlib.import_module(f"{package}.{module}"), name) for module in modules)


def constant(package: str, module: str, name: str) -> Any:
    """The constant of one module, importing no other one. Raises ImportError or AttributeError if there is none."""
    return getattr(importlib.import_module(f"{package}.{module}"), name)
