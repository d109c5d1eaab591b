"""Real recordings with one cause put in: it is named, and nobody else is blamed."""

from __future__ import annotations

import pytest

from benchmarks.diagnosis._causes import joined, put_in
from benchmarks.diagnosis._drawn import BEYOND
from benchmarks.diagnosis._real_cases import BUNDLED, NEAR, TOLD, Base, Cause, bases, judged, read
from benchmarks.diagnosis._rewritten import stretched
from benchmarks.diagnosis._timed_anew import Recording
from perfkit.explain.diagnose import diagnose
from perfkit.explain.ledger import causes, ledger

QUICK = ("AlexNet, 2 NPUs, 4 steps", "small model, 2 of 8 NPUs, 1 step", "Qwen3-0.6B, two stages, 1 step")
MISSED = {"slow transfers 3 steps 0,3"}
"""The first of four steps is one of those that are slow, and is taken for warm-up."""
CASES = [
    pytest.param(base, cause, with_baseline, id=f"{base.name}: {cause.name}{' with baseline' if with_baseline else ''}")
    for base in bases()
    if base.name in QUICK
    for causes, with_baseline in ((base.causes, False), (base.with_baseline, True))
    for cause in causes
]


@pytest.mark.parametrize(("base", "cause", "with_baseline"), CASES)
def test_a_cause_is_named_and_nobody_else_is_blamed(base: Base, cause: Cause, with_baseline: bool):
    verdict = judged(base, cause, with_baseline)
    assert verdict.innocents == ()
    assert verdict.right or verdict.true_share < TOLD or cause.name in MISSED


KINDS = ("blocking calls", "slow copies")
PRICED = [(base, cause) for base in bases() for cause in base.causes if cause.kind in KINDS and base.times == 1]


@pytest.mark.parametrize(("base", "cause"), PRICED, ids=[f"{base.name}: {cause.name}" for base, cause in PRICED])
def test_calls_that_wait_and_copies_cost_what_they_made_the_steps_longer(base: Base, cause: Cause):
    verdict = judged(base, cause, with_baseline=False)
    assert (verdict.right, verdict.innocents) == (True, ())
    assert verdict.cost_ratio == pytest.approx(1, abs=NEAR)


ITSELF = "ResNet-50 that loads itself, 6 steps"
BESIDE = [
    (ITSELF, Cause("slow copies", 6.2, steps=(0, 4, 5))),  # steps that wait for their input hide how late launches are
    (ITSELF, Cause("pause", 44.7)),  # of three launches that are held up the device waits for one
    ("one GPU with a full queue, 5 steps", Cause("slow host", 3.1, steps=(0,))),  # its longest stretches are no stops
    ("Qwen on H100, 1 step", Cause("slow copies", 8)),  # all of them set memory
]


def _base(name: str) -> Base:
    every = (*bases(), *(Base(known, BUNDLED / folder, ()) for known, folder in BEYOND))
    return next(base for base in every if base.name == name)


@pytest.mark.parametrize(("name", "cause"), BESIDE, ids=[f"{name}: {cause.name}" for name, cause in BESIDE])
def test_what_only_follows_from_a_cause_is_not_told_beside_it(name: str, cause: Cause):
    verdict = judged(_base(name), cause, with_baseline=False)
    assert (verdict.right, verdict.innocents) == (True, ())


STAGES, EIGHT = "Qwen3-0.6B, two stages, 1 step", "DLRM, 8 ranks, 6 steps"
WAITS = [
    (STAGES, Cause("late data", 22, ranks=(0,))),  # the first stage: every micro batch waits, but once
    (STAGES, Cause("late data", 180)),
    (EIGHT, Cause("late data", 8, ranks=(0,))),  # of ranks that all wait, and of steps that all do
    ("large model, 1 step", Cause("slow copies", 5.5)),  # one of them runs before the step begins
]


@pytest.mark.parametrize(("name", "cause"), WAITS, ids=[f"{name}: {cause.name}" for name, cause in WAITS])
def test_waits_at_the_start_of_steps_cost_what_they_made_the_steps_longer(name: str, cause: Cause):
    verdict = judged(_base(name), cause, with_baseline=False)
    assert verdict.right
    assert verdict.cost_ratio == pytest.approx(1, abs=NEAR)


LAUNCHES = [("large model, 1 step", 3.6), ("vision model, 2 steps", 2), ("one NPU, 1 step", 3)]


@pytest.mark.parametrize(("name", "times"), LAUNCHES)
def test_what_the_ledger_holds_as_late_launches_is_in_a_finding(name: str, times: float):
    """Also where the device waits for few of its kernels, as in the first."""
    recording = Recording(read(_base(name)))
    run = stretched(recording, joined([put_in(recording, Cause("slow host", times))]))
    late = ledger(run).waterfall().set_index("cause")["share"].get(causes.LAUNCHING, 0.0)
    assert late > 0.1
    (found,) = (finding for finding in diagnose(run).findings if finding.rule == "host-bound")
    assert found.severity != "low"


def test_a_rank_that_is_late_in_one_step_is_told_whatever_the_other_steps_have():
    """Rank 7 comes late to the first step, and what it did before is not in the recording."""
    recording = Recording(read(_base(EIGHT)))
    run = stretched(recording, joined([put_in(recording, Cause("slow host", 3.6, steps=(1, 3)))]))
    for found in (recording.run, run):
        late = [finding.subject for finding in diagnose(found).findings if finding.rule == "late-rank"]
        assert late == [{"ranks": (7,), "steps": (10,)}]
