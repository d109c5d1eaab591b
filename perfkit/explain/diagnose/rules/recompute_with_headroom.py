"""Operators are recomputed although memory is left that could keep their results.

What is measured: forward attention that runs more often than backward attention (see `recompute-cost`, which states what that
costs), and the peak of reserved memory, or of a printed statistic, against what may be used: the budget of the statistic, the
limit of the run's plan, or the memory of the device. Below 90 % on every rank there is room. What the plan of the run asks to
recompute is no finding. Where the profiler's name fits several devices the smallest counts.

What to do: recompute fewer layers, those of the last stages first; then only cheap operators; then none; or use the room for larger
micro batches or less tensor parallelism.
"""

from __future__ import annotations

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose import device as _device
from perfkit.explain.diagnose import recomputation
from perfkit.explain.diagnose.advice import CHEAP_OPERATORS_AGAIN, FEWER_LAYERS_AGAIN, Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import MEMORY_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict

HEADROOM = Threshold(
    "headroom", 0.9, "peak over what may be used", "chosen: allocators need a tenth for fragments (fragmented-ratio)"
)

ACTIONS: tuple[Action, ...] = (
    FEWER_LAYERS_AGAIN,
    CHEAP_OPERATORS_AGAIN,
    "or use the room for larger micro batches, or for less tensor parallelism",
)


def check(case: Case) -> Verdict:
    """The fullest rank's peak against its limit, in a run that recomputes."""
    used = _fullest(case)
    if used is None:
        raise NotMeasuredError("the peak of memory and what may be used", how_to_collect=MEMORY_BY)
    peak, limit = used
    repeated = recomputation.beyond_plan(case)
    evidence = {"peak_bytes": peak, "limit_bytes": limit, "peak_over_limit": peak / limit}
    if repeated.spans.empty or peak > case.limit(HEADROOM) * limit:
        return Verdict((), evidence)
    again = repeated.evidence["layers_recomputed_ratio"]
    gain = {"recompute_cost_ns": float(repeated.won_ns(case) or 0), "layers_recomputed_ratio": again}
    evidence = {**evidence, **gain, "headroom_bytes": limit - peak}
    finding = Finding(
        rule=RULE.name,
        title=say(
            "{headroom_bytes} of {limit_bytes} are free while {layers_recomputed_ratio} of layers are recomputed", **evidence
        ),
        subject={"ranks": ()},
        evidence=evidence,
        actions=fitting(case, ACTIONS),
        severity="medium",
        next=("05_recompute", "04_memory", "recompute-cost"),
    )
    return Verdict((finding,), evidence)


def _fullest(case: Case) -> tuple[float, float] | None:
    """Peak and limit in bytes of the rank that is fullest; None unless both are known."""
    rows = case.run.frame("memory_reports")
    rows = rows.assign(limit=rows["budget_bytes"].fillna(rows["device_bytes"]), peak=rows["actual_peak_bytes"])
    stated = rows.dropna(subset=["limit", "peak"])
    if len(stated):
        at = int((stated["peak"] / stated["limit"]).to_numpy(dtype=float).argmax())
        return float(stated["peak"].iloc[at]), float(stated["limit"].iloc[at])
    limit = _limit_bytes(case)
    if limit is None or not case.run.has("memory_curve"):
        return None
    curve = case.run.frame("memory_curve", columns=("rank", "reserved_bytes", "allocated_bytes"))
    peak = curve["reserved_bytes"].max() if curve["reserved_bytes"].notna().any() else curve["allocated_bytes"].max()
    return float(peak), limit


def _limit_bytes(case: Case) -> float | None:
    """What the run's plan may use, else the memory of the smallest device that the run can be of."""
    usable = case.run.plan.usable_memory if case.run.plan is not None else None
    if usable is not None and usable.limit_bytes is not None:
        return float(usable.limit_bytes)
    return min((float(device.memory_bytes) for device in _device.candidates(case)), default=None)


RULE = Rule(
    "recompute-with-headroom", "Recomputation with memory to spare", frozenset({"steps", "kernels"}), MEMORY_BY, (HEADROOM,), check
)
