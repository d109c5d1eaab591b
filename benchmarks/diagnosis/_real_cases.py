"""Real recordings with one cause put in: which bases there are, which causes each gets, and whether a diagnosis names them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.diagnosis._causes import Cause, about, joined, noisy, put_in, repeated
from benchmarks.diagnosis._rewritten import stretched
from benchmarks.diagnosis._timed_anew import Recording, Stretched
from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.explain.diagnose import Diagnosis, all_rules, diagnose, work
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.rule import Finding
from perfkit.record.load import load

NEAR = 0.15
TOLD = 0.005
"""What a step loses less than, nobody needs to be told."""
BUNDLED = Path(__file__).parents[2] / "tests" / "data" / "traces"


@dataclass(frozen=True, slots=True)
class Base:
    """A recording: where it is, whether its one step is repeated, and the causes that it gets (steps by their position)."""

    name: str
    folder: Path
    causes: tuple[Cause, ...]
    times: int = 1
    with_baseline: tuple[Cause, ...] = ()


def bases() -> tuple[Base, ...]:
    """The recordings that come with perfkit, of GPUs and Ascend devices, with the causes that each can show."""
    return (
        Base(
            "DDP ResNet, 1 of 2 ranks, 3 steps",
            data_folder() / "traces" / "kineto_resnet",
            (
                Cause("late data", 40),
                Cause("late data", 50, steps=(1,)),
                Cause("pause", 50, steps=(0,)),
                Cause("slow transfers", 6, steps=(1, 2)),
                Cause("slow computing", 1.5, steps=(0,)),
                Cause("slow copies", 10),
                Cause("slow copies", 10, steps=(1,)),
            ),
            with_baseline=(Cause("slow transfers", 2), Cause("slow computing", 1.4, operator="Cijk")),
        ),
        Base(
            "ResNet-50, 6 steps",
            BUNDLED / "kineto_tb_samples" / "resnet50_num_workers_4",
            (
                Cause("late data", 25),
                Cause("late data", 60, steps=(1, 4)),
                Cause("pause", 40, steps=(2, 5)),
                Cause("pause", 30, steps=(0, 1, 2, 3, 4, 5)),
                Cause("slow host", 2.5),
                Cause("slow host", 3, steps=(1, 3)),
                Cause("blocking calls", 40),
                Cause("slow copies", 6),
                Cause("slow computing", 1.4, steps=(2, 3)),
            ),
            with_baseline=(Cause("slow computing", 1.3, operator="sgemm"), Cause("slow computing", 1.2)),
        ),
        Base(
            "recommendation model, 2 steps",
            BUNDLED / "hta" / "negative_queue_length",
            (Cause("slow transfers", 8, steps=(1,)), Cause("pause", 60, steps=(0,)), Cause("late data", 60)),
            with_baseline=(Cause("slow transfers", 3), Cause("slow computing", 2)),
        ),
        Base(
            "DDP ResNet of small batches, 3 steps",
            BUNDLED / "hta" / "nccl_parser_config",
            (
                Cause("late data", 30),
                Cause("late data", 50, steps=(1,)),
                Cause("pause", 50, steps=(2,)),
                Cause("slow host", 1.4),
                Cause("slow transfers", 12, steps=(0, 2)),
            ),
            with_baseline=(Cause("slow host", 1.3), Cause("slow transfers", 10)),
        ),
        Base(
            "one GPU with a full queue, 5 steps",
            BUNDLED / "hta" / "ns_resolution_trace",
            (
                Cause("pause", 120, steps=(2,)),
                Cause("slow computing", 1.5, steps=(1, 3)),
                Cause("late data", 150, steps=(3,)),
                Cause("slow host", 4),
                Cause("blocking calls", 200),
            ),
            with_baseline=(Cause("slow computing", 1.25),),
        ),
        Base(
            "DLRM, 8 ranks, 1 step",
            BUNDLED / "dlrm_8xV100",
            (
                Cause("late data", 10, ranks=(2,)),
                Cause("pause", 8, ranks=(5,)),
                Cause("slow computing", 8, ranks=(3,)),
                Cause("slow host", 2),
            ),
            with_baseline=(Cause("slow transfers", 5),),
        ),
        Base(
            "DLRM, 8 ranks, 6 steps",
            BUNDLED / "dlrm_8xV100",
            (
                Cause("slow computing", 6, ranks=(4,)),
                Cause("slow computing", 4, ranks=(1, 5, 6)),
                Cause("slow host", 1.8, ranks=(2,)),
                Cause("late data", 8, ranks=(0,)),
                Cause("late data", 20, steps=(1, 4)),
                Cause("pause", 15, ranks=(6,), steps=(1, 3, 5)),
                Cause("pause", 12, ranks=(3,), steps=(2,)),
                Cause("slow transfers", 8, steps=(0, 2, 4)),
                Cause("blocking calls", 30, ranks=(1,)),
                Cause("slow host", 2.5, ranks=(5,), steps=(2, 4)),
            ),
            times=6,
        ),
        Base(
            "AlexNet, 2 NPUs, 4 steps",
            BUNDLED / "msprof_export" / "alexnet",
            (
                Cause("late data", 12),
                Cause("pause", 10, steps=(1,)),
                Cause("slow computing", 1.6, ranks=(1,)),
                Cause("slow computing", 1.8, steps=(1, 2)),
                Cause("slow transfers", 3, steps=(1, 3)),
            ),
            with_baseline=(Cause("slow transfers", 2), Cause("slow computing", 1.5, operator="MatMul")),
        ),
        Base(
            "small model, 2 of 8 NPUs, 1 step",
            BUNDLED / "torch_npu_db" / "level1",
            (Cause("pause", 20), Cause("slow host", 3), Cause("pause", 15, ranks=(1,))),
            with_baseline=(Cause("slow computing", 3), Cause("slow transfers", 8)),
        ),
        Base(
            "Qwen3-0.6B, two stages, 1 step",
            BUNDLED / "torch_npu_pp2dp2",
            (Cause("pause", 60, ranks=(0,)), Cause("slow computing", 1.5, ranks=(2,))),
            with_baseline=(Cause("slow transfers", 2), Cause("slow computing", 1.3, operator="MatMul")),
        ),
    )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a diagnosis said of a case: whether the cause was named, at which share of its true cost, and who was blamed besides."""

    base: str
    cause: str
    true_share: float
    right: bool
    cost_ratio: float | None
    innocents: tuple[str, ...]
    said: tuple[str, ...]


