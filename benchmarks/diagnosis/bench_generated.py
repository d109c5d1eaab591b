"""How often a diagnosis is right: recall, precision and false alarms on labelled runs of a generator.

The generator is a Python script with a function `main(arguments)` that writes a run and its labels:
`ascend --out DIR --truth FILE --dp N --tp N --pp N --seed N --steps N [--fault KIND:ARGS] [--timeline all]`, or `kineto` likewise.
Labels are JSON with `healthy` and `faults`, each with `kind`, `ranks`, `links`, `stages`, `op_type`, `factor` and `cost_share`.

example: python -m benchmarks.diagnosis.bench_generated path/to/generator.py --seeds 2
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.diagnosis._cases import RULE_OF_FAULT, Case, cases
from perfkit.diagnose import diagnose, to_dict
from perfkit.trace.load import load

HEALTHY_JITTER = 0.03


@dataclass
class Score:
    """Counts of one kind of fault at one severity."""

    runs: int = 0
    hits: int = 0
    named: int = 0
    named_right: int = 0
    cost_ratios: list[float] = field(default_factory=list)


def main() -> None:
    """Generate, diagnose, score, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("generator", help="the generator's Python file")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--format", choices=("ascend", "kineto"), default="ascend")
    parser.add_argument("--kinds", nargs="*", default=(), help="only these kinds of fault; healthy for runs without")
    parser.add_argument("--verbose", action="store_true", help="print every miss and every alarm")
    arguments = parser.parse_args()
    make = _generator(Path(arguments.generator))
    scores: dict[str, Score] = defaultdict(Score)
    other: dict[str, int] = defaultdict(int)
    started, count = time.process_time(), 0
    for case in cases(arguments.seeds, tuple(arguments.kinds)):
        with tempfile.TemporaryDirectory() as folder:
            found, truth = _diagnosed(case, make, Path(folder), arguments.format)
        count += 1
        _judge(case, found, truth, scores, other, verbose=arguments.verbose)
    _print(scores, other)
    print(f"\n{count} runs, {time.process_time() - started:.0f} cpu-s with generation")


def _generator(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("run_generator", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_generator"] = module
    spec.loader.exec_module(module)
    return module.main


def _written(case: Case, make: Any, folder: Path, format: str, faults: tuple[str, ...]) -> tuple[Path, dict[str, Any]]:
    out, truth = folder / "run", folder / "truth.json"
    shutil.rmtree(out, ignore_errors=True)
    arguments = [format, "--out", str(out), "--truth", str(truth), "--seed", str(case.seed), "--steps", str(case.steps)]
    arguments += ["--dp", str(case.data), "--tp", str(case.tensor), "--pp", str(case.pipeline)]
    if format == "ascend" and any(fault.startswith(("frequent_sync", "gc_pause", "host_bound", "memory")) for fault in faults):
        arguments += ["--timeline", "all"]
    for fault in faults:
        arguments += ["--fault", fault]
    with contextlib.redirect_stdout(io.StringIO()):
        make(arguments)
    return out, json.loads(truth.read_text(encoding="utf-8"))


def _diagnosed(case: Case, make: Any, folder: Path, format: str) -> tuple[dict[str, Any], dict[str, Any]]:
    baseline = None
    if any(fault.startswith("slow_op") for fault in case.faults):
        out, _ = _written(case, make, folder / "base", format, ())
        baseline = load(out, cache=False)
    out, truth = _written(case, make, folder, format, case.faults)
    return to_dict(diagnose(load(out, cache=False), baseline)), truth


def _judge(
    case: Case, found: dict[str, Any], truth: dict[str, Any], scores: dict[str, Score], other: dict[str, int], *, verbose: bool
) -> None:
    for failure in found["failed"]:
        print(f"{case.name}: rule {failure['rule']} failed: {failure['error']}")
    faults = [fault for fault in truth["faults"] if not (fault["kind"] == "jitter" and fault["factor"] <= HEALTHY_JITTER)]
    label = ":".join(case.faults) and _label(case.faults[0]) if faults else "healthy"
    score = scores[label]
    score.runs += 1
    expected = {RULE_OF_FAULT[fault["kind"]] for fault in faults}
    for finding in found["findings"]:
        if finding["rule"] not in expected:
            other[f"{finding['rule']} on {label}"] += 1
            if verbose:
                print(f"{case.name}: alarm {finding['rule']}: {finding['title']}")
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
        print(f"{case.name}: missed (share {fault.get('cost_share')}), said {told}")


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


def _print(scores: dict[str, Score], other: dict[str, int]) -> None:
    print(f"{'fault':34} {'runs':>5} {'recall':>7} {'ranks and links named, right':>29} {'cost / true cost, median':>25}")
    for label, score in sorted(scores.items()):
        ratios = sorted(score.cost_ratios)
        cost = f"{ratios[len(ratios) // 2]:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})" if ratios else ""
        print(f"{label:34} {score.runs:5} {score.hits / score.runs:7.2f} {score.named_right:>22} of {score.named:<3} {cost:>25}")
    named, right = (sum(getattr(score, name) for score in scores.values()) for name in ("named", "named_right"))
    print(f"precision of ranks and links named: {right / named if named else 1.0:.3f} ({right} of {named})")
    for label, count in sorted(other.items()):
        print(f"  also said: {label}: {count}")


if __name__ == "__main__":
    main()
