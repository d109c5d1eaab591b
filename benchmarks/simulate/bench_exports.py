"""Whether HolisticTraceAnalysis and msprof-analyze find in exported runs what was simulated; each in an environment of its own.

python -m benchmarks.simulate.bench_exports --hta ENV/bin/python --msprof ENV/bin/msprof-analyze

HTA leaves the last step out and rounds every kernel to whole microseconds, so its computing is compared over the other steps and is
a little less; version 0.5 needs pandas below 3.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import tempfile
from pathlib import Path

from benchmarks.simulate.bench_simulate import Case
from perfkit.core.run import Run
from perfkit.face.export.write import write
from perfkit.predict.simulate import simulate

CASE = Case("llama2-7b", 16, {"dp": 2, "tp": 2, "pp": 2}, faults=["slow_rank:5:1.3"])
HTA = """
import sys
from hta.trace_analysis import TraceAnalysis

if __name__ == "__main__":
    files = {rank: f"{sys.argv[1]}/rank{rank}.json" for rank in range(int(sys.argv[2]))}
    found = TraceAnalysis(trace_files=files, trace_dir=sys.argv[1]).get_temporal_breakdown(visualize=False)
    for row in found.to_dict("records"):
        print("row", int(row["rank"]), row["compute_time(us)"])
"""


def computing_us(run: Run, *, without_last: bool = False) -> dict[int, float]:
    """Computing by rank."""
    steps = run.steps()
    kept = steps[steps["step"] < steps["step"].max()] if without_last else steps
    return {int(rank): ns / 1e3 for rank, ns in kept.groupby("rank")["computing_ns"].sum().items()}


def by_hta(python: str, folder: Path, ranks: int) -> dict[int, float]:
    """Computing by rank as HTA finds it."""
    script = folder.parent / "read_with_hta.py"
    script.write_text(HTA)
    done = subprocess.run([python, str(script), str(folder), str(ranks)], check=True, capture_output=True, text=True)
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("row ")]
    return {int(rank): float(amount) for _, rank, amount in rows}


def by_msprof(command: str, folder: Path, out: Path) -> dict[int, float]:
    """Computing by rank as msprof-analyze finds it."""
    subprocess.run([command, "cluster", "-m", "all", "-d", str(folder), "-o", str(out)], check=True, capture_output=True)
    found: dict[int, float] = {}
    with (out / "cluster_analysis_output" / "cluster_step_trace_time.csv").open() as file:
        for row in csv.DictReader(file):
            if row["Type"] == "rank":
                found[int(row["Index"])] = found.get(int(row["Index"]), 0.0) + float(row["Computing"])
    return found


def report(tool: str, theirs: dict[int, float], ours: dict[int, float]) -> None:
    """Print the largest difference."""
    worst = max(abs(theirs[rank] / ours[rank] - 1) for rank in ours)
    print(f"{tool}: {len(theirs)} of {len(ours)} ranks, computing differs by at most {100 * worst:.3f} %")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--hta", help="a Python that has HolisticTraceAnalysis")
    parser.add_argument("--msprof", help="the command msprof-analyze")
    arguments = parser.parse_args()
    simulated = simulate(CASE.plan, CASE.faults, steps=CASE.steps)
    with tempfile.TemporaryDirectory() as work:
        if arguments.hta:
            target = write(simulated, Path(work) / "kineto", format="kineto")
            report("HTA", by_hta(arguments.hta, target, len(simulated.ranks)), computing_us(simulated, without_last=True))
        if arguments.msprof:
            target = write(simulated, Path(work) / "ascend", format="ascend")
            report("msprof-analyze", by_msprof(arguments.msprof, target, Path(work) / "out"), computing_us(simulated))
