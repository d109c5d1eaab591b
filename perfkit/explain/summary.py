"""Summary: a run as the document that `perfkit summary --json` prints, and nothing that a frame does not say.

All times are int ns. A part that was not told apart is left out of `breakdown_ns`; a step of which only the length is known has
`null` there. Kernels are those that compute; communication is listed by operation and group size, copies are in neither list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.run import Run
from perfkit.explain import collectives
from perfkit.record.events.graph import causal_graph

if TYPE_CHECKING:
    from perfkit.explain.guide_terms import Group

FEW_RANKS = 32
"""For more ranks the page of communication tells who waits; reading all their collectives is no summary."""


def summarize(run: Run, *, step: int | None = None, group: Group | None = None) -> dict[str, Any]:
    """The summary of a run, or of one of its steps, in the shape that the command line prints as JSON.

    With a `group` every step has `terms_ns` too: its time in the words of the tuning guides (`guide_terms`). Raises InputError that
    names the steps found if `step` is none of them.
    """
    steps = run.steps()
    if step is not None:
        found = sorted(int(number) for number in steps["step"].unique())
        if step not in found:
            known = ", ".join(map(str, found[:20])) or "none"
            raise InputError(run.name, [f"step {step} is not in the run; steps found: {known}"])
        steps = steps[steps["step"] == step]
    chosen = None if step is None else [step]
    kernels = _kernels(run.frame("kernels", steps=chosen))
    ranks = _ranks(run, steps)
    if group is not None:
        from perfkit.explain.guide_terms import guide_terms  # noqa: PLC0415  with the ledger, which only this needs

        ranks = _grouped(ranks, guide_terms(run, group, steps=chosen))
    read_later = {
        "collectives": _collectives(run.frame("collectives", steps=chosen)),
        "waiting": _waiting(run, chosen),
        **({"memory_reports": _memory_reports(run)} if run.has("memory_reports") else {}),
    }
    return {
        "run": run.name,
        "kind": run.kind,
        "format": run.format,
        "ranks_found": len(run.ranks),
        "events": _events(run),
        # Of what is read when it is asked for the losses are known by now.
        "dropped": [{"what": lost.what, "count": lost.count, "file": lost.file} for lost in run.dropped],
        "notes": list(run.notes),
        "ranks": ranks,
        "kernels": kernels,
        **read_later,
    }


def _events(run: Run) -> dict[str, int]:
    """What became of all events of the files that were read; the last four sum to the first."""
    columns = ["in_file", "assigned", "before", "after", "lost"]
    return {str(name): int(total) for name, total in run.frame("accounts", columns=columns).sum().items()}


def _ranks(run: Run, steps: pd.DataFrame) -> list[dict[str, Any]]:
    parts: dict[tuple[int, int], dict[str, int]] = {}
    known = run.frame("step_parts").dropna(subset=["amount_ns"])
    for part in known.to_dict("records"):
        parts.setdefault((part["rank"], part["step"]), {})[str(part["path"])] = int(part["amount_ns"])
    by_rank: dict[int, list[dict[str, Any]]] = {}
    for row in steps.to_dict("records"):
        by_rank.setdefault(int(row["rank"]), []).append(
            {
                "step": int(row["step"]),
                "duration_ns": int(row["duration_ns"]),
                "host_duration_ns": _int(row["host_duration_ns"]),
                "breakdown_ns": parts.get((row["rank"], row["step"])),
                "communication_ns": _int(row["communication_ns"]),
                "overlapped_ns": _int(row["overlapped_ns"]),
                "bubble_ns": _int(row["bubble_ns"]),
            }
        )
    stages = _stages(run, steps)
    return [{"rank": rank, "pipeline_stage": stages.get(rank), "steps": rows} for rank, rows in sorted(by_rank.items())]


def _grouped(ranks: list[dict[str, Any]], terms: pd.DataFrame) -> list[dict[str, Any]]:
    """The ranks with the terms of each step."""
    found: dict[tuple[int, int], dict[str, int | None]] = {}
    for rank, step, term, ns in terms.itertuples(index=False):
        found.setdefault((int(rank), int(step)), {})[str(term)] = None if pd.isna(ns) else int(ns)
    return [
        {**rank, "steps": [{**step, "terms_ns": found.get((rank["rank"], step["step"]))} for step in rank["steps"]]}
        for rank in ranks
    ]


def _stages(run: Run, steps: pd.DataFrame) -> dict[int, int | None]:
    """The pipeline stage of each rank: the first that its steps state, else the one of its place in the layout."""
    stated = steps.dropna(subset=["pipeline_stage"]).drop_duplicates("rank")
    placed = {rank: position.pipeline for rank, position in run.placement.items()}
    return placed | {int(rank): int(stage) for rank, stage in zip(stated["rank"], stated["pipeline_stage"], strict=True)}


def _kernels(kernels: pd.DataFrame) -> list[dict[str, Any]]:
    computing = kernels[kernels["kind"] == "computing"]
    totals = computing.groupby("name", observed=True)["duration_ns"].agg(calls="count", total_ns="sum").reset_index()
    rows = totals.sort_values("total_ns", ascending=False).to_dict("records")
    return [{"name": str(row["name"]), "count": int(row["calls"]), "total_ns": int(row["total_ns"])} for row in rows]


def _collectives(collectives: pd.DataFrame) -> list[dict[str, Any]]:
    groups = collectives.groupby(["operation", "group_size"], observed=True, dropna=False)
    totals = groups.agg(calls=("duration_ns", "size"), total_ns=("duration_ns", "sum"), bytes=("bytes", _sum_if_all_known))
    return [
        {
            "name": str(row["operation"]),
            "group_size": _int(row["group_size"]),
            "count": int(row["calls"]),
            "total_ns": int(row["total_ns"]),
            "bytes": _int(row["bytes"]),
        }
        for row in totals.reset_index().sort_values("total_ns", ascending=False).to_dict("records")
    ]


def _waiting(run: Run, steps: list[int] | None) -> list[dict[str, Any]]:
    """Whom the ranks of a small run wait for in collectives, the rank that costs most first; empty where no order is known."""
    if not 1 < len(run.ranks) <= FEW_RANKS or not run.has("collectives"):
        return []
    rows = causal_graph(run).members(steps=steps)
    behind = collectives.summed(rows).groupby("latest_rank")["spread_ns"].max()
    return [
        {
            "rank": int(row["rank"]),
            "wait_ns": _int(row["wait_ns"]),
            "caused_ns": int(row["caused_ns"]),
            "times_last": int(row["times_last"]),
            "latest_ns": _int(behind.get(row["rank"])),
        }
        for row in collectives.waiting(rows).to_dict("records")
        if row["operations"]
    ]


def _memory_reports(run: Run) -> list[dict[str, Any]]:
    """Statistics of device memory in the order of their ranks and files; sizes in bytes, None where the log does not state one."""
    rows = run.frame("memory_reports").drop(columns="line").to_dict("records")
    return [{str(name): str(value) if name == "file" else _int(value) for name, value in row.items()} for row in rows]


def _sum_if_all_known(values: pd.Series[int]) -> Any:
    """A sum over calls of which some sizes are unknown would look like a total, so it is unknown."""
    return values.sum() if values.notna().all() else pd.NA


def _int(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)
