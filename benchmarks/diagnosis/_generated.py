"""Runs of a generator that is given as a Python file: see `bench_generated` for what it must offer."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.diagnosis._cases import Case


def generator(path: Path) -> Any:
    """The function `main(arguments)` of the file."""
    spec = importlib.util.spec_from_file_location("run_generator", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_generator"] = module
    spec.loader.exec_module(module)
    return module.main


def written(case: Case, make: Any, folder: Path, arguments: Sequence[str], faults: Sequence[str]) -> tuple[Path, dict[str, Any]]:
    """Write the run with these faults below `folder` in place of an older one; returns where it is, and its labels."""
    out, truth = folder / "run", folder / "truth.json"
    shutil.rmtree(out, ignore_errors=True)
    told = [*arguments, "--out", str(out), "--truth", str(truth), "--seed", str(case.seed), "--steps", str(case.steps)]
    told += ["--dp", str(case.data), "--tp", str(case.tensor), "--pp", str(case.pipeline)]
    for fault in faults:
        told += ["--fault", fault]
    with contextlib.redirect_stdout(io.StringIO()):
        make(told)
    return out, json.loads(truth.read_text(encoding="utf-8"))


def records_in(results: Path | None) -> list[dict[str, Any]]:
    """The lines of an earlier, unfinished benchmark, if there was one."""
    if results is None or not results.exists():
        return []
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]


def until_stopped(chosen: Sequence[Case]) -> Iterator[Case]:
    """The cases in turn, until SIGTERM: what is known then is printed."""
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    for case in chosen:
        if stopped:
            return
        yield case
