"""What simulations cost (CPU seconds of a fresh process, peak memory), and how far healthy ones are from the prediction.

python -m benchmarks.simulate.bench_simulate
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from perfkit.core import catalog
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.workload import Workload
from perfkit.predict.estimate import estimate
from perfkit.predict.simulate import simulate

NAMES = {
    "dp": "data_parallel_size",
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "vp": "virtual_pipeline_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_parallel_size",
}


@dataclass(frozen=True)
class Case:
    """A plan on A100, the faults and steps to simulate, and whether all tables of events are made."""

    model: str
    batch: int
    sizes: dict[str, int]
    seq: int = 4096
    steps: int = 3
    faults: list[str] = field(default_factory=list)
    tables: bool = True

    @property
    def plan(self) -> Plan:
        return Plan(
            model=catalog.model(self.model),
            workload=Workload(seq_length=self.seq, micro_batch_size=1, global_batch_size=self.batch),
            parallel=ParallelPlan(**{NAMES[name]: size for name, size in self.sizes.items()}),
            hardware=catalog.hardware_named("A100-80GB-SXM"),
        )


CASES = {
    "64 ranks x 3 steps x 80 layers": Case("llama2-70b", 64, {"dp": 2, "tp": 4, "pp": 8}),
    "1,024 ranks, two faults": Case(
        "llama2-70b", 512, {"dp": 16, "tp": 8, "pp": 8}, faults=["slow_rank:777:1.2", "slow_link:3-4:3"], tables=False
    ),
    "16,384 ranks": Case("llama2-70b", 4096, {"dp": 128, "tp": 8, "pp": 16}, steps=1),
    "context parallel": Case("llama2-13b", 32, {"dp": 2, "tp": 2, "pp": 2, "cp": 2}, seq=16384),
    "experts": Case("mixtral-8x7b", 64, {"dp": 4, "tp": 2, "pp": 2, "ep": 4}),
    "interleaved": Case("llama2-70b", 128, {"dp": 2, "tp": 4, "pp": 4, "vp": 4}),
}


def run(name: str) -> None:
    """One case in this process; prints a row of the table."""
    case, before = CASES[name], time.process_time()
    found = simulate(case.plan, case.faults, steps=case.steps)
    rows: Any = sum(len(found.frame(table)) for table in ("kernels", "collectives")) if case.tables else "on demand"
    cost_s, peak = time.process_time() - before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    ratio = float(found.steps()["duration_ns"].max()) / 1e9 / estimate(case.plan).step_time_s
    off = f"{100 * (ratio - 1):+.2f} %" if not case.faults else "(faults)"
    print(f"| {name} | {cost_s:.1f} | {peak:.0f} | {rows} | {off} |")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(sys.argv[1])
    else:
        print("| plan | CPU s | peak MB | rows of events | step against the prediction |\n|---|---|---|---|---|", flush=True)
        for known in CASES:
            subprocess.run([sys.executable, "-m", "benchmarks.simulate.bench_simulate", known], check=True)
