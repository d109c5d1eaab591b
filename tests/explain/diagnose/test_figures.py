"""Figures of findings by hand: shares of a step, what bounds them, and how they are told."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest

from perfkit.explain.diagnose._document import _finding
from perfkit.explain.diagnose._engine import _judged
from perfkit.explain.diagnose._prices import _most, _not_overlapped
from perfkit.explain.diagnose.kernels import share_of_step
from perfkit.explain.diagnose.reported import cost_text
from perfkit.explain.diagnose.rule import Finding, Loss
from perfkit.explain.diagnose.thresholds import HIGH_SHARE, MEDIUM_SHARE

FOUND = Finding(rule="some-rule", title="Something is slow", subject={"ranks": (0,)}, evidence={}, actions=())
LOSS = Loss(removed=pd.DataFrame())


def test_the_share_of_a_step_is_that_of_the_rank_that_spends_most():
    rows = pd.DataFrame({"rank": [0, 0, 1], "duration_ns": [100, 200, 900]})
    assert share_of_step(SimpleNamespace(num_kernel_steps=3, step_ns=1000), rows) == pytest.approx(0.3)
    assert share_of_step(SimpleNamespace(num_kernel_steps=3, step_ns=1000), rows.iloc[:0]) == 0.0


def test_the_most_that_a_cause_costs_is_the_mean_step_of_the_rank_that_has_most():
    steps = pd.DataFrame({"rank": [0, 0, 1, 1], "step": [1, 2, 1, 2]})
    rows = pd.DataFrame({"rank": [0, 0, 1], "ns": [100, 201, 250]})
    assert _most(rows, SimpleNamespace(steps=steps)) == 151
    assert _most(rows.iloc[:0], SimpleNamespace(steps=steps)) == 0


def test_what_could_hide_communication_is_computing_beside_which_there_is_none():
    steps = pd.DataFrame(
        {
            "rank": [0, 0, 1, 1, 2],
            "computing_ns": [500.0, 701.0, 900.0, None, None],
            "overlapped_ns": [100.0, None, 400.0, 0.0, 0.0],
        }
    )
    assert _not_overlapped(steps) == 551  # rank 0: (400 + 701) / 2, rank 1: 500
    assert _not_overlapped(pd.DataFrame({"rank": [0], "computing_ns": [100.0], "overlapped_ns": [300.0]})) == 0
    assert _not_overlapped(steps[steps["rank"] == 2]) == 0


@pytest.mark.parametrize(
    ("cost_ns", "share", "told"),
    [(None, None, "costs no time"), (2_000_000, None, "of the mean step"), (2_000_000, 0.05, "of the mean step (5.00 % of it)")],
)
def test_a_cost_is_told_with_its_share_where_that_is_known(cost_ns, share, told):
    text = str(cost_text(replace(FOUND, cost_ns=cost_ns, share_of_step=share)))
    assert told in text.replace("\u2009", " ")
    assert ("2.00 ms" in text.replace("\u2009", " ")) == (cost_ns is not None)
    assert ("(" in text) == (share is not None)


HIGH, MEDIUM = HIGH_SHARE.value, MEDIUM_SHARE.value
STATED = {"severity": "high"}
JOINT = {"severity": "low", "loss": LOSS}


@pytest.mark.parametrize(
    ("stated", "share", "steps", "severity"),
    [
        ({}, HIGH, 3, "high"),
        ({}, HIGH, 2, "medium"),
        ({}, MEDIUM, 3, "medium"),
        ({}, MEDIUM * 0.99, 3, "low"),
        ({}, HIGH * 0.99, 3, "medium"),
        (STATED, MEDIUM * 0.5, 3, "high"),  # the rule has said it
        (STATED, MEDIUM * 0.5, 2, "medium"),
        (JOINT, HIGH, 3, "high"),  # a joint price counts more than what the rule says
        ({}, None, 3, "low"),
        (STATED, None, 2, "high"),  # it has no cost that more steps would show
        (JOINT, None, 3, "low"),
    ],
)
def test_how_severe_a_finding_is_follows_from_its_share_of_the_step(stated, share, steps, severity):
    step_ns = 1_000_000_000
    case = SimpleNamespace(step_ns=step_ns, step_numbers=tuple(range(steps)), limit=lambda threshold: threshold.value)
    cost_ns = None if share is None else round(share * step_ns)
    found = _judged(replace(FOUND, cost_ns=cost_ns, **stated), case)
    assert found.severity == severity
    assert found.share_of_step == (None if share is None else pytest.approx(share, abs=1e-6))


def test_a_small_share_of_the_step_keeps_its_digits_through_every_door():
    case = SimpleNamespace(step_ns=387_078_000, step_numbers=(1, 2, 3), limit=lambda threshold: threshold.value)
    found = _judged(replace(FOUND, cost_ns=10_000), case)
    assert found.share_of_step == pytest.approx(10_000 / 387_078_000, rel=1e-5)
    assert _finding(found)["share_of_step"] == found.share_of_step
