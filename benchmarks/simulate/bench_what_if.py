"""What-if against the truth: injected faults are taken away by `what_if`, and the same plan is simulated without them.

    python -m benchmarks.simulate.bench_what_if [CASES [SEED]]

Cases are drawn with a fixed seed: layouts of 2 to 16 ranks with up to eight stages, chunks, context and expert parallel; kinds,
places and sizes of faults, one or two at once. Printed are every case and, at the end, by kind and for all, how many cases lie
within 3 %, the largest error and its quantiles, and how many intervals hold the truth.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from statistics import fmean

import numpy as np

from benchmarks.simulate._what_if_cases import Case, cases
from perfkit.core.errors import InputError
from perfkit.explain.what_if import what_if
from perfkit.predict.simulate import simulate
from perfkit.predict.simulate.run import prepare

LIMIT = 0.03
SEED = 20_260_101
STEPS = 3


def judged(case: Case) -> tuple[float, bool] | str:
    """How far the answer is from the true step, as a share, and whether the interval holds that; or why there is no answer."""
    run = simulate(case.plan, case.faults, steps=STEPS, seed=case.seed)
    try:
        found = what_if(run, case.changes)
    except InputError as error:
        return "; ".join(error.problems)
    truth = fmean(prepare(case.plan, [], steps=STEPS, seed=case.seed).durations_ns())
    print(f"{case.layout:20s} {' '.join(case.faults):40s} {found.before_ns / truth:6.3f} -> ", end="")
    return found.step_ns / truth - 1, found.low <= truth <= found.high


def main(count: int, seed: int) -> None:
    """Draw cases, and print them with their errors."""
    errors: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    refused: list[str] = []
    for case in cases(count, seed):
        found = judged(case)
        if isinstance(found, str):
            refused.append(f"{case.layout} {' '.join(case.faults)} seed {case.seed}: {found}")
            continue
        errors["two at once" if len(case.faults) > 1 else case.faults[0].split(":")[0]].append(found)
        print(f"{found[0]:+.3%}  {'in' if found[1] else 'OUT'}", flush=True)
    print("\n| fault | cases | within 3 % | largest error | interval holds |\n|---|---|---|---|---|")
    whole = [value for values in errors.values() for value in values]
    for kind, judgements in [*sorted(errors.items()), ("all", whole)]:
        sizes, held = np.abs([error for error, _ in judgements]), sum(inside for _, inside in judgements)
        print(f"| {kind} | {len(sizes)} | {int((sizes <= LIMIT).sum())} | {sizes.max():.2%} | {held} |")
    print(f"\n95 % quantile {np.quantile(sizes, 0.95):.3%}, median {np.median(sizes):.4%}; {len(refused)} refused")
    print("\n".join(refused))
    print(f"{time.process_time():.0f} CPU s")


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[1:]]
    main(*(numbers + [120, SEED][len(numbers) :]))
