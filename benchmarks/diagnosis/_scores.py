"""Scores: whether a diagnosis names what the labels of a run name, and whom it blames besides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from benchmarks.diagnosis._cases import RULE_OF_FAULT

HEALTHY_JITTER = 0.03


@dataclass
class Score:
    """Counts of one kind of fault at one severity."""

    runs: int = 0
    hits: int = 0
    named: int = 0
    named_right: int = 0
    cost_ratios: list[float] = field(default_factory=list)


def judge(
    case: tuple[str, tuple[str, ...]],
    found: dict[str, Any],
    truth: dict[str, Any],
    scores: dict[str, Score],
    other: dict[str, int],
    *,
    verbose: bool,
) -> None:
    """Count what a diagnosis `found` of a `case`, a name with its faults as text, whose labels are `truth`."""
    name, texts = case
    for failure in found["failed"]:
        print(f"{name}: rule {failure['rule']} failed: {failure['error']}")
    faults = [fault for fault in truth["faults"] if not (fault["kind"] == "jitter" and fault["factor"] <= HEALTHY_JITTER)]
    label = _label(texts[0]) if faults else "healthy"
    score = scores[label]
    score.runs += 1
    expected = {RULE_OF_FAULT[fault["kind"]] for fault in faults}
    for finding in found["findings"]:
        if finding["rule"] not in expected:
            other[f"{finding['rule']} on {label}"] += 1
            if verbose:
                print(f"{name}: alarm {finding['rule']}: {finding['title']}")
    if not faults:
        score.hits += not found["findings"]
        return
    fault = faults[0]
    mine = [finding for finding in found["findings"] if finding["rule"] == RULE_OF_FAULT[fault["kind"]]]
    hit = bool(mine) and _right(fault, mine)
    score.hits += hit
    _count_named(fault, found, score)
    if hit and fault.get("cost_ns_per_step"):
        score.cost_ratios.append(sum(finding["cost_ns"] or 0 for finding in mine) / fault["cost_ns_per_step"])
    if verbose and not hit:
        told = [(finding["rule"], dict(finding["subject"])) for finding in found["findings"]]
        print(f"{name}: missed (share {fault.get('cost_share')}), said {told}")


def _label(fault: str) -> str:
    kind, *rest = fault.split(":")
    who = "one " if rest and kind in ("data_stall", "host_bound", "gc_pause", "memory_fragmentation") and rest[0] != "all" else ""
    size = (
        rest[1:]
        if kind
        in (
            "slow_rank",
            "slow_link",
            "clock_skew",
            "data_stall",
            "host_bound",
            "gc_pause",
            "memory_fragmentation",
            "imbalanced_pp_stage",
        )
        else rest
    )
    return f"{kind} {who}{':'.join(size)}".strip()


def _right(fault: dict[str, Any], mine: list[dict[str, Any]]) -> bool:
    """Whether the findings name what the label names: its ranks, link or stage, where it has some."""
    subject = {
        name: {_hashable(value) for finding in mine for value in finding["subject"].get(name, [])}
        for name in ("ranks", "links", "stages")
    }
    if fault["kind"] == "slow_link":
        return {tuple(sorted(link)) for link in subject["links"]} == {tuple(sorted(link)) for link in fault["links"]}
    if fault["kind"] == "imbalanced_pp_stage":
        return subject["stages"] == set(fault["stages"])
    return subject["ranks"] == set(fault["ranks"]) if fault["ranks"] else True


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _count_named(fault: dict[str, Any], found: dict[str, Any], score: Score) -> None:
    """Ranks and links that slow-rank and slow-link name, and how many of them are at fault."""
    guilty = set(fault["ranks"]) if fault["kind"] == "slow_rank" else set()
    bad = {tuple(sorted(link)) for link in fault["links"]} if fault["kind"] == "slow_link" else set()
    for finding in found["findings"]:
        if finding["rule"] == "slow-rank":
            score.named += len(finding["subject"]["ranks"])
            score.named_right += sum(rank in guilty for rank in finding["subject"]["ranks"])
        elif finding["rule"] == "slow-link":
            score.named += len(finding["subject"]["links"])
            score.named_right += sum(tuple(sorted(link)) in bad for link in finding["subject"]["links"])


def print_scores(scores: dict[str, Score], other: dict[str, int]) -> None:
    """One line a kind of fault and severity; then precision, and what was said besides."""
    print(f"{'fault':34} {'runs':>5} {'recall':>7} {'ranks and links named, right':>29} {'cost / true cost, median':>25}")
    for label, score in sorted(scores.items()):
        ratios = sorted(score.cost_ratios)
        cost = f"{ratios[len(ratios) // 2]:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})" if ratios else ""
        print(f"{label:34} {score.runs:5} {score.hits / score.runs:7.2f} {score.named_right:>22} of {score.named:<3} {cost:>25}")
    named, right = (sum(getattr(score, name) for score in scores.values()) for name in ("named", "named_right"))
    print(f"precision of ranks and links named: {right / named if named else 1.0:.3f} ({right} of {named})")
    for label, count in sorted(other.items()):
        print(f"  also said: {label}: {count}")