@cache
def _read(folder: Path, times: int) -> tuple[Recording, Diagnosis]:
    run = _with_kernels(load(folder, cache=False))
    if times > 1:
        lasting = Recording(repeated(run, times))
        run = stretched(lasting, noisy(lasting, 0.02, seed=7))
    recording = Recording(run)
    base = stretched(recording, Stretched())
    return Recording(base), diagnose(base)


def read(base: Base) -> Run:
    """The recording of a base, as causes are put into it."""
    return _read(base.folder, base.times)[0].run


def _with_kernels(run: Run) -> Run:
    """The ranks whose kernels were recorded: others could not be timed anew with them, and their clocks would seem to jump."""
    ranks = run.frame("kernels")["rank"].unique()
    if set(ranks) == set(run.ranks):
        return run
    tables = {name: run.frame(name) for name in run.tables}
    kept = {
        name: rows[rows["rank"].isin(ranks)].reset_index(drop=True) if "rank" in rows else rows for name, rows in tables.items()
    }
    placement = {rank: place for rank, place in run.placement.items() if rank in ranks}
    return replace(run, tables=kept, placement=placement, cache_key="")


def cases() -> Iterator[tuple[Base, Cause, bool]]:
    """Every base with every cause, and whether the base itself is the baseline."""
    for base in bases():
        yield from ((base, cause, False) for cause in base.causes)
        yield from ((base, cause, True) for cause in base.with_baseline)


