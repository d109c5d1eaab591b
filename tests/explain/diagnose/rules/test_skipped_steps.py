"""Iterations that were skipped or have a loss of nan."""

from __future__ import annotations

from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules import skipped_steps
from tests.explain.diagnose.made import MS, log


def test_nan_losses_and_many_skipped_iterations_are_told_with_step_and_line():
    (nan,) = diagnose(log([100] * 40, nan=(7, 8)), only=[skipped_steps.RULE]).findings
    assert "step 8 (line 17)" in nan.title
    assert nan.severity == "high"
    (both,) = diagnose(log([100] * 40, nan=(7, 8), skipped={5: 1}), only=[skipped_steps.RULE]).findings
    assert "step 8 (line 17)" in both.title, "the step of the nan, not of what was skipped before it"
    (skipped,) = diagnose(log([100] * 40, skipped={5: 1, 9: 1}), only=[skipped_steps.RULE]).findings
    assert skipped.cost_ns == 100 * MS * 2 / 40
    assert diagnose(log([100] * 400, skipped={5: 1}), only=[skipped_steps.RULE]).findings == ()


def test_skipped_iterations_at_the_very_start_seek_a_loss_scale():
    assert diagnose(log([100] * 40, skipped=dict.fromkeys(range(11), 1)), only=[skipped_steps.RULE]).findings == ()


def test_a_loss_of_nan_is_told_whichever_rank_has_it():
    (finding,) = diagnose(log([100] * 30, nan=tuple(range(30)), ranks=(0, 7)), only=[skipped_steps.RULE]).findings
    assert finding.subject["ranks"] == (7,)
    assert finding.evidence["nan_iterations"] == 30


def test_a_run_that_never_takes_a_step_is_no_search_for_a_scale():
    (finding,) = diagnose(log([100] * 40, skipped=dict.fromkeys(range(40), 1)), only=[skipped_steps.RULE]).findings
    assert finding.severity == "high"
    assert "no step was taken" in finding.title
    short = diagnose(log([100] * 8, skipped=dict.fromkeys(range(8), 1)), only=[skipped_steps.RULE])
    assert short.findings == ()
    assert [each.rule for each in short.not_measured] == [skipped_steps.RULE.name]
