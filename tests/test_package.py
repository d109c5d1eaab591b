"""The package itself: its public names."""

from __future__ import annotations

import subprocess
import sys

import pytest

import perfkit


@pytest.mark.parametrize("name", [name for name in dir(perfkit) if name != "__version__"])
def test_a_public_name_stays_callable_after_its_module_was_imported(name):
    code = f"import importlib, perfkit; importlib.import_module(perfkit._PUBLIC[{name!r}]); assert callable(perfkit.{name})"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
