"""Scores: whether a diagnosis names what the labels of a run name, and whom it blames besides.

A record is what is kept of one run: `name`, `label` (kind and severity), `faults` (the labels), `step_ns`, `findings` (`rule`,
`subject`, `cost_ns`) and `failed`. Records are JSON, so that a long benchmark can be run in pieces.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.diagnosis._cases import HEALTHY, HEALTHY_JITTER, RULE_OF_FAULT, label_of

NEAR = 0.15
"""A predicted gain is right within this share of the true one."""
WORTH = 0.01
"""Faults that cost a smaller share of the step say nothing about predicted gains: noise is as large."""

Record = dict[str, Any]


@dataclass
class Score:
    """Counts of one kind of fault at one severity."""

    runs: int = 0
    hits: int = 0
    named: int = 0
    named_right: int = 0
    cost_ratios: list[float] = field(default_factory=list)


def record_of(name: str, faults: tuple[str, ...], found: dict[str, Any], truth: dict[str, Any]) -> Record:
    """What is kept of one run: a diagnosis `found` and the labels `truth`."""
    kept = ("kind", "ranks", "links", "stages", "factor", "cost_ns_per_step", "cost_share")
    labels = [{key: fault.get(key) for key in kept} for fault in truth["faults"]]
    labels = [label for label in labels if label["kind"] != "jitter" or label["factor"] > HEALTHY_JITTER]
    together = truth.get("step_ns", 0) - truth.get("healthy_step_ns", 0)
    if len(labels) > 1 and truth.get("step_ns"):
        first = {**labels[0], "cost_ns_per_step": together, "cost_share": together / truth["step_ns"]}
        labels = [{**first, "ranks": sorted({rank for label in labels for rank in label["ranks"]})}]
    return {
        "name": name,
        "label": label_of(faults),
        "faults": labels,
        "step_ns": found["step_ns"],
        "findings": [_kept(finding) for finding in found["findings"]],
        "failed": found["failed"],
    }


def _kept(finding: dict[str, Any]) -> dict[str, Any]:
    """A finding with what it costs alone: the cost that is shown leaves out what costlier findings of the step have taken."""
    alone = finding["evidence"].get("cost_alone_ns", finding["cost_ns"])
    return {**{key: finding[key] for key in ("rule", "severity", "title", "subject")}, "cost_ns": alone}


def scores_of(records: Iterable[Record], *, verbose: bool = False) -> tuple[dict[str, Score], Counter[str]]:
    """The scores by kind and severity, and how often something else was said of a kind."""
    scores: dict[str, Score] = defaultdict(Score)
    other: Counter[str] = Counter()
    for record in records:
        _judge(record, scores[record["label"]], other, verbose=verbose)
    return scores, other


def _judge(record: Record, score: Score, other: Counter[str], *, verbose: bool) -> None:
    score.runs += 1
    expected = {RULE_OF_FAULT[fault["kind"]] for fault in record["faults"]}
    for failure in record["failed"]:
        print(f"{record['name']}: rule {failure['rule']} failed: {failure['error']}")
    for finding in record["findings"]:
        if finding["rule"] not in expected:
            other[f"{finding['rule']} on {record['label']}"] += 1
            if verbose:
                print(f"{record['name']}: alarm {finding['rule']}: {finding['title']}")
    if not record["faults"]:
        score.hits += not any(finding["severity"] != "low" or finding["rule"] == "jitter" for finding in record["findings"])
        _count_named(None, record, score)
        return
    fault = record["faults"][0]
    mine = [finding for finding in record["findings"] if finding["rule"] == RULE_OF_FAULT[fault["kind"]]]
    hit = bool(mine) and is_right(fault, mine)
    score.hits += hit
    _count_named(fault, record, score)
    ratio = sum(finding["cost_ns"] or 0 for finding in mine) / fault["cost_ns_per_step"] if fault["cost_ns_per_step"] else None
    if hit and ratio is not None and (fault.get("cost_share") or 0.0) >= WORTH:
        score.cost_ratios.append(ratio)
        if verbose and abs(ratio - 1.0) > NEAR:
            print(f"{record['name']}: cost {ratio:.2f} of the true one (share {fault['cost_share']:.4f})")
    if verbose and not hit:
        told = [(finding["rule"], dict(finding["subject"])) for finding in record["findings"]]
        print(f"{record['name']}: missed (share {fault.get('cost_share')}), said {told}")


def is_right(fault: dict[str, Any], mine: list[dict[str, Any]]) -> bool:
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


def _count_named(fault: dict[str, Any] | None, record: Record, score: Score) -> None:
    """Ranks and links that slow-rank and slow-link name, and how many of them are at fault."""
    guilty = set(fault["ranks"]) if fault is not None and fault["kind"] == "slow_rank" else set()
    bad = {tuple(sorted(link)) for link in fault["links"]} if fault is not None and fault["kind"] == "slow_link" else set()
    for finding in record["findings"]:
        if finding["rule"] == "slow-rank":
            score.named += len(finding["subject"]["ranks"])
            score.named_right += sum(rank in guilty for rank in finding["subject"]["ranks"])
        elif finding["rule"] == "slow-link":
            score.named += len(finding["subject"]["links"])
            score.named_right += sum(tuple(sorted(link)) in bad for link in finding["subject"]["links"])


def print_scores(scores: dict[str, Score], other: Counter[str]) -> None:
    """One line a kind of fault and severity; then precision, false alarms, and what was said besides."""
    print(
        f"{'fault':30} {'runs':>5} {'right':>6} {'recall':>7} {'named, right':>14}  cost / true cost: median (range), within 15 %"
    )
    for label, score in sorted(scores.items()):
        print(
            f"{label:30} {score.runs:5} {score.hits:6} {score.hits / score.runs:7.2f} "
            f"{score.named_right:>7} of {score.named:<3}  {_costs(score.cost_ratios)}"
        )
    named, right = (sum(getattr(score, name) for score in scores.values()) for name in ("named", "named_right"))
    print(f"precision of ranks and links named: {right / named if named else 1.0:.3f} ({right} of {named})")
    if HEALTHY in scores:
        print(f"runs without a fault, nothing above low and no jitter said: {scores[HEALTHY].hits} of {scores[HEALTHY].runs}")
    ratios = [ratio for score in scores.values() for ratio in score.cost_ratios]
    print(f"all costs of faults of {WORTH:.0%} of the step and more: {_costs(ratios)}")
    for label, count in sorted(other.items()):
        print(f"  also said: {label}: {count}")


def print_classic(records: Iterable[Record]) -> None:
    """What the 20 % rule on computing times finds of the same slow ranks, and whom it names in all runs, by kind and severity."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for record in records:
        if record.get("classic") is None:
            continue
        guilty = {rank for fault in record["faults"] if fault["kind"] == "slow_rank" for rank in fault["ranks"]}
        mine = [finding for finding in record["findings"] if finding["rule"] == RULE_OF_FAULT["slow_rank"]]
        named = {rank for finding in mine for rank in finding["subject"]["ranks"]}
        count = counts[record["label"]]
        count["runs"] += 1
        count["perfkit"] += bool(guilty) and guilty <= named
        count["classic"] += bool(guilty) and guilty <= set(record["classic"])
        count["innocent"] += len(set(record["classic"]) - guilty)
    if counts:
        print(
            f"\n{'the same runs by the 20 % rule':30} {'runs':>5} {'perfkit':>8} {'20 % rule':>10} {'innocents that it names':>24}"
        )
    for label, count in sorted(counts.items()):
        print(f"{label:30} {count['runs']:5} {count['perfkit']:8} {count['classic']:10} {count['innocent']:24}")


def _costs(ratios: list[float]) -> str:
    if not ratios:
        return ""
    ordered = sorted(ratios)
    near = sum(abs(ratio - 1.0) <= NEAR for ratio in ordered)
    return f"{ordered[len(ordered) // 2]:.2f} ({ordered[0]:.2f} to {ordered[-1]:.2f}), {near} of {len(ordered)}"
