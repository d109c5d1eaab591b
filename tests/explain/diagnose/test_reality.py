"""Real recordings with one cause put in: it is named, and nobody else is blamed."""

from __future__ import annotations

import pytest

from benchmarks.diagnosis._real_cases import NEAR, TOLD, Base, Cause, bases, judged

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
    assert verdict.right
    assert verdict.cost_ratio == pytest.approx(1, abs=NEAR)
