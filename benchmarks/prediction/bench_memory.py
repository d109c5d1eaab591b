"""Mean absolute error of predicted memory by source and counter, beside two published formulas on the same rows.

`python -m benchmarks.prediction.bench_memory` prints the table. Nothing was fitted to a row of `data/reference/memory.csv`. The
yardsticks are Megatron-LM's theoretical formula (`megatron/training/theoretical_memory_usage.py`, with its 5 % for buffers) and the
tuning guides' 10N with their activation table. Both know no recomputation of single operators and no framework's reserve; for
figures between steps only their static part is compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from perfkit.core.params import count_params
from perfkit.core.resources import data_folder
from perfkit.core.spec import Plan
from perfkit.predict.estimate import estimate_table
from perfkit.predict.memory.counters import Counter, Scope, counter_of, scope_of
from perfkit.predict.memory.guide import guide_activations, guide_static
from perfkit.predict.memory.memory import peak_memory
from perfkit.predict.memory.settings import settings_of
from perfkit.predict.memory.table import ALL, fullest_bytes
from perfkit.predict.unstated import read_table


def scored_rows() -> pd.DataFrame:
    """The measured rows that are scored."""
    rows = pd.read_csv(data_folder() / "reference" / "memory.csv")
    return rows[rows["exclude"] != 1].reset_index(drop=True)


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """A plan, what its figure counts and on which stage."""

    plan: Plan
    counter: Counter
    scope: Scope


Formula = Callable[[MemoryRow], float]


def plans_of(rows: pd.DataFrame) -> list[MemoryRow]:
    """The rows as plans."""
    table = read_table(rows)
    return [
        MemoryRow(table.plans.plan(row), counter_of(table.kinds[row]), scope_of(table.scopes[row]))
        for row in range(len(table.plans))
    ]


def megatron_bytes(row: MemoryRow) -> float:
    """Megatron-LM's theoretical memory of the fullest stage."""
    model, work, parallel = row.plan.model, row.plan.workload, row.plan.parallel
    t, p, v = parallel.tensor_parallel_size, parallel.pipeline_parallel_size, parallel.virtual_pipeline_parallel_size
    embedding = model.vocab_size * model.hidden_size
    parts = count_params(model)
    block = parts.amount("layers") + parts.amount("head/norm")
    tables = 2 if p == 1 and not model.tied_embeddings else 1
    width = 6 + 12 / parallel.optimizer_shard_size if parallel.optimizer_shard_size > 1 else 18
    weights = (block / p + tables * embedding) / t * width
    if row.counter == "static":
        return weights
    sb = work.seq_length * work.micro_batch_size
    selective = parallel.sequence_parallel and row.plan.recompute.attention_core
    layer = sb * model.hidden_size * (18 + 4 * model.ffn_hidden_size / model.hidden_size)
    layer = layer if selective else sb * model.hidden_size * (10 + 24 / t)
    held = layer * model.num_layers + 8 * sb * p + sb * model.hidden_size * p
    held *= 1 + (p - 1) / (p * v) if v > 1 else min(1, row.plan.num_micro_batches / p)
    if selective:
        return weights + (held + (4 * sb * (model.hidden_size + model.vocab_size) if p == 1 else 0)) / t
    return weights + 1.05 * (held + (2 * sb * (model.vocab_size / t + model.hidden_size) if p == 1 else 0))


def guide_bytes(row: MemoryRow) -> float:
    """The tuning guides: 10N over the optimizer's group, a gradient copy, and their activation table for every layer in flight."""
    plan = row.plan
    parallel, p = plan.parallel, plan.parallel.pipeline_parallel_size
    local = count_params(plan.model).total / (parallel.tensor_parallel_size * p)
    static = guide_static(local, shards=parallel.optimizer_shard_size, accumulation=plan.num_micro_batches > 1 or p > 1)
    if row.counter == "static":
        return static
    case = "tensor and sequence" if parallel.sequence_parallel else "tensor"
    if plan.recompute.all_layers:
        case = "full"
    elif plan.recompute.attention_core or plan.workload.attention_kernel == "flash":
        case += ", selective"
    in_flight = 1 if row.scope == "last" else min(p, plan.num_micro_batches)
    return static + guide_activations(plan, case) * plan.model.num_layers / p * in_flight  # type: ignore[arg-type]


def errors() -> pd.DataFrame:
    """One row a source and counter: `source`, `memory_kind`, `rows`, and the mean absolute error in percent of each formula."""
    rows = scored_rows()
    read = plans_of(rows)
    formulas: dict[str, Formula] = {"megatron": megatron_bytes, "guide": guide_bytes}
    measured = rows["peak_memory_bytes"]
    predicted = estimate_table(rows)["peak_memory_bytes"]
    table = rows[["source", "memory_kind"]].assign(perfkit=(predicted / measured - 1).abs() * 100)
    for name, formula in formulas.items():
        table[name] = (pd.Series([formula(row) for row in read]) / measured - 1).abs() * 100
    table["bias"] = (predicted / measured - 1) * 100
    every = table.assign(source="all", memory_kind="")
    megatron = table[table["source"] == "megatron-tests"].assign(memory_kind="all")
    others = table[table["source"] != "megatron-tests"].assign(source="all but megatron-tests", memory_kind="")
    table = pd.concat([table, megatron, others, every])
    groups = table.groupby(["source", "memory_kind"], sort=False)
    means = groups[["perfkit", "bias", "megatron", "guide"]].mean().round(1)
    return means.assign(rows=groups.size()).reset_index()[["source", "memory_kind", "rows", "perfkit", "bias", "megatron", "guide"]]


def estimates_per_s(seconds: float = 2.0) -> float:
    """Estimates of one plan a second on one core."""
    plan = plans_of(scored_rows().head(1))[0].plan
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        peak_memory(plan)
        count += 1
    return count / (time.perf_counter() - started)


def columns_per_s(plans: int = 200_000) -> float:
    """Plans a second on one core, as columns: the rows of the table again and again, each with a micro batch of its own."""
    read = read_table(scored_rows()).plans
    many = read.take(np.tile(np.arange(len(read)), plans // len(read)))
    size = 1.0 + np.arange(len(many)) % 7
    many = replace(many, micro_batch_size=many.micro_batch_size * size, global_batch_size=many.global_batch_size * size)
    settings = settings_of(many)
    started = time.perf_counter()
    fullest_bytes(many, settings, ALL)
    return len(many) / (time.perf_counter() - started)


if __name__ == "__main__":
    print(errors().to_string(index=False))
    alone, together = estimates_per_s(), columns_per_s()
    print(f"one estimate: {1e3 / alone:.2f} ms; as columns: {together:,.0f} plans/s, {together / alone:.0f} times as many")
