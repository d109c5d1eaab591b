"""Drawn causes: cases that nobody tuned on, by chance over every bundled recording whose launches were recorded.

Strengths are drawn by the recording's own step, so that a cause costs from less than anybody needs to be told up to half of it.
Kernels and transfers are slow on some ranks or in some steps: that all of them always are shows in a comparison alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from benchmarks.diagnosis._causes import MS, RULES, Cause
from benchmarks.diagnosis._real_cases import BUNDLED, Base, bases, read
from benchmarks.diagnosis._recorded import copies_of_collectives
from perfkit.core.robust import WARM_FROM_STEP
from perfkit.core.run import Run

LEAST_STEPS = 3
"""Of fewer steps none is told apart from the others."""
BEYOND = (
    ("one NPU, 1 step", "ascend_trace_view/single_npu"),
    ("one rank of NPUs, 1 step", "ascend_trace_view/rank0_ascend_pt"),
    ("vision model, 2 steps", "hta/timeline_analysis"),
    ("vision model, rank 2, 2 steps", "hta/trace_filter"),
    ("large model, 1 step", "hta/trace_diff"),
    ("one H100, 2 steps", "kineto_h100"),
    ("ResNet-50 that loads itself, 6 steps", "kineto_tb_samples/resnet50_num_workers_0"),
    ("parameter server, 1 step", "param"),
    ("Qwen on H100, 1 step", "tracelens/h100"),
    ("DDP ResNet-18 on MI300, 1 step", "tracelens/mi300/ddp_resnet18_no_pool"),
)
"""Recordings beside those of `bases`, by what they are."""


def drawn(seed: int, each: int) -> Iterator[tuple[Base, Cause, bool]]:
    """So many cases of every recording, none with a baseline."""
    random = np.random.default_rng(seed)
    for base in (*bases(), *(Base(name, BUNDLED / folder, ()) for name, folder in BEYOND)):
        run = read(base)
        kinds = _kinds(run)
        for _ in range(each):
            yield base, _one(random, run, str(random.choice(kinds))), False


def _kinds(run: Run) -> list[str]:
    """The causes that a recording can have and show: of what it has, on some of its ranks or steps where all would not be seen."""
    kernels = run.frame("kernels")
    own = kernels.drop(index=list(copies_of_collectives(kernels)))
    has, launched = set(own["kind"].dropna()), run.has("launches")
    some_steps, some_ranks = run.frame("steps")["step"].nunique() >= LEAST_STEPS, kernels["rank"].nunique() > 1
    can = {
        "slow computing": some_steps or some_ranks,
        "slow transfers": some_steps and "communication" in has,
        "slow copies": "copy" in has,
        "slow host": launched,
        "blocking calls": launched,
    }
    return [kind for kind in RULES if can.get(kind, True)]


def _one(random: np.random.Generator, run: Run, kind: str) -> Cause:
    steps, ranks = run.frame("steps"), sorted(int(rank) for rank in run.frame("kernels")["rank"].unique())
    num_steps, step_ms = steps["step"].nunique(), float(steps["duration_ns"].median()) / MS
    amount = {
        "slow computing": random.uniform(1.2, 3),
        "slow transfers": random.uniform(2, 8),
        "slow copies": random.uniform(3, 12),
        "slow host": random.uniform(1.5, 4),
        "blocking calls": float(random.integers(10, 60)),
    }.get(kind, step_ms * random.uniform(0.02, 0.5))
    cause = Cause(kind, round(amount, 2))
    by_step = num_steps >= LEAST_STEPS and (random.random() < 0.5 or (len(ranks) == 1 and kind == "slow computing"))
    if by_step or kind == "slow transfers":
        # In the first step of a job ranks connect: that transfers are slow in it as well shows in nothing.
        first = int(kind == "slow transfers" and steps["step"].min() < WARM_FROM_STEP)
        chosen = random.choice(np.arange(first, num_steps), size=int(random.integers(1, num_steps // 2 + 1)), replace=False)
        cause = replace(cause, steps=tuple(sorted(int(step) for step in chosen)))
    if len(ranks) > 1 and kind != "slow transfers" and (random.random() < 0.5 or (kind == "slow computing" and not cause.steps)):
        return replace(cause, ranks=(int(random.choice(ranks)),))
    return cause
