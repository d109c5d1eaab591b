"""Solving cases to a proven optimum; the yardstick evaluates all single moves of the largest bundled case a few times.

    python -m benchmarks.plans.bench_balance [CASE.json ...] [TIME_LIMIT_S]

With case files it prints what each gives in the time limit (60 s unless named), beside the optimum that the file states.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from benchmarks.paired import compare
from perfkit.core.resources import data_folder
from perfkit.predict.plans.balance.balance import balance
from perfkit.predict.plans.balance.case_file import read_problem
from perfkit.predict.plans.balance.moves import LayerPlanner

CASES = ("dense_moe_4_stages", "gpt_175b_16_stages", "llama_96_layers_16_stages")
REPEATS = 5


def main(arguments: list[str]) -> None:
    """Print a line a case: of the files named, or paired with the yardstick."""
    if files := [Path(argument) for argument in arguments if not argument.isdigit()]:
        limit_s = next((float(argument) for argument in arguments if argument.isdigit()), 60.0)
        print(f"{'case':34s}{'status':>12s}{'makespan_ns':>14s}{'stated':>14s}{'bound_ns':>14s}{'gap':>8s}{'CPU s':>8s}{'s':>8s}")
        for file in files:
            print(line(file, limit_s), flush=True)
        return
    paired()


def line(file: Path, limit_s: float) -> str:
    """What one case gives, and the makespan or limit that its file expects."""
    expected = json.loads(file.read_text()).get("expected", {})
    start, cpu = time.monotonic(), time.process_time()
    result = balance(file, time_limit_s=limit_s)
    cells: tuple[object, object, object] = (
        result.makespan_ns,
        expected.get("makespan_ns", expected.get("best_known_ns")),
        result.bound_ns,
    )
    if result.makespan_ns is None:
        cells = (f"{result.smallest_feasible_limit_mib} MiB", f"{expected.get('smallest_feasible_limit_mib')} MiB", "-")
    gap = "-" if result.gap is None else f"{result.gap:.2%}"
    seconds = f"{time.process_time() - cpu:8.1f}{time.monotonic() - start:8.1f}"
    return f"{file.stem:34s}{result.status:>12s}" + "".join(f"{cell!s:>14s}" for cell in cells) + f"{gap:>8s}{seconds}"


def paired() -> None:
    """Print a ratio a bundled case, with its status."""
    folder = data_folder() / "plans"
    planner = LayerPlanner(read_problem(folder / "gpt_175b_16_stages_3_chunks.json"))
    layout = planner.layout(planner.even())
    for name in CASES:
        problem = read_problem(folder / f"{name}.json")
        result = balance(problem)
        print(f"{name}: {result.status}, gap {result.gap}, {result.rounds} rounds, {result.num_cuts} paths")
        print(
            compare(
                name,
                lambda problem=problem: balance(problem),
                lambda: [planner.moves(layout) for _ in range(REPEATS)],
                rounds=3,
            )
        )


if __name__ == "__main__":
    main(sys.argv[1:])
