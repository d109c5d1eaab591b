"""Two ranks: the bundled profile of two NPUs as its tables alone tell it, without the timelines that lie beside them."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from perfkit.core.resources import data_folder


@cache
def by_tables() -> Path:
    """A copy of the profile without its timelines."""
    home = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    leave = shutil.ignore_patterns("trace_view.json*")
    return Path(shutil.copytree(data_folder() / "traces" / "torch_npu_2rank", home / "torch_npu_2rank", ignore=leave))
