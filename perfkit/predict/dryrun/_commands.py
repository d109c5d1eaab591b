"""DryRun commands of a plan: one process a rank on a single machine, each with a log of its memory.

Guides print different variables for different versions of MindSpore (`perfkit.config.collect`).
"""

from __future__ import annotations

from collections.abc import Iterable

from perfkit.config.collect import Snippet, dryrun_commands
from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan
from perfkit.predict.dryrun._parts import ranks_of_interest, stage_of

TRAIN = "python run_mindformer.py --config config.yaml --run_mode train"


def commands(
    plan: Plan, version: str | None = None, ranks: Iterable[int] | None = None, *, command: str = TRAIN
) -> tuple[Snippet, ...]:
    """The commands that log the memory of `ranks`: the first and last of every stage unless given.

    `version` is that of MindSpore, such as "2.4.1", whose variables are given; without one there is a set for each. Raises
    InputError for every rank that the plan does not have and for a version that is none.
    """
    chosen = ranks_of_interest(plan) if ranks is None else tuple(dict.fromkeys(ranks))
    problems = [problem for rank in chosen if (problem := _problem(rank, plan))]
    if not chosen:
        problems.append("no rank is chosen")
    if problems:
        raise InputError("dry run", problems)
    return dryrun_commands(
        plan.num_devices, plan.parallel.pipeline_parallel_size, version=version, command=command, ranks=sorted(chosen)
    )


def _problem(rank: int, plan: Plan) -> str:
    try:
        stage_of(rank, plan)
    except InputError as error:
        return error.problems[0]
    return ""
