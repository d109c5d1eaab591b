"""Claims of the worked cases, and those that state no figure."""

from __future__ import annotations

from perfkit.predict.studies.claims import _figures as of
from perfkit.predict.studies.claims.claim import Claim

_CHANGES = (
    "two stages",
    "20 patterns in place of full recomputation",
    "fewer layers on stage 1",
    "fused kernels, 13 and 5 full layers",
    "4 and 0 full layers",
)
_GAINS = (14.84, 2.48, 0.96, 6.47, 8.88)


def _gain(step: int) -> Claim:
    return Claim(
        guide="000, 003 13B case",
        number="R184",
        claim=f"change {step}, {_CHANGES[step - 1]}: gain",
        unit="%",
        stated=_GAINS[step - 1],
        computed=lambda: 100 * of.gain(step),
    )


CLAIMS = (
    *(_gain(step) for step in range(1, 6)),
    Claim(
        guide="000, 003 13B case",
        number="X23",
        claim="all changes together: 37 %",
        unit="%",
        stated=37,
        computed=lambda: 100 * (of.LADDER[-1] / of.LADDER[0] - 1),
        otherwise=lambda: 100 * (of.LADDER[-1] / of.LADDER[0] - 1) // 1,
        why="37.74 %, cut and not rounded",
    ),
    Claim(
        guide="000, 003 13B case",
        number="X16",
        claim="20 printed patterns name operators",
        stated=20,
        computed=of.matched,
        why="two of the list and six lines of the map are misprinted",
    ),
    Claim(
        guide="001 recomputation",
        number="X14",
        claim="recomputed layers of a stage of 2 must be fewer than 2: how many may be",
        stated=1,
        computed=of.most_recomputed,
        why="the formula beside the text, and the program, allow as many as there are",
    ),
    Claim(
        guide="000, 003 advice",
        number="X11",
        claim="the file linked for 70B trains on 64 devices",
        why="it is for prediction, dp 1 x mp 8 x pp 1; the training file has 2 x 4 x 8 = 64",
    ),
    Claim(
        guide="training files of 13B",
        number="X24",
        claim="the comment says 16 devices: product of the sizes",
        stated=16,
        computed=of.devices_of_13b,
        why="the comment is of an older file",
    ),
    Claim("000 profile", "X20", "steps 1 to 10 are recorded", why="the first steps compile; 2 to 4 steps after step 3 are enough"),
    Claim(
        guide="000 kernel_details.csv",
        number="X15",
        claim="the file holds the shares of operator types",
        why="it holds one row a kernel; shares are computed",
    ),
    Claim(
        guide="000 AllReduce",
        number="X17",
        claim="the printed graph is what the compiler wrote",
        why="brackets, names and numbers are damaged; four lines are repaired when it is read",
    ),
    Claim(
        guide="002 data parallel",
        number="X18",
        claim="long forward and backward leads to the section on step intervals",
        why="it leads to that on forward and backward",
    ),
    Claim("002 queues", "X19", "a queue is empty or not", why="no threshold is given; the rule `data-feed` has one"),
    Claim(
        guide="000, 003 DryRun",
        number="X21",
        claim="one list of variables switches a dry run on",
        why="the two guides differ by version of MindSpore; `collect` writes the one of the version that is named",
    ),
    Claim(
        guide="001 parallel library",
        number="X25",
        claim="data parallelism averages parameters",
        why="gradients are reduced; parameters then stay equal",
    ),
    Claim(
        guide="000, 003 13B case",
        number="X26",
        claim="stage 1 recomputes Mul without the reshape behind it",
        why="by the guides' own case the result of Mul then stays alive (`recompute-reshape-missing`)",
    ),
    Claim(
        guide="000, 003 13B case",
        number="X28",
        claim="patterns hold for any version, and select_recompute stands by itself",
        why="names depend on the version of the model's code; the key belongs under recompute_config",
    ),
    Claim(
        guide="001 configuration",
        number="X29",
        claim="a micro batch of 2 is most likely best",
        why="a prior: a larger one has fewer micro batches and a larger bubble; `perfkit plan` compares both",
    ),
)
