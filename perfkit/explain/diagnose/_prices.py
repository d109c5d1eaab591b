"""Prices: what a step wins if several causes are gone together, shared among their findings, and never more than is possible.

Time can be won only once: two causes of the same wait win it together, not each; three ranks that are equally slow win nothing one
by one. So findings that say what time would be gone (`Loss`) are priced by replaying the step without all of it, and what that wins
is shared by the mean of what each wins alone and what it adds to all others. Causes that do not touch each other keep their own.

Every price has a bound: no part of a step can be shortened by more than the ledger holds of it on any rank, and communication
cannot hide behind more computing than nothing hides behind yet, nor win more than if it were gone. A price above its bound is cut,
and its evidence says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.explain.diagnose import work
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.rule import Finding, Loss
from perfkit.explain.diagnose.thresholds import LEAST_SHARE
from perfkit.explain.ledger import shared
from perfkit.explain.ledger.causes import UNEXPLAINED
from perfkit.record.overlap import union

INDEPENDENT = 0.02
"""Causes whose prices sum to what they win together but for this share do not touch each other."""
MOST = 12
"""Of more findings what each adds to all others is not worked out: it takes a replay a finding."""
MASKING = 2
"""Causes that win so many times together what they win one by one hide each other."""
REGRESSIONS = frozenset({"more-work", "slow-operators", "slower-than-before"})
"""Rules that say what became slower than in the baseline: together that cannot be more than the step became longer."""
HIDING = frozenset({"exposed-communication", "gradient-allreduce-tail"})
"""Rules whose remedy, where they are about communication, is to hide it behind computing."""
OF_HOSTS = ("feed", "launching", "launch latency", "blocking call", "pause", "allocator", "copy", "device", "why not recorded")
"""Why ranks wait for one whose device was free."""


def joint(findings: Sequence[Finding], case: Case) -> list[Finding]:
    """The findings with the prices of those that say what would be gone, as shares of what they win together."""
    told = [at for at, finding in enumerate(findings) if finding.loss is not None and finding.cost_ns is not None]
    whole, alone, losses = _together(findings, told, case)
    if whole < MASKING * int(alone.sum()):
        # What a device waits for input is timed without its host, so it shares a price only with what clearly hides it.
        told = [at for at in told if not ((loss := findings[at].loss) is not None and loss.alone)]
        whole, alone, losses = _together(findings, told, case)
    if len(told) < 2:
        return list(findings)
    if abs(whole - int(alone.sum())) <= INDEPENDENT * max(whole, int(alone.sum())):
        return list(findings)
    weights = alone + _added(losses, whole, case) if len(told) <= MOST else alone
    costs = shared(whole, weights) if weights.any() else np.zeros(len(told), dtype=np.int64)
    found = list(findings)
    for at, cost in zip(told, costs.tolist(), strict=True):
        evidence = {**found[at].evidence, "cost_alone_ns": found[at].cost_ns or 0, "joint_cost_ns": whole}
        found[at] = replace(found[at], cost_ns=cost, evidence=evidence)
    return found


def _together(findings: Sequence[Finding], told: Sequence[int], case: Case) -> tuple[int, npt.NDArray[np.int64], list[Loss]]:
    """What a step wins without all that these findings name, what each wins alone, and what that is."""
    alone = np.array([findings[at].cost_ns or 0 for at in told], dtype=np.int64)
    losses = [loss for at in told if (loss := findings[at].loss) is not None]
    return work.price(case, losses) if len(told) > 1 else int(alone.sum()), alone, losses


def masked(small: Sequence[Finding], found: Sequence[Finding], case: Case, least_ns: float) -> list[Finding]:
    """Of findings that win next to nothing alone those without which what was found would win far less than with them.

    Where one rank computes longer and another waits for input as long, each alone wins what it has beyond the other.
    """
    losses = [finding.loss for finding in found if finding.loss is not None]
    if not losses or not small:
        return []
    whole = work.price(case, losses)
    return [
        one
        for one in small
        if one.loss is not None and work.price(case, [*losses, one.loss]) - whole >= max(least_ns, (MASKING - 1) * whole)
    ]


def _added(losses: Sequence[Loss], whole: int, case: Case) -> np.ndarray:
    """What each adds to all others, in ns."""
    rest = [work.price(case, [*losses[:at], *losses[at + 1 :]]) for at in range(len(losses))]
    return np.maximum(whole - np.array(rest, dtype=np.int64), 0)


def bounded(finding: Finding, case: Case) -> Finding:
    """The finding with its bound in the evidence (`bound_ns`), and a price of no more than that.

    What is seen in a sample of the events has none.
    """
    if finding.cost_ns is None or not case.step_ns:
        return finding
    looked_at = set(finding.subject.get("ranks") or case.run.ranks) & set(case.detail_ranks)
    if looked_at and case.ledger.sampled.keys() >= looked_at:
        return replace(finding, cost_ns=None, loss=None)  # beside the events of a sample others may have been
    bound_ns = bound(finding, case)
    if finding.rule in REGRESSIONS and (grown_ns := case.grown_ns) is not None:
        bound_ns = min(bound_ns, grown_ns)
    evidence: dict[str, float] = {**finding.evidence, "bound_ns": bound_ns}
    if finding.cost_ns > bound_ns:
        evidence["cost_refused_ns"] = finding.cost_ns
        if finding.rule in HIDING and bound_ns < case.limit(LEAST_SHARE) * case.step_ns:
            # It stays a fact that nothing is hidden, though the step would win by something else alone.
            return replace(finding, cost_ns=bound_ns, evidence=evidence, severity="low")
    return replace(finding, cost_ns=min(finding.cost_ns, bound_ns), evidence=evidence)


def bound(finding: Finding, case: Case) -> int:
    """The most that a step can win by the part of it that a finding is about, in ns."""
    rows = case.ledger.entries
    step_ns = case.step_ns or 0
    if rows.empty:
        return step_ns
    cause = rows["cause"].astype(str)
    if finding.part == "free":
        kept = _of_hosts(rows, OF_HOSTS)
    elif finding.part in ("computing", "communication"):
        kept = rows["part"] == finding.part
    else:
        return step_ns
    # What belongs to no part may belong to this one.
    kept |= (cause == UNEXPLAINED) & rows["detail"].isin(["step", "kernels"])
    hides = finding.rule in HIDING and finding.part == "communication"
    if hides:
        kept &= ~cause.str.startswith("waiting/")
    most = _most(rows[kept.to_numpy(dtype=bool)], case)
    if hides:
        most = min(most, _not_overlapped(case.steps))
        if case.moments is not None:
            # Hiding wins no more than if it were gone: a step that waits for its host wins nothing.
            most = min(most, work.won_ns(case, case.kernels[(case.kernels["kind"] == "communication").to_numpy(dtype=bool)]))
    if finding.part == "free":
        most = max(most, _free_ns(case))
    return min(step_ns, most)


def hosts_ns(case: Case) -> int:
    """The most that a rank loses to hosts in its mean step: idle times of its own device, and waiting for others that is theirs."""
    rows = case.ledger.entries
    return _most(rows[_of_hosts(rows, OF_HOSTS[:-1]).to_numpy(dtype=bool)], case) if len(rows) else 0


def _of_hosts(rows: pd.DataFrame, reasons: Sequence[str]) -> pd.Series:
    cause = rows["cause"].astype(str)
    return (rows["part"] == "free") | (cause == "feed") | cause.isin([f"waiting/{why}" for why in reasons])


def _free_ns(case: Case) -> int:
    """What kernels that compute or communicate leave of the step, of the rank where that is most; 0 without kernels.

    Summaries may count as communication what kernels show to be idle.
    """
    if not case.run.has("kernels") or not case.idle_known:
        return 0
    rows = case.kernels[(case.kernels["kind"] != "copy").to_numpy(dtype=bool)]
    lengths = case.steps.groupby("rank")["duration_ns"].mean()
    most = 0.0
    for rank, own in case.whole(rows).groupby("rank"):
        starts = own["start_ns"].to_numpy(dtype=np.int64)
        busy = union(starts, starts + own["duration_ns"].to_numpy(dtype=np.int64))
        most = max(most, float(lengths.get(rank, 0.0)) - busy.total_ns / case.num_kernel_steps)
    return int(np.ceil(most))


def _most(rows: pd.DataFrame, case: Case) -> int:
    """The mean step of the rank that has most of it."""
    steps = case.steps.groupby("rank")["step"].nunique()
    means = rows.groupby("rank")["ns"].sum() / steps
    return int(np.ceil(means.max())) if means.notna().any() else 0


def _not_overlapped(steps: pd.DataFrame) -> int:
    """Computing beside which nothing communicates: the mean step of the rank that has most of it."""
    known = steps.dropna(subset=["computing_ns"])
    if known.empty:
        return 0
    left = (known["computing_ns"].astype("int64") - known["overlapped_ns"].fillna(0).astype("int64")).clip(lower=0)
    return int(np.ceil(left.groupby(known["rank"]).mean().max()))
