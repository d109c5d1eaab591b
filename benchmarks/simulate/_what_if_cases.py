"""Random cases of what-if: plans of all kinds of layouts, faults in them, and the changes that take the faults away."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan
from perfkit.predict.simulate.run import prepare
from tests.predict.simulate.plans import plan_of

MAX_RANKS = 16
KERNELS = ("MatMulV2", "MatMulV3", "FlashAttentionScore", "FlashAttentionScoreGrad", "RmsNorm", "SwiGlu", "Add")
AWAY = 1e6
"""An operator that is so many times faster is gone."""


@dataclass(frozen=True, slots=True)
class Case:
    """A plan with faults, and the changes that take them away."""

    plan: Plan
    faults: tuple[str, ...]
    changes: tuple[str, ...]
    seed: int

    @property
    def layout(self) -> str:
        """The sizes that are not 1."""
        sizes = self.plan.parallel
        named = {
            "dp": sizes.data_parallel_size,
            "tp": sizes.tensor_parallel_size,
            "pp": sizes.pipeline_parallel_size,
            "vp": sizes.virtual_pipeline_parallel_size,
            "cp": sizes.context_parallel_size,
            "ep": sizes.expert_parallel_size,
        }
        return " ".join(f"{name}{size}" for name, size in named.items() if size > 1)


def cases(count: int, seed: int) -> Iterator[Case]:
    """So many cases; one in five has two faults. What a layout cannot have, or what costs it nothing, is not drawn."""
    rng = random.Random(seed)
    found = 0
    while found < count:
        plan = _plan(rng)
        drawn = [_fault(rng, plan) for _ in range(1 if rng.random() < 0.8 else 2)]
        if len({fault.split(":")[0] for fault, _ in drawn}) < len(drawn):
            continue
        case = Case(plan, tuple(fault for fault, _ in drawn), tuple(change for _, change in drawn), rng.randrange(1000))
        try:
            faulty = [prepare(plan, [fault], seed=case.seed).durations_ns() for fault in case.faults]
        except InputError:
            continue
        if prepare(plan, (), seed=case.seed).durations_ns() not in faulty:
            found += 1
            yield case


def _plan(rng: random.Random) -> Plan:
    """A small plan of 2 to MAX_RANKS ranks on A100."""
    while True:
        data, tensor, stages = rng.choice([1, 2, 4]), rng.choice([1, 2, 4]), rng.choice([1, 1, 2, 3, 4, 8])
        context, experts = rng.choice([1, 1, 1, 2]), rng.choice([False, False, False, True])
        chunks = rng.choice([1, 2]) if stages > 1 else 1
        if 2 <= data * tensor * stages * context <= MAX_RANKS:
            break
    sizes = {
        "dp": data,
        "tp": tensor,
        "pp": stages,
        "vp": chunks,
        "cp": context,
        "sequence_parallel": tensor > 1 and rng.random() < 0.5,
    }
    if experts and data > 1:
        sizes["ep"] = data
    plan = plan_of(
        "mixtral-8x7b" if experts else rng.choice(["gpt-7.5b", "llama2-13b"]),
        data * stages * rng.choice([1, 2, 3]),
        seq=rng.choice([1024, 2048, 4096]),
        recompute=rng.random() < 0.2,
        **sizes,
    )
    return replace(plan, model=replace(plan.model, num_layers=stages * chunks * (1 if stages * chunks > 4 else rng.choice([1, 2]))))


def _fault(rng: random.Random, plan: Plan) -> tuple[str, str]:
    """A fault somewhere, and the change that takes it away."""
    ranks = plan.num_devices
    rank, other = rng.sample(range(ranks), 2)
    factor, name = round(rng.uniform(1.03, 2.5), 2), rng.choice(KERNELS)
    stall, every = rng.randrange(5, 150), rng.choice(["", ":2", ":3"])
    away = f"{AWAY:.0f}"
    return rng.choice(
        [
            (f"slow_rank:{rank}:{factor}", f"rank:{rank}"),
            (f"slow_rank:{rank}:{factor}:1:1", f"rank:{rank}"),
            (f"slow_op:{name}:{2 * factor:.2f}", f"operator:{name}:{2 * factor:.2f}"),
            (f"slow_link:{rank}-{other}:{2 * factor:.2f}", f"link:{rank}-{other}"),
            (f"data_stall:{rank}:{stall}{every}", f"data:{rank}"),
            (f"data_stall:all:{stall}:2", "data"),
            (f"host_bound:{rank}:{3 * factor:.2f}", f"host:{rank}"),
            (f"gc_pause:{rank}:{stall}{every}", f"host:{rank}"),
            (f"memory_fragmentation:{rank}:{rng.randrange(4, 20)}", f"host:{rank}"),
            (f"unneeded_casts:{rng.randrange(1, 9)}", f"operator:Cast:{away}"),
            (f"aicpu_ops:{rng.randrange(1, 4)}", f"operator:IndexPutV2:{away}"),
            ("no_overlap", "overlap"),
        ]
    )
