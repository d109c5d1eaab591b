"""Accounted: which finding stands for which entry of the ledger.

An entry is a finding's if one of the rules that are about its cause has a finding, and that names the rank that lost the time, or
none. A loss that no finding stands for is still in the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfkit.explain.diagnose.rule import Finding
from perfkit.explain.ledger import BEFORE, NOBODY, Ledger
from perfkit.explain.ledger.causes import UNEXPLAINED

RULES: Mapping[str, tuple[str, ...]] = {
    "feed": ("data-feed",),
    "copy": ("host-copies",),
    "device": ("core-idle", "host-pause"),
    "host/launching": ("host-bound", "frequent-sync", "host-pause", "cpu-contention"),
    "host/launch latency": ("host-bound", "frequent-sync", "host-pause"),
    "host/blocking call": ("frequent-sync", "host-copies", "host-bound", "host-pause"),
    "host/pause": ("host-pause", "host-bound"),
    "host/allocator": ("memory-fragmentation", "allocator-churn", "host-pause"),
    "transfer/slower than usual": ("slow-link",),
    "transfer": (
        "avoidable-communication",
        "small-messages",
        "slow-link",
        "bandwidth-low",
        "gradient-allreduce-tail",
        "exposed-communication",
    ),
    "waiting/kernels": ("slow-rank", "slow-operators", "jitter"),
    "waiting/experts": ("moe-imbalance",),
    "waiting/head": ("stage-imbalance",),
    "waiting/filling": ("micro-less-than-stages", "pipeline-bubble"),
    "waiting/stage load": ("stage-imbalance",),
    "waiting/another stage": ("stage-imbalance", "pipeline-bubble"),
    "waiting/slow link": ("slow-link",),
    "waiting/transfer": ("slow-link", "bandwidth-low", "exposed-communication"),
    "waiting/late sends": ("slow-rank", "pipeline-bubble", "slow-link"),
    "waiting/why not recorded": ("slow-rank", "late-rank", "stage-imbalance", "data-feed", "host-bound"),
    "unexplained/idle": ("host-bound", "host-pause"),
    "unexplained/communication": ("exposed-communication",),
    "work/conversion": ("excess-casts",),
    "work/AI CPU": ("ai-cpu-on-path",),
    "work/recomputation": ("recompute-cost",),
    "work": (
        "slow-operators",
        "fp32-hot-operator",
        "inefficient-operators",
        "fusion-candidate",
        "recompute-cost",
        "excess-casts",
    ),
}
"""By cause or the beginning of one the rules that are about it, the most exact first."""
OF_LEADS = ("data-feed",)
"""Rules about what passes before the first kernel of a step, whatever the host does in it."""


def entries(ledger: Ledger, findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """The entries as documents: `rank`, `step`, `cause`, `subject`, `ns`, and as `finding` the rule that stands for it, or None."""
    found: dict[tuple[str, int | None], str | None] = {}
    rows = []
    for row in ledger.entries.to_dict("records"):
        cause = str(row["cause"])
        key = (path_of(cause, row["place"], row["detail"]), loser_of(cause, int(row["rank"]), int(row["who"])))
        if key not in found:
            found[key] = finding_of(*key, findings)
        subject: dict[str, Any] = {"place": row["place"]}
        if row["who"] != NOBODY:
            subject["ranks"] = [int(row["who"])]
        if isinstance(row["detail"], str):
            subject["what"] = row["detail"]
        rows.append(
            {
                "rank": int(row["rank"]),
                "step": int(row["step"]),
                "cause": cause,
                "subject": subject,
                "ns": int(row["ns"]),
                "finding": found[key],
            }
        )
    return rows


def path_of(cause: str, place: str, detail: object) -> str:
    """What rules are asked about: of what is not explained, what it is of; of idle times, whether the step had begun."""
    if cause == UNEXPLAINED:
        return f"{cause}/{detail}"
    return f"{BEFORE}/{cause}" if place == BEFORE and cause.startswith("host/") else cause


def loser_of(cause: str, rank: int, who: int) -> int | None:
    """The rank that lost the time of an entry of `rank`; None where it waits and it is not known for whom."""
    if who != NOBODY:
        return who
    return None if cause.startswith("waiting/") else rank


def finding_of(path: str, rank: int | None, findings: Sequence[Finding]) -> str | None:
    """The rule of the finding that stands for time that `rank` lost (None: any may have); None if there is none."""
    named = {finding.rule for finding in findings if rank is None or rank in finding.subject.get("ranks", (rank,))}
    return next((rule for rule in rules_of(path) if rule in named), None)


def rules_of(path: str) -> tuple[str, ...]:
    """The rules that are about a cause: what a rank waits for is what another one loses."""
    if path.startswith(f"{BEFORE}/"):
        return (*OF_LEADS, *rules_of(path.removeprefix(f"{BEFORE}/")))
    own = path if path in RULES else path.replace("waiting/", "host/", 1)
    own = own if own in RULES else path.removeprefix("waiting/")
    return RULES.get(own, RULES.get(own.split("/", maxsplit=1)[0], ()))
