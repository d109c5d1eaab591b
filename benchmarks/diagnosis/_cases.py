"""Labelled cases: which faults at which severity in which layouts, and what a diagnosis must name for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

RULE_OF_FAULT = {
    "slow_rank": "slow-rank",
    "slow_link": "slow-link",
    "slow_op": "slow-operators",
    "data_stall": "data-feed",
    "host_bound": "host-bound",
    "frequent_sync": "frequent-sync",
    "gc_pause": "host-pause",
    "imbalanced_pp_stage": "stage-imbalance",
    "small_messages": "small-messages",
    "no_overlap": "exposed-communication",
    "unneeded_casts": "excess-casts",
    "aicpu_ops": "ai-cpu-on-path",
    "full_recompute": "recompute-cost",
    "memory_fragmentation": "memory-fragmentation",
    "jitter": "jitter",
    "clock_skew": "clock-skew",
    "moe_imbalance": "moe-imbalance",
}
"""The rule that must name each kind of fault; kinds are those of the labels."""


@dataclass(frozen=True, slots=True)
class Case:
    """A layout, a seed and the faults in it; a slow operator also needs the healthy twin as baseline."""

    data: int
    tensor: int
    pipeline: int
    seed: int
    steps: int = 6
    faults: tuple[str, ...] = ()

    @property
    def world(self) -> int:
        """Ranks of the case."""
        return self.data * self.tensor * self.pipeline

    @property
    def name(self) -> str:
        """A name that is a folder's too."""
        layout = f"dp{self.data}tp{self.tensor}pp{self.pipeline}s{self.seed}"
        return "_".join([layout, *(fault.replace(":", "_") for fault in self.faults)]) if self.faults else f"{layout}_healthy"


LAYOUTS = ((8, 1, 1), (4, 2, 1), (4, 2, 2), (4, 1, 4), (2, 4, 2), (8, 4, 1), (4, 4, 4))
RANK_FACTORS = (1.03, 1.05, 1.10, 1.2, 1.35, 2.0)
LINK_FACTORS = (1.2, 1.5, 2.0, 4.0)
OTHERS = (
    "data_stall:all:12",
    "data_stall:{rank}:25",
    "data_stall:all:40:3",
    "host_bound:all:12",
    "host_bound:{rank}:12",
    "gc_pause:{rank}:80:3",
    "gc_pause:all:80:4",
    "small_messages:64",
    "small_messages:128",
    "jitter:0.08",
    "jitter:0.15",
    "unneeded_casts:2",
    "unneeded_casts:4",
    "no_overlap",
    "memory_fragmentation:all:8",
    "memory_fragmentation:{rank}:12",
    "frequent_sync:8",
    "frequent_sync:32",
    "full_recompute",
    "aicpu_ops:1",
    "aicpu_ops:3",
    "clock_skew:{rank}:300",
    "clock_skew:{rank}:2000",
    "slow_op:MatMulBig:1.3",
    "slow_op:Attn:1.5",
)


def links_of(data: int, tensor: int, pipeline: int, seed: int) -> tuple[int, int]:
    """Two ranks that share a link: of one tensor group, one data group, or neighbouring stages, by the seed."""
    world = data * tensor * pipeline
    start = (seed * 7 + 3) % world
    t, d = start % tensor, (start // tensor) % data
    choices = []
    if tensor > 1:
        choices.append(start - t + (t + 1) % tensor)
    if data > 1:
        choices.append(start + ((d + 1) % data - d) * tensor)
    if pipeline > 1:
        choices.append((start + data * tensor) % world if start + data * tensor < world else start - data * tensor)
    other = choices[seed % len(choices)]
    return min(start, other), max(start, other)


def cases(seeds: range, kinds: tuple[str, ...] = (), *, largest: int = 64) -> Iterator[Case]:
    """All cases: every fault in every layout of up to `largest` ranks, and healthy runs with and without jitter of up to 3 %."""
    for seed in seeds:
        for data, tensor, pipeline in LAYOUTS:
            if data * tensor * pipeline > largest:
                continue
            world = data * tensor * pipeline
            rank = (seed * 5 + 3) % world
            faults = [f"slow_rank:{rank}:{factor}" for factor in RANK_FACTORS]
            first, second = links_of(data, tensor, pipeline, seed)
            faults += [f"slow_link:{first}-{second}:{factor}" for factor in LINK_FACTORS]
            faults += [text.format(rank=rank) for text in OTHERS]
            if pipeline > 1:
                faults += [f"imbalanced_pp_stage:{seed % pipeline}:{factor}" for factor in (1.5, 2.0)]
            for fault in faults:
                if not kinds or fault.split(":")[0] in kinds:
                    yield Case(data, tensor, pipeline, seed, faults=(fault,))
            if not kinds or "healthy" in kinds:
                yield Case(data, tensor, pipeline, seed)
                for sigma in (0.02, 0.03):
                    yield Case(data, tensor, pipeline, seed, faults=(f"jitter:{sigma}",))
