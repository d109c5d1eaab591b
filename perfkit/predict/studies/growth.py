"""Growth: the predicted throughput of a plan on more and more devices, and how much of the ideal is kept.

Devices are added as data parallel replicas. The batch stays (strong scaling: fewer micro batches a replica) or grows with
them (weak scaling: the same micro batches a replica).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.looks import brief
from perfkit.core.plan_columns import Floats, PlanColumns
from perfkit.core.spec.plan import Plan
from perfkit.core.texts import say
from perfkit.core.units import format_count, format_ratio
from perfkit.predict.calibration import Calibration
from perfkit.predict.cost.cost_columns import refuse_unpriced
from perfkit.predict.cost.scaling import GOOD_LINEARITY, linearity
from perfkit.predict.estimate import step_parts
from perfkit.predict.memory.memory import peak_memory

DEVICES = tuple(2**power for power in range(3, 15))
"""8 to 16,384 devices."""

Batch = Literal["grows", "stays"]
COLUMNS = (
    "num_devices",
    "data_parallel_size",
    "global_batch_size",
    "num_micro_batches",
    "step_time_s",
    "tokens_per_s",
    "ideal_tokens_per_s",
    "linearity",
    "good",
    "exposed_ratio",
    "bubble_ratio",
    "peak_memory_bytes",
    "note",
)


def growth(
    plan: Plan,
    devices: Sequence[int] = DEVICES,
    *,
    batch: Batch = "grows",
    chosen: str | Calibration | None = None,
    memory: bool = True,
) -> pd.DataFrame:
    """One row a number of devices, ascending. Linearity is against the smallest that works (`calc.scaling`).

    A number that the plan cannot be spread over has empty figures and all reasons in `note`. Shares of the step are ratios.
    `memory` can be switched off, as it takes most of the time; `peak_memory_bytes` is empty then.
    """
    rows: dict[int, dict[str, Any]] = {}
    grown: dict[int, Plan] = {}
    for count in sorted(set(devices)):
        try:
            one = _grown(plan, count, batch)
            refuse_unpriced(PlanColumns.of([one]))
            grown[count] = one
            rows[count] = _sizes(one, peak_memory(one).peak.total if memory else None)
        except InputError as error:
            grown.pop(count, None)
            rows[count] = {"num_devices": count, "note": "; ".join(error.problems)}
    if grown:
        plans = list(grown.values())
        for count, times in zip(grown, _times(plans, step_parts(PlanColumns.of(plans), chosen)), strict=True):
            rows[count] |= times
    return pd.DataFrame(list(_against(list(rows.values()))), columns=list(COLUMNS))


def growth_told(found: pd.DataFrame) -> str:
    """How much of the ideal is kept from the fewest to the most devices, in a sentence; why not, where no number works."""
    known = found.dropna(subset=["tokens_per_s"])
    if known.empty:
        return f"No number of devices works: {found['note'].iloc[-1]}"
    first, last = known.iloc[0], known.iloc[-1]
    smallest, largest = (format_count(int(row["num_devices"])) for row in (first, last))
    bad = known[known["linearity"] <= GOOD_LINEARITY]
    above = "From {smallest} to {largest} devices {linearity} of the ideal throughput is kept, above {limit} everywhere."
    below = (
        "From {smallest} to {largest} devices {linearity} of the ideal throughput is kept; it falls below {limit} at {first} "
        "devices."
    )
    return say(
        above if bad.empty else below,
        smallest=smallest,
        largest=largest,
        linearity=float(last["linearity"]),
        limit=format_ratio(GOOD_LINEARITY, 2),
        first="" if bad.empty else str(int(bad["num_devices"].iloc[0])),
    )


def growth_table(found: pd.DataFrame) -> pd.DataFrame:
    """The columns of `growth` that a page shows."""
    columns = ["num_devices", "global_batch_size", "num_micro_batches", "step_time_s", "tokens_per_s", "linearity", "exposed_ratio"]
    columns += ["bubble_ratio", "peak_memory_bytes", "note"]
    shown = found[columns].rename(columns={"linearity": "linearity_ratio"})
    shown.attrs["labels"] = {"num_devices": "devices"}
    return brief(shown, "num_devices", "step_time_s", "tokens_per_s", "linearity_ratio", "peak_memory_bytes", "note")


def _grown(plan: Plan, count: int, batch: Batch) -> Plan:
    parallel = plan.parallel
    replica = plan.num_devices // parallel.data_parallel_size
    if count % replica:
        raise InputError("growth", [f"{count} devices are no multiple of the {replica} of one replica"])
    data = count // replica
    shards = parallel.optimizer_shard_size
    whole = shards in (parallel.data_parallel_size, parallel.data_parallel_size * parallel.context_parallel_size)
    if shards > 1 and whole:
        shards = max(1, shards * data // parallel.data_parallel_size)
    elif data < shards:
        shards = data
    work = plan.workload
    if batch == "grows":
        work = replace(work, global_batch_size=max(1, work.global_batch_size * data // parallel.data_parallel_size))
    return replace(plan, parallel=replace(parallel, data_parallel_size=data, optimizer_shard_size=shards), workload=work)


def _sizes(plan: Plan, peak_bytes: float | None) -> dict[str, Any]:
    limit = plan.usable_memory
    over = peak_bytes is not None and limit is not None and not limit.holds(peak_bytes)
    return {
        "num_devices": plan.num_devices,
        "data_parallel_size": plan.parallel.data_parallel_size,
        "global_batch_size": plan.workload.global_batch_size,
        "num_micro_batches": plan.num_micro_batches,
        "peak_memory_bytes": peak_bytes if peak_bytes is None else round(peak_bytes),
        "note": f"needs more memory than {limit.source} allows" if limit and over else "",
    }


def _times(plans: Sequence[Plan], parts: Mapping[str, Floats]) -> Iterator[dict[str, Any]]:
    nothing = np.zeros(len(plans))
    seconds = sum(parts.values(), start=nothing)
    exposed = sum((amount for path, amount in parts.items() if path.startswith("communication/")), start=nothing)
    shares = zip(seconds.tolist(), exposed.tolist(), parts["bubble"].tolist(), strict=True)
    for plan, (step_s, exposed_s, bubble_s) in zip(plans, shares, strict=True):
        yield {
            "step_time_s": step_s,
            "tokens_per_s": plan.tokens_per_step / step_s,
            "exposed_ratio": exposed_s / step_s,
            "bubble_ratio": bubble_s / step_s,
        }


def _against(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rows with ideal throughput and linearity, against the first that works."""
    base = next((row for row in rows if row.get("tokens_per_s")), None)
    for row in rows:
        if base is None or not row.get("tokens_per_s"):
            yield row
            continue
        kept = linearity(row["tokens_per_s"], row["num_devices"], base["tokens_per_s"], base["num_devices"])
        yield {**row, "ideal_tokens_per_s": row["tokens_per_s"] / kept, "linearity": kept, "good": kept > GOOD_LINEARITY}
