"""Strategy tables: marks and rows of page 03, and the words in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import pandas as pd

from perfkit.core.spec.plan import Plan
from perfkit.core.units import NS_PER_S, format_bytes, format_ns, format_ratio, significant
from perfkit.face.charts.plans import Rows, scatter_rows
from perfkit.face.panels._strategy_export import Compared
from perfkit.predict.estimate import Estimate
from perfkit.predict.plans.search.search_result import FrontPoint, SearchResult
from perfkit.predict.plans.search.search_text import costs_text, plan_text, recompute_text

MARKS = 1_500
LEAST_SHARE = 0.3
"""Of the best throughput; slower strategies would only flatten the picture."""
SIZES = ("tp", "pp", "cp", "ep", "vpp", "mbs")


def marks_of(found: SearchResult, compared: Sequence[Compared]) -> Rows:
    """The fastest strategy of every division, chunks and micro batch, and the refined plans, against the front."""
    marks, front = _marks(found)
    chosen = [{**_mark(item.key, item.plan, item.estimate), "label": str(index)} for index, item in enumerate(compared, 1)]
    return scatter_rows(marks, front, chosen, found.memory_limit_bytes)


@lru_cache(maxsize=8)
def _marks(found: SearchResult) -> tuple[list[dict[str, Any]], list[tuple[float, float]]]:
    """The marks of a search, and its front as (bytes, tokens/s/device)."""
    columns = {name: values.tolist() for name, values in found.best_of(SIZES, MARKS).items()}
    marks = [_candidate_mark(dict(zip(columns, values, strict=True))) for values in zip(*columns.values(), strict=True)]
    marks += [_mark(f"l{index}", plan.plan, plan.estimate) for index, plan in enumerate(found.plans)]
    marks += [_point_mark(f"f{index}", point) for index, point in enumerate(found.pareto)]
    best = max((mark["tokens"] for mark in marks), default=0.0)
    marks = [mark for mark in marks if mark["tokens"] >= LEAST_SHARE * best]
    return marks, [(mark["peak_bytes"], mark["tokens"]) for mark in marks if mark["id"].startswith("f")]


def _candidate_mark(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": f"r{row['row']}",
        "plan": _row_text(row),
        "tp": row["tp"],
        "pp": row["pp"],
        "micro": row["mbs"],
        "tokens": row["tokens_per_s_per_device"],
        "step_s": row["step_time_s"],
        "peak_bytes": row["peak_memory_bytes"],
    }


def _mark(key: str, plan: Plan, predicted: Estimate) -> dict[str, Any]:
    return {
        "id": key,
        "plan": plan_text(plan),
        "tp": plan.parallel.tensor_parallel_size,
        "pp": plan.parallel.pipeline_parallel_size,
        "micro": plan.workload.micro_batch_size,
        "tokens": predicted.tokens_per_s_per_device,
        "step_s": predicted.step_time_s,
        "peak_bytes": predicted.peak_memory_bytes,
    }


def _point_mark(key: str, point: FrontPoint) -> dict[str, Any]:
    return {
        "id": key,
        "plan": plan_text(point.plan),
        "tp": point.plan.parallel.tensor_parallel_size,
        "pp": point.plan.parallel.pipeline_parallel_size,
        "micro": point.plan.workload.micro_batch_size,
        "tokens": point.tokens_per_s_per_device,
        "step_s": point.step_time_s,
        "peak_bytes": point.peak_memory_bytes,
    }


def _row_text(row: Mapping[str, Any]) -> str:
    sizes = " ".join([f"dp {row['dp']}", *(f"{name} {row[name]}" for name in ("tp", "pp", "vpp", "cp", "ep") if row[name] > 1)])
    zero = f", ZeRO-{row['zero']}" if row["zero"] else ""
    copies = f", {row['copies']} copies" if row["copies"] > 1 else ""
    return (
        f"{sizes}, micro batch {row['mbs']} x {row['m']}{zero}{', sp' if row['sp'] else ''}{copies}, recompute {row['recompute']}"
    )


def plans_table(found: SearchResult) -> pd.DataFrame:
    """The best plans of different divisions, by rank."""
    limit = found.memory_limit_bytes
    return pd.DataFrame(
        [
            {
                "rank": index,
                "plan": plan_text(item.plan),
                "step": time_text(item.estimate.step_time_s),
                "tokens/s/device": significant(item.estimate.tokens_per_s_per_device, 4),
                "MFU": format_ratio(item.estimate.mfu),
                "peak": format_bytes(item.estimate.peak_memory_bytes),
                "free": format_bytes(limit - (item.estimate.peak_memory_bytes or 0)),
                "fastest in draws": format_ratio(item.win_share, 2),
                "beside computing": costs_text(item.estimate),
            }
            for index, item in enumerate(found.plans, 1)
        ]
    )


def compared_table(found: SearchResult, compared: Sequence[Compared]) -> pd.DataFrame:
    """The compared plans, one a row."""
    limit = found.memory_limit_bytes
    rows = []
    for item in compared:
        predicted, peak = item.estimate, item.estimate.peak_memory_bytes or 0
        low, high = predicted.interval_s
        over = f"no, {format_bytes(peak - limit)} too much"
        rows.append(
            {
                "plan": item.name,
                "micro batches": f"{item.plan.workload.micro_batch_size} x {item.plan.num_micro_batches}",
                "recomputed": recompute_text(item.plan),
                "step": time_text(predicted.step_time_s),
                "80 % between": f"{time_text(low)} and {time_text(high)}",
                "tokens/s/device": significant(predicted.tokens_per_s_per_device, 4),
                "MFU": format_ratio(predicted.mfu),
                "HFU": format_ratio(predicted.hfu),
                "peak": format_bytes(peak),
                "fits": "yes" if peak <= limit else over,
            }
        )
    return pd.DataFrame(rows)


def time_text(seconds: float) -> str:
    """A time of an estimate in words."""
    return format_ns(seconds * NS_PER_S)