def judged(base: Base, cause: Cause, with_baseline: bool) -> Verdict:
    """Put the cause in, diagnose, and compare with the truth."""
    recording, before = _read(base.folder, base.times)
    run = stretched(recording, joined([put_in(recording, cause)]))
    found = diagnose(run, recording.run if with_baseline else None)
    true_ns = _step_ns(run) - _step_ns(recording.run)
    numbers = sorted(int(step) for step in run.frame("steps")["step"].unique())
    steps = tuple(numbers[at] for at in cause.steps)
    of_rule = [finding for finding in found.findings if about(finding, cause)]
    fits = [
        finding for finding in of_rule if _names(finding, cause, steps, whole=set(steps) == set(numbers), many=len(numbers) > 1)
    ]
    ratio = None
    if fits and true_ns > 0:
        best = max(fits, key=_alone)
        whole_ns = _of_rule(found, run, best.rule) - _of_rule(before, recording.run, best.rule)
        ratio = (_alone(best) if cause.steps else whole_ns) / true_ns
    return Verdict(
        base=base.name,
        cause=cause.name + (" with baseline" if with_baseline else ""),
        true_share=true_ns / _step_ns(run),
        right=bool(fits),
        cost_ratio=ratio,
        innocents=tuple(_innocents(found, base, cause, _step_ns(run))),
        said=tuple(f"{finding.rule} {_alone(finding) / 1e6:.2f} {_short(finding)}" for finding in found.findings),
    )


@cache
def _said_alone(folder: Path, times: int, name: str) -> bool:
    """Whether a rule has a finding in the base when no other is asked: one that says the same has hidden it."""
    rule = next(rule for rule in all_rules() if rule.name == name)
    return bool(diagnose(_read(folder, times)[0].run, only=[rule]).findings)


def _step_ns(run: Run) -> float:
    """The mean over steps of the longest rank."""
    return float(run.frame("steps").groupby("step")["duration_ns"].max().mean())


def _alone(finding: Finding) -> float:
    return float(finding.evidence.get("cost_alone_ns", finding.cost_ns or 0))


def _of_rule(found: Diagnosis, run: Run, rule: str) -> float:
    """What the step wins without all that a rule has found: two of its findings win the time that they share together."""
    mine = [finding for finding in found.findings if finding.rule == rule]
    losses = [finding.loss for finding in mine if finding.loss is not None]
    if len(losses) > 1:
        rest = [finding for finding in mine if finding.loss is None]
        return work.price(Case(run), losses) + sum(map(_alone, rest))
    return sum(map(_alone, mine))


def _names(finding: Finding, cause: Cause, steps: tuple[int, ...], *, whole: bool, many: bool) -> bool:
    """Whether a finding names the ranks of a cause and, where it does not last, its steps."""
    told = {key: {int(one) for one in finding.subject.get(key, ())} for key in ("ranks", "steps")}
    if cause.ranks and told["ranks"] != set(cause.ranks):
        return False
    return not steps or whole or not many or told["steps"] == set(steps)


def _innocents(found: Diagnosis, base: Base, cause: Cause, step_ns: float) -> Iterator[str]:
    """Findings that the base did not have and the cause does not explain."""
    known = {finding.rule: set(finding.subject.get("ranks", ())) for finding in _read(base.folder, base.times)[1].findings}
    for finding in found.findings:
        ranks = set(finding.subject.get("ranks", ()))
        share = (finding.cost_ns or 0) / step_ns
        if about(finding, cause):
            continue
        if finding.rule not in known and share >= TOLD and not _said_alone(base.folder, base.times, finding.rule):
            yield f"{finding.rule} {share:.3f} {sorted(ranks)}"
        elif finding.rule in ("slow-rank", "slow-link") and ranks - set(cause.ranks) - known.get(finding.rule, set()):
            yield f"{finding.rule} {sorted(ranks)}"


def _short(finding: Finding) -> dict[str, Any]:
    return {key: list(finding.subject[key]) for key in ("ranks", "steps", "links", "stages") if key in finding.subject}
