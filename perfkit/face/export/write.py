"""Write: a simulated run in a folder, as perfkit's own tables or in the form of a profiler, with the truth in faults.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfkit.core.errors import InputError
from perfkit.core.run import Run
from perfkit.face.export.ascend import write_ascend
from perfkit.face.export.kineto import write_kineto
from perfkit.record.run_folder import new_folder, write_run

FORMATS = ("perfkit", "kineto", "ascend")
TRUTH = "faults.json"
_EXPORTS = {"kineto": write_kineto, "ascend": write_ascend}


def write(run: Run, folder: str | Path, *, format: str = "perfkit", truth: Mapping[str, Any] | None = None) -> Path:
    """Write a run to a new folder in one of `FORMATS`; `truth` goes beside it as faults.json. Gives the folder.

    Raises InputError for another format, or if the folder holds something already; what is interrupted leaves no folder.
    """
    beside = {} if truth is None else {TRUTH: truth}
    if format == "perfkit":
        return write_run(run, folder, beside=beside)
    if format not in _EXPORTS:
        raise InputError("format", [f"{format!r} is none of {', '.join(FORMATS)}"])
    target = Path(folder).expanduser()
    with new_folder(target) as work:
        _EXPORTS[format](run, work)
        for name, document in beside.items():
            (work / name).write_text(json.dumps(document, indent=1), encoding="utf-8")
    return target
