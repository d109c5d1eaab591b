"""What-if against the truth: injected faults are taken away by `what_if`, and the same plan is simulated without them.

    python -m benchmarks.simulate.bench_what_if [CASES]

Cases are drawn with a fixed seed: layouts of 2 to 16 ranks, kinds, places and sizes of faults. Printed are every case and, at the
end, the largest error of a step, its 95 % quantile, and how many cases lie within 3 %.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from statistics import fmean

import numpy as np

from perfkit.errors import InputError
from perfkit.simulate import simulate
from perfkit.simulate.run import prepare
from perfkit.spec.plan import Plan
from perfkit.what_if import what_if
from tests.simulate.plans import plan_of

LIMIT = 0.03
SEED = 20_260_101


def case(rng: random.Random) -> tuple[Plan, str, str]:
    """A plan, a fault, and the change that takes it away."""
    sizes = rng.choice([(4, 1, 1), (2, 2, 1), (1, 2, 2), (4, 2, 1), (2, 2, 2), (2, 1, 4), (4, 2, 2)])
    data, tensor, stages = sizes
    plan = plan_of("gpt-7.5b", data * rng.choice([2, 4]), dp=data, tp=tensor, pp=stages, seq=rng.choice([1024, 2048, 4096]))
    plan = replace(plan, model=replace(plan.model, num_layers=stages * rng.choice([1, 2])))
    ranks = data * tensor * stages
    rank = rng.randrange(ranks)
    factor = round(rng.uniform(1.05, 2.0), 2)
    name = rng.choice(["MatMulV2", "MatMulV3", "FlashAttentionScore", "RmsNorm", "SwiGlu"])
    stall = rng.randrange(10, 120)
    other = (rank + 1) % ranks
    return plan, *rng.choice(
        [
            (f"slow_rank:{rank}:{factor}", f"rank:{rank}"),
            (f"slow_op:{name}:{2 * factor}", f"operator:{name}:{2 * factor}"),
            (f"slow_link:{rank}-{other}:{2 * factor}", f"link:{rank}-{other}"),
            (f"data_stall:{rank}:{stall}", f"data:{rank}"),
            (f"host_bound:{rank}:{round(3 * factor, 2)}", f"host:{rank}"),
            (f"gc_pause:{rank}:{stall}", f"host:{rank}"),
        ]
    )


def main(count: int) -> None:
    """Draw cases and print them with their errors."""
    rng = random.Random(SEED)
    errors: list[float] = []
    refused: list[str] = []
    while len(errors) + len(refused) < count:
        plan, fault, change = case(rng)
        try:
            run = simulate(plan, [fault], steps=3)
        except InputError:
            continue  # ranks that exchange nothing have no link
        try:
            found = what_if(run, change)
        except InputError as error:
            refused.append(f"{fault}: {error.problems[0]}")
            continue
        truth = fmean(prepare(plan, [], steps=3).durations_ns())
        errors.append(found.step_ns / truth - 1)
        inside = "in" if found.low <= truth <= found.high else "OUT"
        print(f"{plan.num_devices:3d} ranks  {fault:32s} {found.before_ns / truth:6.3f} -> {errors[-1]:+.3%}  {inside}", flush=True)
    sizes = np.abs(errors)
    print(f"\n{len(sizes)} cases, {len(refused)} refused; within {LIMIT:.0%}: {int((sizes <= LIMIT).sum())}")
    print(f"largest error {sizes.max():.2%}, 95 % quantile {np.quantile(sizes, 0.95):.2%}, median {np.median(sizes):.3%}")
    print("\n".join(refused))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 120)
