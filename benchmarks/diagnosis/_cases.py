"""Labelled cases: which faults at which severity in which layouts, and what a diagnosis must name for each."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

HEALTHY = "healthy"
HEALTHY_JITTER = 0.05
MAYBE_ALL = ("data_stall", "host_bound", "gc_pause", "memory_fragmentation")
"""Faults of one rank or of all."""
WITH_SUBJECT = (*MAYBE_ALL, "slow_rank", "slow_node", "slow_link", "clock_skew", "imbalanced_pp_stage")
"""Faults whose text names a rank, node, link or stage first."""

RULE_OF_FAULT = {
    "slow_rank": "slow-rank",
    "slow_node": "slow-rank",
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

    @property
    def written_faults(self) -> tuple[str, ...]:
        """The faults as the generator takes them: a slow node is all of its ranks."""
        return tuple(text for fault in self.faults for text in _of_ranks(fault))


def _of_ranks(fault: str) -> tuple[str, ...]:
    kind, *rest = fault.split(":")
    if kind != "slow_node":
        return (fault,)
    first = int(rest[0]) * NODE_SIZE
    return tuple(f"slow_rank:{rank}:{rest[1]}" for rank in range(first, first + NODE_SIZE))


NODE_SIZE = 8
"""Devices of a node in the generated runs."""
LAYOUTS = ((8, 1, 1), (4, 2, 1), (4, 2, 2), (4, 1, 4), (2, 4, 2), (8, 4, 1), (4, 4, 4))
LARGE_LAYOUTS = ((32, 8, 1), (16, 4, 4), (16, 8, 4))
"""Layouts of 256 and 512 ranks, with the faults of ranks, nodes and links only."""
RANK_FACTORS = (1.03, 1.05, 1.10, 1.2, 1.35, 2.0)
NODE_FACTORS = (1.05, 1.2)
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


def label_of(faults: tuple[str, ...]) -> str:
    """The kind and severity of the first fault, without the rank, stage or link that has it; healthy without faults."""
    if not faults:
        return HEALTHY
    kind, *rest = faults[0].split(":")
    if kind == "jitter" and float(rest[0]) <= HEALTHY_JITTER:
        return HEALTHY
    who = "one " if kind in MAYBE_ALL and rest[0] != "all" else "all " if kind in MAYBE_ALL else ""
    return f"{kind} {who}{':'.join(rest[1:] if kind in WITH_SUBJECT else rest)}".strip()


def cases(seeds: range, kinds: tuple[str, ...] = (), *, largest: int = 64) -> Iterator[Case]:
    """All cases: every fault in every layout of up to `largest` ranks, and healthy runs with and without jitter of up to 5 %."""
    for seed in seeds:
        for layout in (*LAYOUTS, *LARGE_LAYOUTS):
            if math.prod(layout) > largest:
                continue
            faults = list(_faults(layout, seed, few=layout in LARGE_LAYOUTS))
            yield from (Case(*layout, seed, faults=(fault,)) for fault in faults if not kinds or fault.split(":")[0] in kinds)
            if not kinds or HEALTHY in kinds:
                yield Case(*layout, seed)
                for sigma in (0.02, 0.03, HEALTHY_JITTER):
                    yield Case(*layout, seed, faults=(f"jitter:{sigma}",))


def _faults(layout: tuple[int, int, int], seed: int, *, few: bool) -> Iterator[str]:
    """Every fault that a layout can have, one at a time; `few`: those of ranks, nodes and links."""
    data, tensor, pipeline = layout
    world = data * tensor * pipeline
    rank = (seed * 5 + 3) % world
    yield from (f"slow_rank:{rank}:{factor}" for factor in RANK_FACTORS)
    if world > NODE_SIZE:
        yield from (f"slow_node:{rank // NODE_SIZE}:{factor}" for factor in NODE_FACTORS)
    first, second = links_of(data, tensor, pipeline, seed)
    yield from (f"slow_link:{first}-{second}:{factor}" for factor in LINK_FACTORS)
    if few:
        return
    yield from (text.format(rank=rank) for text in OTHERS)
    if pipeline > 1:
        yield from (f"imbalanced_pp_stage:{seed % pipeline}:{factor}" for factor in (1.5, 2.0))


def drawn(chosen: list[Case], each: int, seed: int) -> list[Case]:
    """At most `each` cases of every kind and severity, of different layouts and seeds as far as there are."""
    by_label: dict[str, list[Case]] = {}
    for case in random.Random(seed).sample(chosen, len(chosen)):
        by_label.setdefault(label_of(case.faults), []).append(case)
    found: list[Case] = []
    for like in by_label.values():
        mine: list[Case] = []
        while like and len(mine) < each:
            seeds, worlds = Counter(case.seed for case in mine), Counter(case.name.split("s")[0] for case in mine)
            mine.append(min(like, key=lambda case: (seeds[case.seed], worlds[case.name.split("s")[0]])))
            like.remove(mine[-1])
        found += mine
    return sorted(found, key=lambda case: case.world)
