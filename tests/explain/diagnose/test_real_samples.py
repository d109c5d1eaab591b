"""Real recordings, read as an expert reads them: what must be said, with its numbers, and what must not."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.explain.diagnose import Diagnosis, Finding, accounted, diagnose, to_dict
from perfkit.explain.diagnose.case import Case
from perfkit.explain.ledger.causes import UNEXPLAINED
from perfkit.predict.plans.schedule.schedule import ScheduleCase, simulate_schedule
from perfkit.record.load import load
from tests import two_ranks
from tests.explain.diagnose.made import assert_possible

TRACES = data_folder() / "traces"
MORE = Path(__file__).parents[2] / "data" / "traces"
BY_TABLES = two_ranks.by_tables().parent


@cache
def diagnosed(name: str, folder: Path = TRACES) -> tuple[Run, Diagnosis]:
    run = load(folder / name)
    return run, diagnose(run)


def verdicts(name: str, folder: Path = TRACES) -> dict[str, object]:
    run, result = diagnosed(name, folder)
    assert result.failed == ()
    if run.has("steps"):
        assert_possible(result, Case(run))
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
    found = verdicts("torch_npu_2rank", BY_TABLES)
    assert found["exposed-communication"].evidence["exposed_ns"] > 0.4 * 136.6e6
    assert found["exposed-communication"].share_of_step < 8.9 / 136, (
        "no more can be hidden than there is computing to hide it behind"
    )
    assert found["exposed-communication"].severity == "medium", "one or two steps do not show that it lasts"
    assert found["host-bound"].evidence["largest_idle_share"] == pytest.approx(0.143, abs=0.005)
    assert found["slow-rank"].evidence["excess_ratio"] < 0.02, "equal operators take both ranks as long"
    assert found["data-feed"].missing == ("when the step began",), "one step, cut at its first kernel"
    assert not said(found) & {"clock-skew", "slow-link"}, "8 us between the clocks of one host are none"


def test_the_small_model_runs_in_float32_and_converts_formats():
    # All 23 kinds of products have FLOAT inputs, 2.4 ms of 137; TransData is 1.4 of 2.0 ms of conversions.
    found = verdicts("torch_npu_2rank", BY_TABLES)
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


READ = {
    # Healthy, or nothing that could be judged.
    "hta/ns_resolution_trace": set(),
    "hta/cupti_profiler": set(),
    "hta/rank_unavailable": set(),
    "tracelens/mi210/gpu_only_trace": set(),
    "kineto_tb_samples/docs_traces": set(),
    "msinsight_groups/new": set(),
    "torch_memory_timeline": set(),
    "synthetic_ms": set(),
    "ascend_memory": set(),
    "logs/torchtitan/mi355x_excerpt.log": set(),
    "logs/mindformers/llama3_1_8b_ckpt_health.log": set(),
    "logs/dryrun/sim_level1.log": set(),
    "mindinsight/run_3": set(),
    # One of four ranks does not fit, by activations.
    "logs/dryrun/pp4_output_dryrun": {"oom-dynamic"},
    # 63 us between the clocks of eight ranks; no rank and no link is slow.
    "cluster_db": {"clock-skew"},
    # Conversions are 1.2 % of a step that is otherwise busy; its interval is 0.9 % of it.
    "mindinsight/run_2": {"excess-casts"},
    # 341 all-reduces and 122 of 179 ms of computing on the second stage, 14 ms on the first.
    "mindinsight/cluster_propose": {"stage-imbalance", "warm-up"},
    # A kernel table of some rows: two idle times of seconds, what the host did is not known, and there is no price.
    "msprof_analyze/compute_advice_small": {"host-pause"},
    "msprof_analyze/compute_advice": {"exposed-communication", "host-bound", "excess-casts"},
    # 6.1 of 9.4 idle ms are before kernels that were launched 1 to 3 ms earlier; the host waits in aten::item 43 times.
    "ascend_trace_view/single_npu": {"core-idle", "frequent-sync", "data-feed", "excess-casts", "ai-cpu-on-path"},
    "torch_npu_level0": {"exposed-communication", "host-bound", "excess-casts"},
    # Three large products at a fifth of an MI300X.
    "tracelens/torch_compile_triton": {"inefficient-operators"},
    # The head of 151,936 words is on the last stage: 231 and 401 ms; 191 conversions; launches of rank 0 and 2 are late.
    "torch_npu_pp2dp2": {"stage-imbalance", "exposed-communication", "host-bound", "excess-casts", "clock-skew"},
    # Kernels of 14 us that start as soon as they are launched; the first calls of an allocator are no churn.
    "param/linear_kineto.json.gz": {"host-bound"},
    # Rank 7 begins the step up to 6.2 ms after the others; all hosts launch too late, and load 1.0 of 15.8 ms at the start.
    "dlrm_8xV100": {"host-bound", "late-rank", "data-feed"},
    # 13.3 ms pass before the first operator, and 102 of 156 ms are all-reduces that hide behind 4.8 ms of computing at the most.
    # Launches are late all the time; 23 aten::item cost 3.7 ms besides.
    "ascend_trace_view/rank0_ascend_pt": {"host-bound", "frequent-sync", "data-feed", "exposed-communication", "excess-casts"},
    # The first kernels wait 8 s and 4.2 s for cudaFree, which initialises the context.
    "hta/critical_path": {"host-pause"},
    # 18 kernels and 15 events of the host in 235 ms: what is left of a recording says nothing of pauses, so there is no price.
    "hta/trace_compare": {"host-pause"},
    # 11 kernels in 136 ms, likewise.
    "msprof_db": {"host-pause"},
    # 12.9 of 118 ms in which nothing runs but copies from pinned memory, and 11 cudaStreamSynchronize before idle times.
    "hta/trace_diff": {"host-copies", "frequent-sync"},
    # The same job as trace_filter, other steps: 59 ms without an event inside the optimizer.
    "hta/timeline_analysis": {"host-bound", "exposed-communication", "host-pause", "fp32-hot-operator"},
    "hta/trace_filter": {"host-bound", "exposed-communication", "host-pause", "fp32-hot-operator"},
    # One cudaMemcpyAsync of 147 ms holds the thread while the device has nothing to do for 64 ms.
    "hta/negative_queue_length": {"host-pause", "exposed-communication", "frequent-sync"},
    # What no kernel is left of: marks of the host, or counters.
    "hta/distributed_info_unavailable": set(),
    "hta/rank_non_gpu": set(),
    # Step traces of 4 ranks: 23.0 of 125 ms after the backward pass, and nothing says of what.
    "mindinsight/mixed": {"gradient-allreduce-tail"},
    "mindinsight/parallel_strategy": set(),
    "mindinsight/run_4": set(),
    "memory_tracker/newer": {"memory-late-release"},
    "memory_tracker/older": {"memory-late-release"},
    "memscope": set(),
    "msprof_analyze/cluster_analysis_output": set(),
    "logs/megatron": set(),
    "logs/mindformers": set(),
    # Two of its logs end in MindSpore's "Out of Memory!!! Request memory size".
    "logs/dryrun": {"out-of-memory"},
    # One of the two ranks, without what they waited: 86 ms of all-reduces beside 4.8 ms of computing.
    "torch_npu_db/level0": {"host-bound", "exposed-communication", "excess-casts"},
    # 0.07 GiB of 192 are reserved and not in use: no matter that 1.5 times as much is reserved as allocated.
    "tracelens/mi300/gaunernst_bert-small-uncased__1016001.json.gz": {"host-bound", "hfu-low"},
    "tracelens/mi300/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz": {
        "fusion-candidate",
        "inefficient-operators",
        "excess-casts",
        "hfu-low",
    },
    "tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz": {"fusion-candidate", "inefficient-operators", "excess-casts"},
}
"""What an expert says of each recording, and nothing else."""

ELSEWHERE = (
    "hta/nccl_parser_config",
    "kineto_h100",
    "kineto_tb_samples/resnet50_num_workers",
    "msinsight_trimmed",
    "msprof_export/alexnet",
    "param/resnet_kineto.json.gz",
    "torch_npu_db/level1",
    "tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz",
    "tracelens/mi300/ddp_resnet18_no_pool",
)
"""What tests of their own say the findings of."""
UNREADABLE = ("msinsight_groups/metadata", "msinsight_groups/old", "msprof_export/empty", "msprof_export/op_summary")
"""What holds nothing that could be diagnosed: parts of exports, kept for the errors that they give."""


def test_every_recording_that_comes_with_the_tests_stands_in_the_table():
    told = (*READ, *ELSEWHERE, *UNREADABLE)
    files = [path.relative_to(MORE).as_posix() for path in MORE.rglob("*") if path.is_file()]
    data = [name for name in files if "/" in name and "PROVENANCE" not in name]
    assert [name for name in data if not name.startswith(told)] == []


BUNDLED = {
    "cluster_16card": set(),
    "kineto_resnet": {"exposed-communication"},
    "logs": set(),
    "memory_tracker": {"memory-late-release"},
    "mindinsight_feed": {"data-feed", "gradient-allreduce-tail"},
    "torch_npu_2rank": {"late-rank", "host-bound", "excess-casts", "fp32-hot-operator"},
}
"""The same of the samples that come with perfkit."""


def test_every_sample_of_the_package_gets_the_findings_of_an_expert_and_no_other():
    assert set(BUNDLED) == {path.name for path in TRACES.iterdir() if path.is_dir()}
    assert {name: said(verdicts(name)) for name in BUNDLED} == BUNDLED


def test_a_recording_of_which_little_is_left_prices_no_pause():
    for name in ("hta/trace_compare", "msprof_db", "msprof_analyze/compute_advice_small"):
        found = verdicts(name, MORE)["host-pause"]
        assert (found.cost_ns, found.severity) == (None, "low")
        assert "may hold a part of what ran" in found.title


def test_one_late_rank_of_many_is_named_with_what_the_step_loses():
    # Rank 7 comes to the first exchange 5.9 ms after rank 3, which takes longest: 18.7 ms, next to 13.4 of what is left of rank 4.
    found = verdicts("dlrm_8xV100", MORE)["late-rank"]
    assert found.subject["ranks"] == (7,)
    assert found.evidence["longest_wait_without_reason_ns"] == pytest.approx(6.16e6, rel=0.01)
    assert found.cost_ns == pytest.approx(18.711e6 - 13.357e6, rel=0.01)


@pytest.mark.parametrize("name", READ)
def test_each_recording_gets_the_findings_of_an_expert_and_no_other(name: str):
    assert said(verdicts(name, MORE)) == READ[name]


def held_ns(finding: Finding, result: Diagnosis) -> float:
    """What the ledger holds of the causes that a finding is about and its ranks lost: the mean step of the rank with most of it."""
    rows = result.ledger.entries
    ranks = finding.subject.get("ranks")
    kept = [
        finding.rule in accounted.rules_of(accounted.path_of(row["cause"], row["place"], row["detail"]))
        and (ranks is None or accounted.loser_of(row["cause"], row["rank"], row["who"]) in (None, *ranks))
        for row in rows.to_dict("records")
    ]
    return float((rows[kept].groupby("rank")["ns"].sum() / rows.groupby("rank")["step"].nunique()).max())


@pytest.mark.parametrize(("name", "folder"), [*((name, MORE) for name in READ), *((name, TRACES) for name in BUNDLED)])
def test_no_finding_costs_more_than_the_ledger_holds_of_what_it_is_about(name: str, folder: Path):
    _, result = diagnosed(name, folder)
    for finding in result.findings:
        if finding.cost_ns:
            assert finding.cost_ns <= 1.001 * held_ns(finding, result), finding.title


def test_idle_times_of_a_recording_without_launches_are_as_unexplained_in_the_finding_as_in_the_ledger():
    # Of short idle times in recordings with launches, 0 to 74 % are the device's own: without launches nobody knows whose they are.
    _, result = diagnosed("torch_npu_pp2dp2", MORE)
    (found,) = (finding for finding in result.findings if finding.rule == "host-bound")
    assert "the host or the device itself, launches were not recorded" in found.title
    assert "record the host side with launches" in found.actions[0]
    idle = [row for row in to_dict(result)["ledger"] if row["cause"] == UNEXPLAINED and row["subject"]["what"] == "idle"]
    # Of ranks 1 and 3 no kernels were recorded: no finding is about what they idle.
    assert {row["rank"]: row["finding"] for row in idle} == {0: "host-bound", 1: None, 2: "host-bound", 3: None}
    assert sum(row["ns"] for row in idle) == pytest.approx(result.ledger.unexplained_ns, rel=0.001)


def test_an_image_model_without_loader_workers_waits_for_data_and_with_four_it_does_not():
    # 31 of 149 ms before each step, 99 % of it in the data loader; the other recording of the same job waits 7 us.
    found = verdicts("kineto_tb_samples/resnet50_num_workers_0", MORE)
    assert found["data-feed"].share_of_step == pytest.approx(0.209, abs=0.003)
    assert found["data-feed"].evidence["share_in_data_loader"] > 0.95
    # Launches are late for 6.4 % of the step, before 7 % of the kernels: a few of them, not the pace of the host.
    assert said(found) == {"data-feed"}
    # Batches of images come from pageable memory: 3.3 of 121 ms in which nothing else runs.
    assert said(verdicts("kineto_tb_samples/resnet50_num_workers_4", MORE)) == {"host-copies"}


def test_a_recording_without_marks_of_steps_shows_the_loader_and_the_search_for_an_algorithm():
    # 7.3 of 14.5 s idle inside enumerate(DataLoader), once each batch; 1.8 s in the cudaFree of cuDNN's first convolution.
    found = verdicts("param/resnet_kineto.json.gz", MORE)
    assert found["data-feed"].share_of_step == pytest.approx(0.505, abs=0.01)
    assert "cudaFree" in found["host-pause"].title
    assert said(found) == {"data-feed", "host-pause", "host-copies"}
    assert found["host-copies"].evidence["pageable_share"] == 1.0
    assert found["frequent-sync"].missing == ("marks of steps, to count calls in one",)


def test_a_late_start_of_steps_outside_any_loader_is_not_blamed_on_data():
    # DistributedDataParallel flattens its buffers to broadcast them: 5.8 ms before the first operator of every step.
    found = verdicts("hta/nccl_parser_config", MORE)
    assert "not for a data loader: the host is in aten::flatten_dense_tensors" in found["data-feed"].title
    # 117 ms in idle times of under a millisecond, 46 ms in longer ones in which the host runs operators before it launches.
    assert found["host-bound"].share_of_step == pytest.approx(0.734, abs=0.01)
    assert said(found) == {"host-bound", "data-feed", "excess-casts"}


def test_exchanges_of_a_recommendation_model_are_not_hidden():
    # All its collectives are all-to-all, which NCCL names SendRecv: 152 of 619 ms.
    found = verdicts("hta/trace_filter", MORE)
    assert found["exposed-communication"].evidence["exposed_share"] == pytest.approx(0.245, abs=0.005)
    # In each of its two steps the host makes no event for 64 and 38 ms inside the optimizer, and the device has nothing to do.
    assert "Shampoo" in found["host-pause"].title
    assert not said(found) & {"data-feed", "frequent-sync"}


def test_an_allocator_without_a_cache_is_not_called_fragmented():
    # PYTORCH_NO_HIP_MEMORY_CACHING: 1,298 frees in a recording of 2,360 kernels, 89 % of it idle at them.
    found = verdicts("tracelens/mi300/ddp_resnet18_no_pool", MORE)
    assert found["allocator-churn"].evidence["most_returns_a_step"] == 1298
    assert found["allocator-churn"].share_of_step > 0.85
    assert found["allocator-churn"].severity == "medium", "one recording without marks does not show that it lasts"
    assert said(found) == {"allocator-churn"}


def test_the_first_calls_of_a_benchmark_are_named_by_the_call_that_waits():
    found = verdicts("hta/critical_path/simple_add", MORE)
    assert found["host-pause"].subject["operators"] == ("cudaFree",)
    assert said(found) == {"host-pause"}


def test_gradients_in_one_message_are_told_though_nothing_is_sent_late():
    # AlexNet on two devices: one all-reduce of 9 ms and more after the backward pass; steps wait 18 ms for data.
    found = verdicts("msprof_export/alexnet", MORE)
    assert found["exposed-communication"].evidence["hidden_ratio"] == 0.0
    assert found["exposed-communication"].cost_ns < found["data-feed"].cost_ns
    assert found["ai-cpu-on-path"].subject["operators"] == ("DropoutGenMask",)
    assert said(found) == {"data-feed", "exposed-communication", "excess-casts", "ai-cpu-on-path"}


def test_a_kernel_table_that_holds_a_part_of_what_ran_says_nothing_about_idle_times():
    # 20 and 22 rows with 36 and 3 % of the computing time that the step table states.
    found = verdicts("msinsight_trimmed", MORE)
    assert said(found) == set()
    for rule in ("host-bound", "host-pause", "exposed-communication", "gradient-allreduce-tail", "recompute-cost"):
        assert found[rule].missing[0].startswith("all kernels of a step")


def test_the_same_job_reads_the_same_in_text_and_in_a_database_whose_tasks_name_the_rank_that_is_late():
    text, database = verdicts("torch_npu_2rank", BY_TABLES), verdicts("torch_npu_db/level1", MORE)
    assert said(text) - {"exposed-communication"} == said(database) - {"late-rank"}
    not_hidden = text["exposed-communication"].evidence
    assert database["late-rank"].subject["ranks"] == (6,)
    assert database["late-rank"].cost_ns == pytest.approx(not_hidden["exposed_ns"] - not_hidden["moving_ns"], rel=0.1)
    # The tasks in its own timelines: Notify_Wait for rank 5, 78.8 and 22.0 ms on rank 0 (another step of the job).
    timed = verdicts("torch_npu_2rank")
    assert said(timed) == said(database)
    assert timed["late-rank"].subject["ranks"] == (5,)
    assert timed["late-rank"].cost_ns == pytest.approx(not_hidden["exposed_ns"] - not_hidden["moving_ns"], rel=0.1)


def test_collectives_that_hardly_move_data_are_told_as_waiting():
    # Data move in 3.9 of 100 ms; six of the eight ranks were not recorded.
    found = verdicts("torch_npu_2rank", BY_TABLES)["exposed-communication"]
    assert found.evidence["moving_ns"] == pytest.approx(3.86e6, rel=0.02)
    assert "ranks that come late or were not recorded" in found.title
    assert found.actions[0].startswith("record all ranks of the group")


def test_a_healthy_training_log_gives_no_finding():
    for name in ("meg_gpt2_base_n4_dp1_tp4_pp4-1809579.log", "llama2_13b_8card_worker_0.log"):
        assert said(verdicts(f"logs/{name}")) == set()


def test_layers_that_run_again_cost_what_the_same_training_without_them_is_faster():
    # Measured without a profiler: 199.2 ms a step, 168.0 ms without checkpoints. 21.7 of 80 GiB are reserved.
    found = verdicts("kineto_h100", MORE)
    assert found["recompute-cost"].evidence["layers_recomputed_ratio"] == 1.0
    assert found["recompute-cost"].cost_ns == pytest.approx(199.2e6 - 168.0e6, rel=0.05)
    assert found["recompute-with-headroom"].evidence["headroom_bytes"] == pytest.approx(58.3 * 2**30, rel=0.01)
    assert said(found) == {"recompute-cost", "recompute-with-headroom", "excess-casts"}


def _step_ns(stages: list[float], micro_batches: int = 2) -> int:
    """What a step of 1F1B takes of stages that compute so long in it."""
    forward, backward = (tuple(round(part * ns / micro_batches) for ns in stages) for part in (1 / 3, 2 / 3))
    case = ScheduleCase(
        schedule="1f1b",
        num_stages=len(stages),
        num_microbatches=micro_batches,
        fwd_ns=(forward,),
        bwd_ns=(backward,),
        p2p_ns=0,
        p2p_mode="overlap",
    )
    return simulate_schedule(case).makespan_ns


def test_a_head_on_the_last_stage_is_told_with_the_layers_to_move():
    # Stages compute 231 and 401 ms with 14 layers each: five layers less are 314 and 319 ms. Rank 0 waits 314 ms.
    found = verdicts("torch_npu_pp2dp2", MORE)["stage-imbalance"]
    assert (found.subject["stages"], found.subject["ranks"]) == ((1,), (2, 3))
    assert found.evidence["layers_of_stage"] == 14
    assert found.evidence["layers_to_move"] == 5
    assert found.evidence["balanced_stage_ns"] == pytest.approx(318e6, rel=0.02)
    # What moving them wins: the same stages and two micro batches, simulated with and without.
    layer_ns, stages = found.evidence["layer_ns"], [found.evidence[f"stage_{at}_computing_ns"] for at in range(2)]
    after = [stages[0] + 5 * layer_ns, stages[1] - 5 * layer_ns]
    assert found.cost_ns == pytest.approx(_step_ns(stages) - _step_ns(after), rel=0.03)
    waits = [found.evidence[f"waiting_for_{name}_ns"] for name in ("filling", "stage_load", "late_sends")]
    assert waits[0] > waits[1] > waits[2] > 0
    # MindSpeed or Megatron trained: MindFormers' keys would say nothing to them.
    assert '--pipeline-model-parallel-layout "Et*19|t*9L"' in found.actions[0]
    assert not any("offset" in action for action in found.actions)


def test_copies_that_block_are_not_told_as_a_thread_without_its_cpu():
    # Calls of 147 ms copy pageable memory; the step is 216 ms. No launch is held up but for them.
    found = verdicts("hta/negative_queue_length", MORE)
    assert not hasattr(found["cpu-contention"], "cost_ns") or (found["cpu-contention"].cost_ns or 0) < 0.02 * 216e6
