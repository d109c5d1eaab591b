"""Clusters: the numbers of the sixteen-rank walk, simulated faults, what two ranks can tell; one answer with the rules."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perfkit.core import robust
from perfkit.core.errors import NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.core.units import THIN_SPACE, format_ns
from perfkit.explain.cluster import MOST_LETTERS, RULES, ClusterJudgement, groups_of_rank, judge_cluster
from perfkit.explain.communication import link_table
from perfkit.explain.diagnose import all_rules, diagnose
from perfkit.explain.recording import ranks_missing_told, recording_notes, recording_told
from perfkit.record.load import load
from tests.explain.simulated import simulated

SIXTEEN = data_folder() / "traces" / "cluster_16card"
TRACES = (data_folder() / "traces", Path(__file__).parents[1] / "data" / "traces")
LEVEL_1 = TRACES[1] / "torch_npu_db" / "level1"


def judge(path: str | Path, **limits: Any) -> ClusterJudgement:
    return judge_cluster(load(path), **limits)


def test_the_sixteen_rank_walk_reads_as_written():
    verdict, busiest, stages, *_ = (text.replace(THIN_SPACE, " ") for text in judge(SIXTEEN).told())
    no_link = "No link has another like it to compare with."
    assert verdict == f"No rank is slow. {no_link} Stage 1 waits 182 ms of its 382 ms for others."
    text = f"{verdict} {busiest} {stages}"
    for piece in (
        "stage 0 (ranks 0-7) 294 ms",
        "stage 1 (ranks 8-15) 382 ms",
        "Stage 1 waits 182 ms",
        "Mean computing: 75.5 ms / 79.9 ms",
        "Rank 8 computes most (80.1 ms in the mean step), 1.003 × its stage's median, 1.026 × that of all.",
    ):
        assert piece in text


def test_another_metric_is_compared():
    judged = judge(SIXTEEN)
    waiting, whole = (judged.compared(metric).table.set_index("rank") for metric in ("wait", "stage"))
    assert waiting.loc[0, "value_ns"] == 146_614_020
    assert whole.loc[8, "value_ns"] == 374_073_650 - 178_320_265
    assert "Rank 2 is furthest from its stage: 76.3 ms" in judged.compared().told().replace(THIN_SPACE, " ")


@pytest.mark.parametrize("fault", ["imbalanced_pp_stage:0:1.5", "slow_rank:5:1.4"])
def test_the_stage_that_waits_most_is_told_with_and_without_an_imbalance(fault: str):
    judged = judge(simulated(fault))
    stages = judged.stages.set_index("stage")["bubble_ns"]
    assert stages.max() > 0
    text = " ".join(judged.told()[:2]).replace(THIN_SPACE, " ")
    assert f"Stage {stages.idxmax()} waits {format_ns(stages.max()).replace(THIN_SPACE, ' ')} of its" in text
    assert bool(judged.found("stage-imbalance")) == fault.startswith("imbalanced")


def test_a_simulated_slow_rank_is_named_and_comes_first():
    judged = judge(simulated("slow_rank:5:1.4"))
    assert "Rank 5 computes 40.0 % longer" in judged.told()[0]
    assert judged.compared().to_frame()["rank"].iloc[0] == 5
    assert judged.compared().told().endswith("1 rank stands out.")


def test_the_clock_of_the_cores_is_told_where_it_was_recorded():
    recorded = load(LEVEL_1)
    assert "The cores of 2 ranks are clocked alike: 1,800 MHz." in judge_cluster(recorded).told()[1].replace(THIN_SPACE, ",")
    counters = recorded.frame("counters")
    lower = ((counters["rank"] == 1) & (counters["name"] == "AI Core Freq")).to_numpy(dtype=bool)
    counters.loc[lower, "value"] *= 0.9
    slow = replace(recorded, tables={**recorded.tables, "counters": counters})
    assert "rank 1 are clocked lowest" in judge_cluster(slow).told()[1]
    assert "clocked" not in " ".join(judge(SIXTEEN).told())


def test_the_ranks_of_a_slow_link_are_not_blamed():
    text = judge(simulated("slow_link:0-1:3")).told()[0]
    assert text.startswith("Link 0-1")
    assert text.endswith(" No rank is slow.")


def test_a_limit_decides_who_stands_out():
    # 4 % more computing are 7.8 of the smallest standard deviations that are believed, 0.5 %.
    path = simulated("slow_rank:5:1.04")
    assert judge(path).compared().table["stands_out"].sum() == 1
    assert judge(path, z_limit=9.0).compared().table["stands_out"].sum() == 0


SAMPLES = sorted(path for path in (data_folder() / "traces").iterdir() if path.is_dir())
FAULTS = (
    "slow_rank:5:1.4",
    "slow_rank:3:1.03",
    "slow_rank:3:1.4:1:2",
    "slow_link:0-1:3",
    "jitter:0.1",
    "imbalanced_pp_stage:0:1.5",
)


@pytest.mark.parametrize("path", [*map(str, SAMPLES), *FAULTS], ids=lambda path: Path(path).name)
def test_what_stands_out_are_the_ranks_and_links_that_the_rules_name(path: str):
    run = load(simulated(path) if path in FAULTS else path)
    try:
        judged = judge_cluster(run)
        ranks = judged.compared().table
    except NotMeasuredError:
        pytest.skip("a recording without computing time")
    findings = diagnose(run, only=[rule for rule in all_rules() if rule.name in ("slow-rank", "slow-link")]).findings
    named = {rank for finding in findings for rank in finding.subject.get("ranks", ())}
    links = {link for finding in findings for link in finding.subject.get("links", ())}
    assert set(ranks.loc[ranks["stands_out"], "rank"]) == set(judged.slow_ranks) == named
    table = link_table(judged.case.run)
    ringed = table[table["slow"].astype(bool)]
    assert {(min(pair), max(pair)) for pair in zip(ringed["source_rank"], ringed["target_rank"], strict=True)} == links
    steps = judged.case.steps["step"].drop_duplicates().tolist()
    cut = robust.warm_up(run.steps())
    assert steps == [step for step in run.steps()["step"].drop_duplicates().tolist() if step not in cut]


def test_two_ranks_are_judged_by_their_equal_operators_and_not_at_all_without_kernels(tmp_path: Path):
    whole = data_folder() / "traces" / "torch_npu_2rank"
    assert judge(whole).told()[0] == "No rank is slow, nor any link."
    for path in whole.rglob("step_trace_time.csv"):
        kept = tmp_path / path.relative_to(whole)
        kept.parent.mkdir(parents=True)
        shutil.copy(path, kept)
    text = judge(tmp_path).told()[0]
    assert text == "Whether a rank is slow cannot be told. Links were not recorded."


@pytest.mark.parametrize("name", ["torch_npu_2rank", "torch_npu_pp2dp2", "cluster_16card", *FAULTS])
def test_the_answer_is_read_at_a_glance_and_what_is_slow_comes_first(name: str):
    judged = judge(simulated(name) if name in FAULTS else next(root / name for root in TRACES if (root / name).is_dir()))
    text = judged.told()[0]
    assert len(text) <= MOST_LETTERS
    if judged.diagnosis.findings:
        titles = {finding.rule: finding.title for finding in reversed(judged.diagnosis.findings)}
        assert text.startswith(next(titles[rule] for rule in RULES if rule in titles))
    else:
        assert text.startswith("No rank is slow")


def test_a_run_without_steps_is_not_measured():
    with pytest.raises(NotMeasuredError, match="holds none"):
        judge(data_folder() / "traces" / "memory_tracker")


def test_the_groups_of_a_rank_are_those_that_it_is_in():
    groups = groups_of_rank(load(simulated("slow_rank:5:1.4")), 2)
    assert len(groups)
    assert all("2" in members.split(", ") for members in groups["members"])


@pytest.mark.parametrize("path", [TRACES[0] / "torch_npu_2rank", TRACES[1] / "torch_npu_pp2dp2"], ids=lambda path: path.name)
def test_ranks_that_are_not_here_are_told_as_where_the_recording_is_judged(path: Path):
    run = load(path)
    told, seen = judge(path).told(), path.name == "torch_npu_2rank"
    assert ranks_missing_told(run) == ["6 of 8 ranks are not here: a slow rank among them stays unseen."] * seen
    assert set(ranks_missing_told(run)) <= set(told).intersection(recording_notes(run))
    assert recording_told(run).startswith("Only 2 of 8 ranks are here") == seen
