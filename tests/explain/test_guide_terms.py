"""The guides' terms say what the recording tells; that they sum to every step of every sample, the tests of the ledger hold."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.explain.guide_terms import TERMS, UNTOLD, guide_terms, terms_of_step
from perfkit.explain.ledger import AFTER, BEHIND, causes, ledger
from perfkit.face.cli import main
from perfkit.record.load import load

TRACES = Path(__file__).resolve().parents[1] / "data/traces"
ASCEND = next(path for path in sorted(TRACES.rglob("*")) if path.name.startswith("ascend") and path.is_dir())


def test_a_group_that_no_guide_has_is_refused():
    run = load(ASCEND, cache=False)
    with pytest.raises(InputError, match="guide, pynative"):
        guide_terms(run, "other")


def test_a_recording_of_device_and_host_tells_forward_and_backward():
    run = load(ASCEND, cache=False)
    rank, step = (int(value) for value in run.steps()[["rank", "step"]].iloc[0])
    terms = guide_terms(run, steps=[step])
    found = terms[terms["rank"] == rank].set_index("term")["ns"]
    assert found["forward and backward"] > 0
    assert found[UNTOLD] < found.sum()


@pytest.mark.parametrize(("group", "term"), [("guide", "communication not hidden"), ("pynative", "communication")])
@pytest.mark.parametrize(
    "folder",
    [ASCEND, data_folder() / "traces" / "kineto_resnet", TRACES / "torch_npu_pp2dp2", TRACES / "dlrm_8xV100", TRACES / "hta"],
    ids=lambda folder: folder.name,
)
def test_exposed_communication_is_not_hidden_whether_it_moved_or_waited(folder, group, term):
    run = load(folder / "trace_diff" if folder.name == "hta" else folder, cache=False)
    entries = ledger(run).entries
    exposed = entries[entries["part"] == "communication"].groupby(["rank", "step"])["ns"].sum()
    terms = guide_terms(run, group)
    told = terms[terms["term"] == term].set_index(["rank", "step"])["ns"].reindex(exposed.index)
    assert len(exposed)
    assert (told >= exposed).all()


def test_the_command_prints_terms_and_their_sum(capsys):
    assert main(["summary", str(ASCEND), "--group", "guide"]) == 0
    assert "communication not hidden" in capsys.readouterr().out
    assert main(["summary", str(ASCEND), "--group", "pynative", "--json"]) == 0
    for rank in json.loads(capsys.readouterr().out)["ranks"]:
        for step in rank["steps"]:
            assert sum(filter(None, step["terms_ns"].values())) == step["duration_ns"]


def test_what_computes_behind_the_optimizer_is_post_processing():
    run = load(TRACES / "torch_npu_pp2dp2", cache=False)
    entries = ledger(run).entries
    behind = entries[entries["place"] == BEHIND]
    assert not behind.empty
    assert not set(behind["cause"]) & {*causes.OF_LAYERS, causes.OPTIMIZER}
    terms = guide_terms(run)
    late = entries[(entries["place"] == AFTER) & entries["cause"].str.startswith("host")]
    assert terms.loc[terms["term"] == "post-processing", "ns"].sum() == behind["ns"].sum() + late["ns"].sum()


def test_layers_behind_the_optimizer_are_no_post_processing():
    """A window that begins with the optimizer of the step before says nothing of what follows the optimizer."""
    run = load(TRACES / "kineto_h100" / "recompute.json.gz", cache=False)
    first = int(run.steps()["step"].iloc[0])
    kernels = run.frame("kernels")
    updates = kernels[kernels["name"].str.contains("multi_tensor_apply") & (kernels["step"] == first)]
    assert len(updates)
    moved = kernels.assign(start_ns=kernels["start_ns"].where(~kernels.index.isin(updates.index), int(kernels["start_ns"].min())))
    entries = ledger(replace(run, tables={**run.tables, "kernels": moved}), steps=[first]).entries
    assert (entries["place"] != BEHIND).all()


def unknown(run, rank):
    terms = guide_terms(run)
    return set(terms.loc[(terms["rank"] == rank).to_numpy() & terms["ns"].isna().to_numpy(), "term"])


def test_terms_that_a_recording_cannot_tell_are_missing_and_not_nothing():
    run = load(TRACES / "torch_npu_pp2dp2", cache=False)
    assert unknown(run, 0) == {"data loading", "scheduling"}
    assert unknown(run, 1) == {"data loading", "scheduling", "optimizer", "post-processing"}
    log = load(data_folder() / "traces" / "logs" / "llama2_13b_8card_worker_0.log", cache=False)
    assert unknown(log, 0) == set(TERMS["guide"]) - {UNTOLD}
    assert unknown(load(data_folder() / "traces" / "kineto_resnet", cache=False), 0) <= {"communication not hidden"}


def test_the_command_says_what_was_not_measured(capsys):
    assert main(["summary", str(TRACES / "torch_npu_pp2dp2"), "--group", "guide"]) == 0
    assert "not measured" in capsys.readouterr().out
    assert main(["summary", str(TRACES / "torch_npu_pp2dp2"), "--group", "guide", "--json"]) == 0
    ranks = {rank["rank"]: rank["steps"][0] for rank in json.loads(capsys.readouterr().out)["ranks"]}
    assert ranks[1]["terms_ns"]["optimizer"] is None
    assert all(sum(filter(None, step["terms_ns"].values())) == step["duration_ns"] for step in ranks.values())


def test_a_step_of_a_rank_is_told_with_shares_of_what_was_measured():
    run = load(TRACES / "torch_npu_pp2dp2", cache=False)
    told = terms_of_step(run, rank=0, step=13)
    assert told["term"].tolist() == list(TERMS["guide"])
    assert told["duration_ns"].sum() == 810_022_360
    assert told["of_step_ratio"].sum() == pytest.approx(1)
    assert told.loc[told["term"] == "scheduling", ["duration_ns", "of_step_ratio"]].isna().all(axis=None)
    assert terms_of_step(run, rank=0, step=13, group="pynative")["duration_ns"].sum() == 810_022_360
