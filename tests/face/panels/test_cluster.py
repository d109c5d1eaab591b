"""Page 17 without a browser: the numbers of the sixteen-rank walk, simulated faults, layout and FLOPs."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from perfkit.core import robust
from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.core.units import THIN_SPACE
from perfkit.explain.diagnose import all_rules, diagnose
from perfkit.face.panels import cluster
from perfkit.face.panels._rank_flops import stage_flops
from perfkit.face.panels.cluster import State
from perfkit.face.widgets.status import NothingYet
from perfkit.record.load import load
from tests.face.panels.simulated import simulated
from tests.predict.simulate.plans import plan_of

SIXTEEN = State(run=str(data_folder() / "traces" / "cluster_16card"))


def shown(state: State):
    return cluster.view(cluster.compute(state))


def rows(answer, chart: str, name: str):
    return answer.charts[chart].chart.datasets[name]


def test_the_sixteen_rank_walk_reads_as_written():
    text = shown(SIXTEEN).text.replace(THIN_SPACE, " ")
    for piece in (
        "stage 0 (ranks 0-7) 293.808 ms",
        "stage 1 (ranks 8-15) 381.668 ms",
        "Stage 1 waits 181.583 ms",
        "Mean computing: 75.515 ms / 79.885 ms",
        "No rank is slow: rank 8 computes most (80.072 ms), 1.003 x its stage's median, 1.026 x that of all",
    ):
        assert piece in text


def test_no_rank_of_the_healthy_cluster_is_marked_slow():
    answer = shown(SIXTEEN)
    assert {dot["state"] for dot in rows(answer, "dots", "ranks")} == {"like its stage"}
    assert not answer.tables["ranks"].frame["stands_out"].any()


def test_the_grid_has_every_rank_once_in_either_layout():
    for axes in ("stage", "node"):
        cells = rows(shown(replace(SIXTEEN, axes=axes)), "grid", "grid")
        assert sorted(cell["rank"] for cell in cells) == list(range(16))
        assert len({(cell["row"], cell["place"]) for cell in cells}) == 16


def test_colours_say_what_the_scale_says():
    ms = {cell["rank"]: cell["value"] for cell in rows(shown(replace(SIXTEEN, scale="ms")), "grid", "grid")}
    assert ms[8] == pytest.approx(80.072, abs=0.001)
    assert max(cell["value"] for cell in rows(shown(replace(SIXTEEN, scale="max")), "grid", "grid")) == 1.0


def test_another_metric_is_compared():
    waiting = shown(replace(SIXTEEN, metric="wait")).tables["ranks"].frame.set_index("rank")
    assert waiting.loc[0, "value_ns"] == 146_614_020
    without_bubble = shown(replace(SIXTEEN, metric="stage")).tables["ranks"].frame.set_index("rank")
    assert without_bubble.loc[8, "value_ns"] == 374_073_650 - 178_320_265


def test_a_simulated_slow_rank_is_named_and_drawn():
    answer = shown(State(run=simulated("slow_rank:5:1.4")))
    assert "Rank 5 computes 40.0 % longer" in answer.text
    assert [dot["rank"] for dot in rows(answer, "dots", "ranks") if dot["state"] == "slow rank"] == [5]
    assert answer.tables["ranks"].frame["rank"].iloc[0] == 5


def test_a_simulated_slow_link_is_ringed_and_its_ranks_are_not_blamed():
    answer = shown(State(run=simulated("slow_link:0-1:3")))
    slow = {(row["source"], row["target"]) for row in rows(answer, "links", "links") if row["slow"]}
    assert slow == {(0, 1), (1, 0)}
    assert "Link 0-1" in answer.text
    assert "No rank is slow" in answer.text


def test_a_limit_decides_who_stands_out():
    # 4 % more computing are 7.8 of the smallest standard deviations that are believed, 0.5 %.
    run = simulated("slow_rank:5:1.04")
    assert shown(State(run=run)).tables["ranks"].frame["stands_out"].sum() == 1
    assert shown(State(run=run, z_limit=9.0)).tables["ranks"].frame["stands_out"].sum() == 0


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
def test_the_page_marks_the_ranks_and_links_that_the_rules_name(path):
    path = simulated(path) if path in FAULTS else path
    run = load(path)
    try:
        result = cluster.compute(State(run=path))
    except NotMeasuredError:
        pytest.skip("a recording without computing time")
    findings = diagnose(run, only=[rule for rule in all_rules() if rule.name in ("slow-rank", "slow-link")]).findings
    ranks = {rank for finding in findings for rank in finding.subject.get("ranks", ())}
    links = {link for finding in findings for link in finding.subject.get("links", ())}
    assert set(result.ranks.loc[result.ranks["stands_out"], "rank"]) == set(result.slow) == ranks
    ringed = result.links[result.links["slow"].astype(bool)]
    assert {(min(pair), max(pair)) for pair in zip(ringed["source_rank"], ringed["target_rank"], strict=True)} == links
    assert result.steps["step"].drop_duplicates().tolist() == robust.after_warm_up(run.steps())["step"].drop_duplicates().tolist()


def test_the_layout_tells_the_groups_of_the_chosen_rank():
    state = cluster.pick(State(run=simulated("slow_rank:5:1.4")), "layout", {"rank": 2})
    cells = {cell["rank"]: cell["relation"] for cell in rows(shown(state), "layout", "layout")}
    assert (cells[2], cells[3], cells[10]) == ("chosen", "tensor", "pipeline")
    assert [rank for rank, relation in cells.items() if relation == "data"] == [0, 4, 6]
    assert cells[15] == "other"


def test_flops_of_a_longer_stage_stand_over_the_mean():
    plan = plan_of("gpt-7.5b", 32, micro=2, pp=4)
    uneven = replace(plan, parallel=replace(plan.parallel, layers_per_stage=((10, 10, 10, 6),)))
    by_stage = stage_flops(uneven)
    assert by_stage[0] == by_stage[1] == by_stage[2]
    whole = sum(by_stage)
    assert whole == pytest.approx(sum(stage_flops(plan)))
    layer = by_stage[0] / 10
    assert by_stage[3] > 6 * layer  # the head


def test_flops_are_shown_where_kernels_have_shapes_and_said_to_be_missing_elsewhere():
    assert "flops" in shown(State(run=str(data_folder() / "traces" / "torch_npu_2rank"))).charts
    answer = shown(SIXTEEN)
    assert "flops" not in answer.charts
    assert any("FLOPs by rank: not measured" in note for note in answer.notes)


def test_two_ranks_are_judged_by_their_equal_operators_and_not_at_all_without_kernels(tmp_path):
    whole = data_folder() / "traces" / "torch_npu_2rank"
    assert "Neither of the two ranks is slow" in shown(State(run=str(whole))).text
    for path in whole.rglob("step_trace_time.csv"):
        kept = tmp_path / path.relative_to(whole)
        kept.parent.mkdir(parents=True)
        shutil.copy(path, kept)
    text = shown(State(run=str(tmp_path))).text
    assert "cannot be told" in text
    assert "is slow:" not in text


def test_without_recording_or_project_the_page_says_so(tmp_path, monkeypatch):
    with pytest.raises(NothingYet):
        cluster.compute(State(run=""))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PERFKIT_PROJECT", raising=False)
    with pytest.raises(InputError, match="no project"):
        cluster.save(SIXTEEN)


def test_flops_that_the_profiler_states_show_the_stage_with_more_work():
    # 107.1 GFLOP on the ranks of stage 0 and 329.6 on those of stage 1, whose mean is 218.4.
    folder = Path(__file__).parents[2] / "data" / "traces" / "mindinsight" / "cluster_propose"
    result = cluster.compute(State(run=str(folder)))
    assert result.flops["basis"].unique().tolist() == ["profiler"]
    assert result.flops["flops"].tolist() == pytest.approx([107_146.763e6, 107_145.034e6, 329_608.369e6, 329_612.4e6])
    assert result.flops["over_mean"].tolist() == pytest.approx([0.4906, 0.4906, 1.5093, 1.5094], abs=1e-3)
    assert "flops" in cluster.view(result).charts
