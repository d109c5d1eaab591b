"""What a recording holds: what is there, what is missing, what could not be read, and how it is collected."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from perfkit.core.resources import data_folder
from perfkit.core.run import Dropped, Run
from perfkit.explain.recording import (
    coverage_shown,
    dropped_table,
    facts_table,
    largest_rest_ns,
    missing_parts,
    missing_table,
    ranks_missing,
    ranks_recorded,
    recording_notes,
    recording_told,
)
from perfkit.record.load import load

TRACES = data_folder() / "traces"
SAMPLE = TRACES / "torch_npu_2rank"
OWN = Path(__file__).parents[1] / "data" / "traces"
RECORDINGS = ["torch_npu_2rank", "cluster_16card", "kineto_resnet", "mindinsight_feed", "logs/llama2_13b_8card_worker_0.log"]


def test_the_sentence_says_what_was_found():
    text = recording_told(load(SAMPLE))
    assert text == (
        "Only 2 of 8 ranks are here: 1 step, with 11 of 12 kinds of data. Nothing was dropped, and parts sum to their step exactly."
    )


def test_ranks_that_are_not_here_are_said():
    run = load(SAMPLE)
    assert "2 of 8 ranks" in recording_told(run, num_expected=8)
    assert any("6 of 8 ranks are not here" in note for note in recording_notes(run, num_expected=8))
    assert ranks_missing(run) == ranks_missing(run, num_expected=8) == (2, 3, 4, 5, 6, 7)
    one = recording_notes(run, num_expected=3)
    assert "1 of 3 ranks is not here: if it is slow, that stays unseen." in one
    whole = recording_told(run, num_expected=2)
    assert whole.endswith("What is there: 2 ranks, 1 step, with 11 of 12 kinds of data.")
    assert recording_told(load(TRACES / "kineto_resnet")).startswith("Only 1 of 8 ranks is here: 3 steps, with")


def test_no_rank_is_missing_where_nothing_names_another():
    assert ranks_missing(load(TRACES / "cluster_16card")) == ()
    assert ranks_missing(load(TRACES / "logs" / "llama2_13b_8card_worker_0.log"), num_expected=0) == ()


def test_what_is_there_is_counted_also_where_it_is_little():
    assert (
        recording_told(load(TRACES / "memory_tracker"))
        == "Nothing was dropped. What is there: 1 rank, 0 steps, with 2 of 11 kinds of data."
    )
    more = recording_told(load(OWN / "mindinsight" / "mixed"))
    assert "What is there: 4 ranks, 41 steps" in more
    assert "The parts of every step sum to it exactly." in recording_notes(load(OWN / "mindinsight" / "mixed"))


@pytest.mark.parametrize("name", RECORDINGS)
def test_tables_and_sentence_agree_on_every_recording(name: str):
    run = load(TRACES / name)
    ranks, missing, dropped = ranks_recorded(run), missing_table(run), dropped_table(run)
    assert ranks["rank"].tolist() == list(run.ranks)
    assert ranks["steps"].sum() == len(run.frame("steps"))
    assert ranks["kernels"].sum() == len(run.frame("kernels"))
    assert missing["not recorded"].tolist() == list(missing_parts(run))
    assert missing["how to collect it"].str.len().min() > 20
    assert dropped["count"].sum() == sum(drop.count for drop in run.dropped)
    assert len(facts_table(run)) == len(run.facts)
    shown = coverage_shown(run)
    held = shown.loc[shown["state"].isin(["present", "partial"]), "part"].nunique()
    assert f"with {held} of {shown['part'].nunique()} kinds of data" in recording_told(run)
    assert not shown.duplicated(["rank", "part", "file"]).any()
    assert ("Nothing was dropped" in recording_told(run)) == (dropped.empty)
    assert (largest_rest_ns(run) is None) == (not run.has("step_parts"))


def test_what_a_page_draws_is_not_said_to_be_missing():
    run = load(OWN / "kineto_h100")
    assert run.has("memory_curve")
    shown = coverage_shown(run).set_index("part")["state"]
    assert (shown["memory curve"], shown["layout"]) == ("present", "missing")
    assert missing_parts(run) == ("collectives", "links", "operator statistics", "layout")


def test_damage_is_listed_and_the_rest_is_read(tmp_path: Path):
    shutil.copytree(SAMPLE, tmp_path / "run")
    broken = next((tmp_path / "run").rglob("communication.json"))
    broken.write_bytes(broken.read_bytes()[:200])
    run = load(tmp_path / "run")
    assert dropped_table(run)["file"].str.contains("communication.json").any()
    assert "2 of 8 ranks" in recording_told(run)
    assert "could not be read" in recording_told(run)


def test_lost_bytes_and_lost_items_are_not_one_number():
    lost = (Dropped("bytes before the first complete event", 109, "a.json"), Dropped("event without a name", 1, "a.json"))
    run = Run(name="a", kind="measured", format="kineto", tables={}, dropped=lost)
    assert run.lost_told == ("1 item could not be read.", "109 B could not be read.")
