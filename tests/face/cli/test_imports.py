"""What a command does not need it does not import: half of the time of a short one would go there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = str(Path(__file__).parents[2] / "data" / "traces" / "hta" / "critical_path")
DRAWING = ("altair", "ipywidgets", "IPython", "tornado", "jinja2", "scipy", "polars", "duckdb")
FRAMES = ("pandas", "numpy", "msgspec")
ROOMS = ("perfkit.config", "perfkit.predict", "perfkit.project", "perfkit.teach")
CODE = """
import sys
from perfkit.face.cli import main
try:
    main({words!r})
except SystemExit:
    pass
print("imported", [name for name in {unwanted!r} if name in sys.modules])
"""


@pytest.mark.parametrize(
    ("words", "unwanted"),
    [
        (["--help"], (*DRAWING, *FRAMES, *ROOMS, "perfkit.explain", "perfkit.record.load")),
        (["summary", SAMPLE, "--json"], (*DRAWING, *ROOMS, "perfkit.explain.ledger", "perfkit.explain.diagnose")),
        (["diagnose", SAMPLE, "--json"], (*DRAWING, "perfkit.project", "perfkit.teach", "perfkit.face.charts")),
    ],
)
def test_a_command_imports_no_engine_that_it_does_not_need(words: list[str], unwanted: tuple[str, ...]):
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(words=words, unwanted=unwanted)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "imported []"
