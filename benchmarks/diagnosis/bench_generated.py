"""How often a diagnosis is right: recall, precision and false alarms on labelled runs of a generator.

The generator is a Python script with a function `main(arguments)` that writes a run and its labels:
`ascend --out DIR --truth FILE --dp N --tp N --pp N --seed N --steps N [--fault KIND:ARGS] [--timeline all]`, or `kineto` likewise.
Labels are JSON with `healthy` and `faults`, each with `kind`, `ranks`, `links`, `stages`, `op_type`, `factor` and `cost_share`.

example: python -m benchmarks.diagnosis.bench_generated path/to/generator.py --seeds 2
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.diagnosis._cases import Case, cases
from benchmarks.diagnosis._scores import Score, judge, print_scores
from perfkit.diagnose import diagnose, to_dict
from perfkit.trace.load import load


def main() -> None:
    """Generate, diagnose, score, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("generator", help="the generator's Python file")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0, help="held-out seeds start here")
    parser.add_argument("--limit", type=int, help="only so many of the cases, drawn at random")
    parser.add_argument("--largest", type=int, default=64, help="ranks of the largest layout")
    parser.add_argument("--format", choices=("ascend", "kineto"), default="ascend")
    parser.add_argument("--kinds", nargs="*", default=(), help="only these kinds of fault; healthy for runs without")
    parser.add_argument("--verbose", action="store_true", help="print every miss and every alarm")
    arguments = parser.parse_args()
    make = _generator(Path(arguments.generator))
    scores: dict[str, Score] = defaultdict(Score)
    other: dict[str, int] = defaultdict(int)
    started, count = time.process_time(), 0
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    chosen = list(cases(seeds, tuple(arguments.kinds), largest=arguments.largest))
    if arguments.limit is not None:
        chosen = random.Random(arguments.first_seed).sample(chosen, min(arguments.limit, len(chosen)))
    for case in _until_stopped(chosen):
        with tempfile.TemporaryDirectory() as folder:
            found, truth = _diagnosed(case, make, Path(folder), arguments.format)
        count += 1
        judge((case.name, case.faults), found, truth, scores, other, verbose=arguments.verbose)
    print_scores(scores, other)
    print(f"\n{count} runs, {time.process_time() - started:.0f} cpu-s with generation")


def _until_stopped(chosen: list[Case]) -> Iterator[Case]:
    """The cases in turn, until SIGTERM: what is known then is printed."""
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    for case in chosen:
        if stopped:
            return
        yield case


def _generator(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("run_generator", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_generator"] = module
    spec.loader.exec_module(module)
    return module.main


def _written(case: Case, make: Any, folder: Path, format: str, faults: tuple[str, ...]) -> tuple[Path, dict[str, Any]]:
    out, truth = folder / "run", folder / "truth.json"
    shutil.rmtree(out, ignore_errors=True)
    arguments = [format, "--out", str(out), "--truth", str(truth), "--seed", str(case.seed), "--steps", str(case.steps)]
    arguments += ["--dp", str(case.data), "--tp", str(case.tensor), "--pp", str(case.pipeline)]
    if format == "ascend" and any(fault.startswith(("frequent_sync", "gc_pause", "host_bound", "memory")) for fault in faults):
        arguments += ["--timeline", "all"]
    for fault in faults:
        arguments += ["--fault", fault]
    with contextlib.redirect_stdout(io.StringIO()):
        make(arguments)
    return out, json.loads(truth.read_text(encoding="utf-8"))


def _diagnosed(case: Case, make: Any, folder: Path, format: str) -> tuple[dict[str, Any], dict[str, Any]]:
    baseline = None
    if any(fault.startswith("slow_op") for fault in case.faults):
        out, _ = _written(case, make, folder / "base", format, ())
        baseline = load(out, cache=False)
    out, truth = _written(case, make, folder, format, case.faults)
    return to_dict(diagnose(load(out, cache=False), baseline)), truth


if __name__ == "__main__":
    main()
