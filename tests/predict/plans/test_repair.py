"""Broken lists: what breaks, and the nearest lists that do not; the guides' example comes out as it was meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.config.dialects import read_config, read_text
from perfkit.core.errors import InputError
from perfkit.core.patterns import check_patterns, layer_paths
from perfkit.predict.plans.repair import repair_counts, repair_offset
from perfkit.predict.plans.repair_text import repair_text

PLANS = Path(__file__).parents[2] / "data" / "plans"
CASE = json.loads((PLANS / "d19_repair_13b.json").read_text(encoding="utf-8"))
KNOWN, LAYERS, STAGES = CASE["context"]["known_paths"], CASE["context"]["num_layers"], CASE["context"]["pipeline_stage"]
LISTS = json.loads((PLANS / "d16_mindformers_lists.json").read_text(encoding="utf-8"))["cases"]
LLAMA = Path(__file__).parents[3] / "data" / "configs" / "pretrain_llama2_13b.yaml"


def repaired(text: str):
    return repair_text(text, "guide.yaml", paths=KNOWN, num_layers=LAYERS, num_stages=STAGES)


def test_the_guides_map_is_repaired_line_by_line():
    found = repaired(CASE["dict_form_text"])
    value = yaml.safe_load(found.text)["select_recompute"]
    assert value == {line["repaired_pattern"]: line["values"] for line in CASE["dict_form"]}
    by_line = {}
    for proposal in found.proposals:
        by_line.setdefault(proposal.line, {})[proposal.rule] = proposal
    for number, line in enumerate(CASE["dict_form"], 2):
        assert set(by_line.get(number, {})) == set(line["problems"]), line["line"]
        if "candidates" in line:
            assert list(by_line[number]["unknown_pattern"].candidates) == line["candidates"]


def test_the_guides_list_is_repaired_pattern_by_pattern():
    found = repaired(CASE["list_form_text"])
    assert yaml.safe_load(found.text)["select_recompute"] == [entry["repaired_pattern"] for entry in CASE["list_form"]]
    for check, entry in zip(found.patterns, CASE["list_form"], strict=True):
        assert bool(check.matched) == (entry["problems"] == [])
        assert list(check.candidates) == entry.get("candidates", [])


def test_the_repaired_patterns_match_the_shipped_layer_and_the_broken_ones_do_not():
    entries = [*CASE["dict_form"], *CASE["list_form"]]
    assert all(check.matched for check in check_patterns([entry["repaired_pattern"] for entry in entries]))
    broken = {entry["pattern"] for entry in entries if "unknown_pattern" in entry["problems"]}
    assert len(broken) == 6
    assert not any(check.matched for check in check_patterns(sorted(broken)))
    assert set(KNOWN) <= set(layer_paths())


def test_a_repaired_text_needs_no_repair():
    once = repaired(CASE["dict_form_text"])
    twice = repaired(once.text)
    assert twice.proposals == ()
    assert twice.text == once.text
    assert twice.diff() == ""


def test_a_pattern_that_repeats_the_attention_kernel_is_marked():
    assert check_patterns([r"attention\.flash_attention"])[0].is_costly
    assert not check_patterns([r"feed_forward\.mul"])[0].is_costly


def test_a_regular_expression_counts_all_it_names():
    assert len(check_patterns([r".*\.w[qkv]\.reshape"])[0].matched) == 3
    assert check_patterns(["(unclosed"])[0].matched == ()


@pytest.mark.parametrize("case", [case for case in LISTS if not case["expected"]["ok"]], ids=lambda case: case["name"])
def test_published_errors_have_their_ids_and_the_proposals_none(case):
    config = case["config"]
    sizes = config["num_layers"], config["pipeline_stage"], config.get("pp_interleave_num", 1)
    found = repair_offset(config["offset"], *sizes)
    assert case["expected"]["error"] in [rule for rule, _ in found.problems]
    assert found.nearest
    for offset in found.nearest:
        assert repair_offset(offset, *sizes).is_valid


@pytest.mark.parametrize("case", [case for case in LISTS if case["expected"]["ok"]], ids=lambda case: case["name"])
def test_valid_lists_are_left_alone(case):
    config = case["config"]
    assert repair_offset(
        config.get("offset", 0), config["num_layers"], config["pipeline_stage"], config.get("pp_interleave_num", 1)
    ).is_valid


def test_the_nearest_offset_adds_the_missing_layer_where_it_levels():
    found = repair_offset([0, 1, 1, 0, 0], 48, 5)
    assert found.nearest[0] == [0, 1, 1, 0, 1]
    assert [rule for rule, _ in found.problems] == ["offset_sum"]


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 6), st.integers(1, 3), st.integers(0, 60), st.lists(st.integers(-5, 5), min_size=1, max_size=8))
def test_every_proposal_places_all_layers(stages, chunks, more, row):
    layers = stages * chunks + more
    found = repair_offset(row, layers, stages, chunks)
    for offset in found.nearest:
        assert repair_offset(offset, layers, stages, chunks).is_valid, offset


def test_counts_beyond_the_layers_are_named_and_cut():
    found = repair_counts("recompute", [25, -1], [[20, 20]])
    assert [rule for rule, _ in found.problems] == ["recompute_too_many", "recompute_negative"]
    assert found.nearest == ([20, 0],)
    assert repair_counts("recompute", [1, 2, 3], [[20, 20]]).nearest == ([1, 2],)
    assert repair_counts("recompute", "all", [[20, 20]]).nearest == (True, False)


def test_counts_behind_full_layers_have_less_room():
    found = repair_counts("select_recompute", [1, 1], [[2, 2]], full=[[2, 1]])
    assert found.problems == (("recompute_too_many", "stage 0: 1 layers of 0 that there are"),)
    assert found.nearest == ([0, 1],)


def test_a_whole_configuration_is_repaired_in_place():
    text = LLAMA.read_text(encoding="utf-8").replace("pipeline_stage: 1", "pipeline_stage: 2")
    broken = text.replace("  recompute: True", "  recompute: [25, 3]").replace(
        "  select_recompute: False", "  select_recompute: [20, 0]e"
    )
    with pytest.raises(InputError):
        read_text(broken, "x.yaml")
    found = repair_text(broken, "x.yaml")
    assert [proposal.rule for proposal in found.proposals] == ["trailing_text", "recompute_too_many"]
    plan = read_text(found.text, "x.yaml")
    assert plan.recompute.full_layers == ((20, 3),)
    assert len([line for line in found.diff().splitlines() if line.startswith("+ ")]) == 2


def test_a_sound_file_has_no_proposals():
    for path in sorted(LLAMA.parent.glob("*.yaml")):
        assert repair_text(path.read_text(encoding="utf-8"), path.name).diff() == "", path.name
        assert read_config(path).document is not None
