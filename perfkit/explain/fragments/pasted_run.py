"""Pasted runs: text of a log or table as the run that its reader makes of it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from perfkit.core.run import Run
from perfkit.record.load import load


def pasted_run(text: str, file: str) -> Run:
    """The run of one file with this text. Raises InputError as `load` does; nothing stays on disk."""
    with tempfile.TemporaryDirectory(prefix="perfkit-") as folder:
        place = Path(folder) / file
        place.write_text(text + "\n", encoding="utf-8")
        run = load(place, cache=False)
        for name in ("log", "memory_reports", "memory_blocks", "steps"):
            if name in run.tables:
                len(run.frame(name))  # read while the file is there
        return run
