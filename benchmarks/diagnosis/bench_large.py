"""What a diagnosis of many ranks takes: CPU seconds and peak memory of `perfkit diagnose RUN --json` in a fresh process, uncached.

The run is what a team has that profiles in two passes: of all ranks the summaries (step_trace_time.csv, communication.json,
communication_matrix.json, op_statistic.csv, memory_record.csv), and of those that a diagnosis of the summaries would look at,
filled up to `--suspects` with others, also kernel_details.csv and trace_view.json. One rank computes 1.2 times as long as the rest.

The generator is a Python script as in `bench_generated` that also takes `--ranks`, `--timeline` and `--no-kernel-details`. Making
the run takes some minutes; with `--folder` it is kept, and measured as it is if it is there.

example: python -m benchmarks.diagnosis.bench_large path/to/generator.py --folder /tmp/large --times 3
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.diagnosis._generated import generator
from perfkit.core.units import KIB, format_bytes
from perfkit.explain.diagnose.case import Case
from perfkit.record.load import load

SLOW_RANK, FACTOR = 0.505, 1.2
"""Where the slow rank is among all, and how much longer it computes."""


def main() -> None:
    """Make the run unless it is there, diagnose it and print what that took."""
    arguments = _arguments()
    if arguments.generator is None:
        print("bench_large needs the Python file of a generator; see --help")
        return
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(arguments.folder or scratch) / "run"
        if not run.exists():
            _make(run, generator(Path(arguments.generator)), arguments)
        print(_described(run))
        for _ in range(arguments.times):
            _measure(run, Path(scratch))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("generator", nargs="?", help="the generator's Python file")
    parser.add_argument("--folder", help="where the run is, or is to be kept")
    parser.add_argument("--data", type=int, default=256)
    parser.add_argument("--tensor", type=int, default=1)
    parser.add_argument("--pipeline", type=int, default=4)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--micro", type=int, default=32, help="with 32 layers and 4 steps a timeline has 20 MB")
    parser.add_argument("--suspects", type=int, default=16, help="ranks with kernels and a timeline")
    parser.add_argument("--times", type=int, default=1, help="how often to measure")
    return parser.parse_args()


def _make(run: Path, make: Any, arguments: argparse.Namespace) -> None:
    """Write the run in two passes of equal seeds."""
    num_ranks = arguments.data * arguments.tensor * arguments.pipeline
    told = ["ascend", "--no-cost", "--seed", "1", "--fault", f"slow_rank:{int(SLOW_RANK * num_ranks)}:{FACTOR}"]
    told += ["--dp", str(arguments.data), "--tp", str(arguments.tensor), "--pp", str(arguments.pipeline)]
    told += ["--steps", str(arguments.steps), "--layers", str(arguments.layers), "--micro", str(arguments.micro)]
    first, second = run.with_name("first"), run.with_name("second")
    for left in (first, second):
        shutil.rmtree(left, ignore_errors=True)
    with contextlib.redirect_stdout(io.StringIO()):
        make([*told, "--out", str(first), "--no-kernel-details"])
        chosen = list(Case(load(first, cache=False)).detail_ranks)
        others = (rank for rank in range(num_ranks) if rank not in chosen)
        chosen += [next(others) for _ in range(arguments.suspects - len(chosen))]
        listed = ",".join(map(str, sorted(chosen)))
        make([*told, "--out", str(second), "--ranks", listed, "--timeline", listed])
    for folder in second.iterdir():
        shutil.rmtree(first / folder.name)
        folder.rename(first / folder.name)
    first.rename(run)


def _described(run: Path) -> str:
    timelines = [path.stat().st_size for path in run.rglob("trace_view.json")]
    ranks = sum(1 for _ in run.rglob("step_trace_time.csv"))
    size = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
    return (
        f"{ranks} ranks, {size / 1e6:,.0f} MB, of them {len(timelines)} timelines of "
        f"{min(timelines, default=0) / 1e6:.1f} to {max(timelines, default=0) / 1e6:.1f} MB"
    )


def _measure(run: Path, scratch: Path) -> None:
    """Diagnose in a process of its own, with a cache folder of its own, and print what it took with its children."""
    with tempfile.TemporaryDirectory(dir=scratch) as cache, (scratch / "told.json").open("w+b") as told:
        process = subprocess.Popen(
            [sys.executable, "-m", "perfkit", "diagnose", str(run), "--json"],
            stdout=told,
            env=os.environ | {"PERFKIT_CACHE": cache},
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"perfkit diagnose ended with {process.returncode}")
        told.seek(0)
        found = json.load(told)
    findings = "; ".join(f"{finding['rule']} {finding['subject'].get('ranks', '')}" for finding in found["findings"])
    took = f"{used.ru_utime:.1f} + {used.ru_stime:.1f} cpu-s (user + system), {format_bytes(used.ru_maxrss * KIB)}"
    print(f"{took}; findings: {findings or 'none'}", flush=True)


if __name__ == "__main__":
    main()
