"""Real recordings, read as an expert reads them: what must be said, with its numbers, and what must not."""

from __future__ import annotations

import pytest

from perfkit._resources import data_folder
from perfkit.diagnose import diagnose
from perfkit.trace.load import load

TRACES = data_folder() / "traces"


def verdicts(name: str) -> dict[str, object]:
    result = diagnose(load(TRACES / name))
    assert result.failed == ()
    assert sum(finding.cost_ns or 0 for finding in result.findings) <= result.step_ns
    return {
        **{entry.rule: entry for entry in result.not_measured},
        **{entry.rule: entry for entry in result.healthy},
        **{finding.rule: finding for finding in result.findings},
    }


def test_sixteen_cards_have_no_slow_rank_although_rank_8_computes_most():
    # Rank 8: 80.072 ms, 1.003 of its stage's median; the stages differ by 5.8 %, which a head on the last one explains.
    said = verdicts("cluster_16card")
    assert said["slow-rank"].evidence["largest_z"] < said["slow-rank"].evidence["z_needed"]
    assert said["stage-imbalance"].evidence["largest_computing_over_mean"] == pytest.approx(0.02849, abs=1e-4)
    assert not hasattr(said["slow-rank"], "cost_ns")
    assert not hasattr(said["stage-imbalance"], "cost_ns")


def test_two_of_eight_ranks_of_a_small_model_communicate_and_wait_for_launches():
    # 96 of 137 ms are exposed all-reduces of a model that computes 9 ms; its kernels (median 17 us) wait for the host.
    said = verdicts("torch_npu_2rank")
    assert said["exposed-communication"].share_of_step > 0.4
    assert said["exposed-communication"].severity == "medium", "one or two steps do not show that it lasts"
    assert said["host-bound"].evidence["largest_idle_share"] == pytest.approx(0.143, abs=0.005)
    assert said["slow-rank"].missing, "two ranks are too few to call one slow"
    assert not hasattr(said["clock-skew"], "severity"), "8 us between the clocks of one host are none"
    assert not hasattr(said["slow-link"], "severity")


def test_an_image_model_with_checkpoints_hides_little_of_its_gradients():
    # One rank of a DDP job: 11.8 of 15.7 ms of communication are exposed in a step of 18.8 ms; nothing else stands out.
    said = verdicts("kineto_resnet")
    assert said["exposed-communication"].evidence["exposed_share"] == pytest.approx(0.624, abs=0.01)
    assert [rule for rule, entry in said.items() if hasattr(entry, "severity")] == ["exposed-communication"]
    assert said["slow-rank"].missing
