"""Search space: what a search tries for a plan unless the user chooses, and every contradiction of the limits at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfkit.core import catalog
from perfkit.core.errors import InputError, Problems
from perfkit.core.spec.checks import nearest_multiples
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.predict.limits import with_limit
from perfkit.predict.memory.settings import MemorySettings
from perfkit.predict.plans.search._strategy_plans import FULL, NONE, SELECTIVE, recompute_kinds
from perfkit.predict.plans.search.strategy_space import (
    ORDER,
    Strategies,
    StrategySpace,
    count_problems,
    divisors,
    usual_chunks,
    usual_micro_batches,
)
from perfkit.predict.reading import read_config

LEAST_TOKENS = 2048
"""Of a sequence that context parallel leaves to a device, unless the user chooses."""

Choices = Mapping[str, Sequence[Any]]


def base_plan(
    given: Plan | str | Path,
    *,
    devices: int | None,
    memory_limit: tuple[float | str | None, str],
    global_batch_size: int | None,
    top: int,
    hardware: HardwareSpec | str | None,
    choices: Choices,
) -> tuple[Plan, int]:
    """The plan to start from, under the limit that counts, and the devices. Raises InputError with everything that is wrong."""
    plan = given if isinstance(given, Plan) else read_config(given)
    problems, device = Problems(), plan.hardware
    if hardware is not None:
        with problems.of():
            device = catalog.hardware_named(hardware) if isinstance(hardware, str) else hardware
    elif device is None:
        problems.append('hardware is not named; a search needs the device, for example "Ascend-910B2"')
    count = plan.num_devices if devices is None else devices
    problems += count_problems(devices=count)
    limited = plan
    with problems.of():
        limited = with_limit(replace(plan, hardware=device), *memory_limit)
    problems += count_problems(top=top)
    problems += _choice_problems(choices)
    if problems or device is None:
        raise InputError("search_plans", problems)
    # All strategies are for one program, also those that another one would be usual for.
    software = replace(plan.software, framework=limited.program)
    found = replace(
        limited, parallel=ParallelPlan(), recompute=RecomputePlan(), workload=_single(plan, global_batch_size), software=software
    )
    found = replace(found, parallel=replace(ParallelPlan(), context_parallel_algorithm=plan.parallel.context_parallel_algorithm))
    return found, count


def space_of(
    plan: Plan, devices: int, choices: Choices, settings: MemorySettings, largest_tensor: int | None = None
) -> StrategySpace:
    """The usual choices of every dimension, replaced by those of the user. Raises InputError for sizes that cannot be."""
    model, work = plan.model, plan.workload
    # Whoever names sizes for tp may leave the node.
    node = plan.hardware.devices_per_node if plan.hardware and "tp" not in choices else 0
    if largest_tensor is not None and node:
        if largest_tensor < node:
            choices = {"tp": tuple(size for size in divisors(devices) if size <= largest_tensor), **choices}
        node = max(node, largest_tensor)
    kinds = recompute_kinds(plan, settings)
    chosen: dict[str, tuple[Any, ...]] = {
        "tp": divisors(devices),
        "pp": divisors(devices),
        "cp": tuple(size for size in divisors(devices) if size <= max(1, work.seq_length // LEAST_TOKENS)),
        "vpp": usual_chunks(model.num_layers),
        "ep": divisors(model.num_experts) if model.num_experts else (1,),
        "mbs": usual_micro_batches(work.micro_batch_size),
        "copies": (1, 2) if settings.framework == "mindspore" else (1,),
        "zero": (0, 1, 2, 3),
        "recompute": kinds,
    }
    chosen |= {name: tuple(values) for name, values in choices.items()}
    if SELECTIVE in chosen["recompute"] and SELECTIVE not in kinds:
        raise InputError(
            "search_plans",
            [f"recompute = {SELECTIVE!r} saves nothing for this model with its attention kernel; kinds are {', '.join(kinds)}"],
        )
    chosen["recompute"] = tuple(kind for kind in (NONE, SELECTIVE, FULL) if kind in chosen["recompute"])
    return StrategySpace(
        devices=devices,
        layers=model.num_layers,
        heads=model.num_attention_heads,
        kv_heads=model.num_key_value_heads,
        vocab=model.vocab_size,
        seq_len=work.seq_length,
        global_batch=work.global_batch_size,
        experts=model.num_experts,
        pads_vocab=settings.vocab_multiple > 1,
        devices_per_node=node,
        framework=settings.framework,
        even_chunks=True,
        shares_context=settings.framework != "mindspore",  # MindFormers counts the sharing group in data parallel ranks
        **chosen,
    )


def refuse_empty(space: StrategySpace, strategies: Strategies) -> None:
    """Raise InputError with all reasons, and what would help, if no strategy keeps the rules."""
    if len(strategies):
        return
    problems = [
        f"{reason}: {count} of {strategies.searched} combinations"
        for reason, count in sorted(strategies.rejected.items(), key=lambda item: -item[1])
    ]
    shared = [dp for dp in divisors(space.devices) if space.global_batch % dp == 0]
    if max(shared) * max(space.tp) * max(space.pp) < space.devices or len(shared) == 1:
        near = nearest_multiples(space.global_batch, space.devices)
        problems.append(f"devices = {space.devices} shares few factors with global_batch_size = {space.global_batch}; try {near}")
    near_devices = _round_numbers(space.devices)
    problems.append(f"device counts that divide well near {space.devices}: {near_devices}")
    raise InputError(f"no way to divide the model over {space.devices} devices", problems)


def _single(plan: Plan, global_batch_size: int | None) -> Any:
    """The workload with a micro batch that one replica without copies can have."""
    work = plan.workload
    size, batch = work.micro_batch_size, work.global_batch_size if global_batch_size is None else global_batch_size
    return replace(work, micro_batch_size=size if batch % size == 0 else 1, global_batch_size=batch)


def _choice_problems(choices: Choices) -> list[str]:
    problems = [f"choices: {name!r} is no dimension; there are {', '.join(ORDER)}" for name in choices if name not in ORDER]
    problems += [
        f"choices: recompute = {kind!r} must be {NONE}, {SELECTIVE} or {FULL}"
        for kind in choices.get("recompute", ())
        if kind not in (NONE, SELECTIVE, FULL)
    ]
    low = {"zero": 0, "shard": 0, "sp": 0}
    for name, values in choices.items():
        if name in ORDER and not values:
            problems.append(f"choices: {name} has no value to choose from")
        if name in ORDER and name != "recompute":
            problems += [
                f"choices: {name} = {value!r} must be a whole number of at least {low.get(name, 1)}"
                for value in values
                if not isinstance(value, int) or isinstance(value, bool) or value < low.get(name, 1)
            ]
    return problems


def _round_numbers(devices: int) -> str:
    powers = [2**power for power in range(17)]
    below = max((power for power in powers if power <= devices), default=1)
    above = min((power for power in powers if power > devices), default=2 * below)
    return f"{below} and {above}"
