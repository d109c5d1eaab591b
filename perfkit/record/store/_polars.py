"""Polars, imported when something of it is first used: to open a kept run takes longer with it than without."""

from __future__ import annotations

import importlib
from typing import Any


class _Polars:
    """Stands for the module."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module("polars"), name)


pl = _Polars()
