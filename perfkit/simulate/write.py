"""Write: a simulated run in a folder, as perfkit's own tables or in the form of a profiler, with the truth in faults.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfkit.errors import InputError
from perfkit.run import Run
from perfkit.trace.run_folder import write_run

FORMATS = ("perfkit", "kineto", "ascend")
TRUTH = "faults.json"


def write(run: Run, folder: str | Path, *, format: str = "perfkit", truth: Mapping[str, Any] | None = None) -> Path:
    """Write a run to a new folder in one of `FORMATS`; `truth` goes beside it as faults.json. Gives the folder.

    Raises InputError for another format, or if the folder holds something already; what is interrupted leaves no folder.
    """
    beside = {} if truth is None else {TRUTH: truth}
    if format == "perfkit":
        return write_run(run, folder, beside=beside)
    raise InputError("format", [f"{format!r} is none of {', '.join(FORMATS)}"])
