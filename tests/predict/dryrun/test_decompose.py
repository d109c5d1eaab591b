"""Decomposition of logged peaks: public inputs with published answers, stages left out, logs that leave something open."""

import json
from pathlib import Path

import pytest

from perfkit.core.errors import InputError
from perfkit.core.units import MIB
from perfkit.predict import dryrun

CASES = json.loads((Path(__file__).parents[2] / "data" / "plans" / "d12_memory_decomposition.json").read_text())["cases"]


def peaks(case) -> list[dryrun.StagePeak]:
    return [
        dryrun.StagePeak(
            stage=row["stage"],
            layers={kind: count for kind, count in row["counts"].items() if kind != "n"},
            peak_bytes=row["memory_mib"] * MIB,
        )
        for row in case["rows"]
    ]


def by_name(name: str):
    return next(case for case in CASES if case["name"] == name)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_every_public_peak_is_met_within_five_percent(case):
    found = dryrun.decompose(peaks(case), case["num_stages"])
    assert found.largest_error < 0.05
    for peak in peaks(case):
        assert found.predict(peak.stage, peak.layers) == pytest.approx(peak.peak_bytes, rel=0.05)


@pytest.mark.parametrize("name", ["mem.yaml", "mem_pp4.yaml"])
def test_inputs_that_decide_the_terms_give_the_published_ones(name: str):
    found = dryrun.decompose(peaks(by_name(name)), by_name(name)["num_stages"])
    for term, value in found.terms.items():
        assert value / MIB == pytest.approx(by_name(name)["expected_mib"][term], abs=0.01)
    assert found.left_out_error is None


def test_a_stage_left_out_is_predicted_within_six_percent():
    case = by_name("mem_lstsq.yaml")
    assert dryrun.decompose(peaks(case), case["num_stages"]).left_out_error < 0.06


def test_equal_stages_leave_parameters_and_constant_open():
    same = [dryrun.StagePeak(stage=stage, layers={"none": 4}, peak_bytes=1e9 + stage) for stage in (1, 2, 3)]
    with pytest.raises(InputError, match="another number of layers"):
        dryrun.decompose(same, 5)


def test_every_wrong_stage_is_named_and_an_unknown_way_is_refused():
    with pytest.raises(InputError) as caught:
        dryrun.decompose([dryrun.StagePeak(stage=9, layers={"none": 1}, peak_bytes=0)], 4)
    assert len(caught.value.problems) == 2
    case = by_name("mem_pp4.yaml")
    with pytest.raises(InputError, match="'select'"):
        dryrun.decompose(peaks(case), 4).predict(1, {"select": 2})
