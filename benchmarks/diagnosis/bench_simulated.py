"""How often a diagnosis is right on runs of `perfkit.simulate`: the same scores as `bench_generated`, from perfkit's own picture.

A diagnosis that knows only this picture may fail on other recordings; read it beside the figures of the generator.

example: python -m benchmarks.diagnosis.bench_simulated --seeds 2
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.diagnosis._scores import print_scores, record_of, scores_of
from perfkit.core import catalog
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.workload import Workload
from perfkit.explain.diagnose import diagnose, to_dict
from perfkit.predict.simulate import simulate, truth
from perfkit.predict.simulate.run import prepare

LAYOUTS = ((8, 1, 1, 1), (4, 2, 1, 1), (2, 2, 4, 1), (4, 2, 2, 4))
FAULTS = (
    "slow_rank:{rank}:1.1",
    "slow_rank:{rank}:1.35",
    "slow_link:{link}:2",
    "slow_link:{link}:4",
    "data_stall:all:60",
    "data_stall:{rank}:60",
    "gc_pause:{rank}:120:2",
    "gc_pause:all:120:3",
    "host_bound:all:8",
    "host_bound:{rank}:8",
    "frequent_sync:16",
    "no_overlap",
    "slow_op:MatMul:1.3",
    "imbalanced_pp_stage:0:1.5",
    "small_messages:400",
    "jitter:0.1",
    "unneeded_casts:8",
    "memory_fragmentation:{rank}:8",
    "full_recompute",
    "aicpu_ops:2",
    "clock_skew:{rank}:500",
    "moe_imbalance:2",
)


def plan_of(data: int, tensor: int, pipeline: int, expert: int) -> Plan:
    """A small model with eight micro batches on so many A100; with experts where they are spread."""
    model = replace(catalog.model("mixtral-8x7b" if expert > 1 else "gpt-7.5b"), num_layers=8)
    return Plan(
        model=model,
        workload=Workload(seq_length=2048, micro_batch_size=1, global_batch_size=8 * data),
        parallel=ParallelPlan(
            data_parallel_size=data, tensor_parallel_size=tensor, pipeline_parallel_size=pipeline, expert_parallel_size=expert
        ),
        hardware=catalog.hardware_named("A100-80GB-SXM"),
    )


def cases(seeds: range, kinds: tuple[str, ...]) -> Iterator[tuple[Plan, int, tuple[str, ...]]]:
    """Plans with a seed and one fault or none; faults that a layout cannot have are left out."""
    for seed in seeds:
        for data, tensor, pipeline, expert in LAYOUTS:
            plan = plan_of(data, tensor, pipeline, expert)
            rank = (5 * seed + 3) % (data * tensor * pipeline)
            link = f"{rank - rank % 2}-{rank - rank % 2 + 1}"
            for text in ("", "jitter:0.02", *FAULTS):
                kind = text.split(":")[0]
                possible = (pipeline > 1 or kind != "imbalanced_pp_stage") and (expert > 1 or kind != "moe_imbalance")
                if possible and (not kinds or (kind or "healthy") in kinds):
                    yield plan, seed, (text.format(rank=rank, link=link),) if text else ()


def main() -> None:
    """Simulate, diagnose, score, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", default=(), help="only these kinds of fault; healthy for runs without")
    parser.add_argument("--results", type=Path, help="a file of JSON lines to add to; runs that it has are not made again")
    parser.add_argument("--verbose", action="store_true", help="print every miss, every alarm and every wrong cost")
    arguments = parser.parse_args()
    results: Path | None = arguments.results
    text = results.read_text(encoding="utf-8") if results is not None and results.exists() else ""
    records = [json.loads(line) for line in text.splitlines()]
    known = {record["name"] for record in records}
    started, count = time.process_time(), 0
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    for plan, seed, faults in cases(seeds, tuple(arguments.kinds)):
        name = _name_of(plan, seed, faults)
        if name in known:
            continue
        baseline = simulate(plan, (), seed=seed, steps=5) if any(fault.startswith("slow_op") for fault in faults) else None
        found = to_dict(diagnose(simulate(plan, faults, seed=seed, steps=5), baseline))
        records.append(record_of(name, faults, found, truth(prepare(plan, faults, seed=seed, steps=5))))
        count += 1
        if results is not None:
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(records[-1]) + "\n")
    print_scores(*scores_of(records, verbose=arguments.verbose))
    print(f"\n{len(records)} runs, {count} of them now in {time.process_time() - started:.0f} cpu-s with simulation")


def _name_of(plan: Plan, seed: int, faults: tuple[str, ...]) -> str:
    sizes = plan.parallel
    layout = f"dp{sizes.data_parallel_size}tp{sizes.tensor_parallel_size}pp{sizes.pipeline_parallel_size}"
    return f"{layout}ep{sizes.expert_parallel_size}s{seed} {' '.join(faults)}".strip()


if __name__ == "__main__":
    main()
