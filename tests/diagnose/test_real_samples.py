"""Real recordings, read as an expert reads them: what must be said, with its numbers, and what must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit._resources import data_folder
from perfkit.diagnose import diagnose
from perfkit.trace.load import load

TRACES = data_folder() / "traces"
MORE = Path(__file__).parents[1] / "data" / "traces"


def verdicts(name: str, folder: Path = TRACES) -> dict[str, object]:
    result = diagnose(load(folder / name))
    assert result.failed == ()
    assert sum(finding.cost_ns or 0 for finding in result.findings) <= (result.step_ns or 0)
    return {
        **{entry.rule: entry for entry in result.not_measured},
        **{entry.rule: entry for entry in result.healthy},
        **{finding.rule: finding for finding in result.findings},
    }


def said(found: dict[str, object]) -> set[str]:
    """The rules with a finding."""
    return {rule for rule, entry in found.items() if hasattr(entry, "severity")}


def test_sixteen_cards_have_no_slow_rank_although_rank_8_computes_most():
    # Rank 8: 80.072 ms, 1.003 of its stage's median; the stages differ by 5.8 %, which a head on the last one explains.
    found = verdicts("cluster_16card")
    assert found["slow-rank"].evidence["largest_z"] < found["slow-rank"].evidence["z_needed"]
    assert found["stage-imbalance"].evidence["largest_computing_over_mean"] == pytest.approx(0.02849, abs=1e-4)
    assert not said(found) & {"slow-rank", "stage-imbalance"}


def test_two_of_eight_ranks_of_a_small_model_communicate_and_wait_for_launches():
    # 96 of 137 ms are exposed all-reduces of a model that computes 9 ms; its kernels (median 17 us) wait for the host.
    found = verdicts("torch_npu_2rank")
    assert found["exposed-communication"].share_of_step > 0.4
    assert found["exposed-communication"].severity == "medium", "one or two steps do not show that it lasts"
    assert found["host-bound"].evidence["largest_idle_share"] == pytest.approx(0.143, abs=0.005)
    assert found["slow-rank"].missing, "two ranks are too few to call one slow"
    assert found["data-feed"].missing == ("when the step began",), "one step, cut at its first kernel"
    assert not said(found) & {"clock-skew", "slow-link"}, "8 us between the clocks of one host are none"


def test_the_small_model_runs_in_float32_and_converts_formats():
    # All 23 kinds of products have FLOAT inputs, 2.4 ms of 137; TransData is 1.4 of 2.0 ms of conversions.
    found = verdicts("torch_npu_2rank")
    assert found["fp32-hot-operator"].evidence["float32_products_share"] == pytest.approx(0.0173, abs=0.001)
    assert found["excess-casts"].evidence["formats_share"] == pytest.approx(0.0104, abs=0.0005)
    assert "TransData" in found["excess-casts"].subject["operators"]
    # Its reductions run on after the last product, which the finding about exposed communication says already.
    assert "gradient-allreduce-tail" in found["exposed-communication"].next
    assert not said(found) & {"gradient-allreduce-tail", "fusion-candidate", "allocator-churn", "memory-late-release", "warm-up"}
    assert {rule for rule in ("hfu-low", "bandwidth-low", "inefficient-operators") if hasattr(found[rule], "missing")}


def test_an_image_model_with_checkpoints_hides_little_of_its_gradients():
    # One rank of a DDP job: 11.8 of 15.7 ms of communication are exposed in a step of 18.8 ms; nothing else stands out.
    found = verdicts("kineto_resnet")
    assert found["exposed-communication"].evidence["exposed_share"] == pytest.approx(0.624, abs=0.01)
    assert said(found) == {"exposed-communication"}
    assert found["slow-rank"].missing
    assert found["missing-communication"].missing, "the recording does not state its replicas"


def test_a_job_that_is_starved_of_data_says_so_and_which_operator_reads():
    # 85.8 of 125.9 ms of a step are interval, the host queue is empty in every step, and the source is the reader of TFRecords.
    found = verdicts("mindinsight_feed")
    assert found["data-feed"].share_of_step == pytest.approx(0.68, abs=0.01)
    assert "TFReader" in found["data-feed"].title
    assert found["gradient-allreduce-tail"].cost_ns is None, "a step trace does not say what its tail is made of"
    assert said(found) == {"data-feed", "gradient-allreduce-tail"}


def test_a_language_model_of_separate_operators_could_fuse_a_quarter_of_its_step():
    # Qwen1.5 in eager mode on an H100, 24 layers: rotary embedding of queries and keys, 49 norms and 24 SwiGLU are made of parts.
    found = verdicts("tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", MORE)
    chains = found["fusion-candidate"].evidence
    assert (chains["RotaryPositionEmbedding_chains_a_rank_and_step"], chains["RmsNorm_chains_a_rank_and_step"]) == (48, 49)
    assert chains["SwiGLU_chains_a_rank_and_step"] == 24
    assert found["fusion-candidate"].cost_ns > found["excess-casts"].cost_ns > found["inefficient-operators"].cost_ns
    assert not said(found) & {"fp32-hot-operator", "host-bound", "core-idle", "cpu-contention", "data-feed"}


def test_a_small_model_on_a_large_device_waits_for_launches_and_uses_nothing_of_it():
    # BERT-small on an H100: kernels of 4.6 us, 81 % of the step without work; 0.2 % of the peak.
    found = verdicts("tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz", MORE)
    assert found["host-bound"].share_of_step > 0.8
    assert found["hfu-low"].evidence["hfu"] == pytest.approx(0.0017, abs=0.0002)
    assert said(found) == {"host-bound", "hfu-low"}


def test_a_tracker_shows_blocks_that_outlive_their_last_use():
    # 22 MiB are in use at once, 42 MiB allocated; nothing else can be said without steps and kernels.
    found = verdicts("memory_tracker")
    assert found["memory-late-release"].evidence["live_over_use_ratio"] == pytest.approx(44040192 / 23068672)
    assert said(found) == {"memory-late-release"}


def test_a_healthy_training_log_gives_no_finding():
    for name in ("meg_gpt2_base_n4_dp1_tp4_pp4-1809579.log", "llama2_13b_8card_worker_0.log"):
        assert said(verdicts(f"logs/{name}")) == set()
