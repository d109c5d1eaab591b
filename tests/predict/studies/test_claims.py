"""Claims of the guides: every erratum has one, verdicts follow from figures, the page is what the module writes."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import perfkit
from perfkit.core.params import count_params
from perfkit.core.resources import data_folder
from perfkit.predict.studies.claims import claims, claims_table
from perfkit.predict.studies.claims._figures import pangu_38b
from perfkit.predict.studies.claims.table import DOCUMENT, document

ERRATA = {*(f"X{number:02d}" for number in range(1, 30)), "X08a", "X08b"}
MISTAKEN = ERRATA


def test_all_31_errata_have_a_claim_and_none_of_them_is_reproduced():
    found = {one.number: one.verdict for one in claims() if one.number.startswith("X")}
    assert set(found) == ERRATA
    assert len(ERRATA) == 31
    assert [number for number, verdict in found.items() if verdict == "reproduced"] == []


def test_worked_figures_of_the_guides_are_reproduced():
    figures = [one for one in claims() if one.number.startswith("R") and one.number not in ("R181", "R188")]
    assert {one.number: one.verdict for one in figures if one.verdict != "reproduced"} == {}
    assert len(figures) > 25


def test_a_verdict_follows_from_the_figures():
    one = next(one for one in claims() if one.number == "R005")
    assert one.verdict == "reproduced"
    assert replace(one, stated=2200).verdict == "contradicted"
    assert replace(one, stated=4272, otherwise=lambda: 4272.0).verdict == "explained"


def test_what_is_not_reproduced_says_why():
    assert [one.claim for one in claims() if one.verdict != "reproduced" and not one.why] == []
    assert all(re.match(r"^[RX]\d", one.number) for one in claims())


def test_figures_of_a_plan_stand_beside_the_guides():
    plan = perfkit.read_config(data_folder() / "configs" / "llama2_13b.toml")
    table = claims_table(plan).set_index("claim")
    yours = table["yours"].dropna()
    assert len(yours) >= 5
    tokens = next(claim for claim in table.index if claim.startswith("13B on 16 devices"))
    assert yours[tokens] == pytest.approx(perfkit.estimate(plan).tokens_per_s_per_device)


def test_the_page_is_what_the_module_writes():
    assert DOCUMENT.read_text(encoding="utf-8") == document()


def test_the_38b_step_is_what_a_simulated_run_takes_and_tells_the_length():
    plan = pangu_38b()
    assert count_params(plan.model).total == pytest.approx(38e9, rel=0.01)
    assert (plan.num_devices, plan.num_micro_batches) == (128, 32)
    step_s = perfkit.estimate(plan).step_time_s
    assert perfkit.simulate(plan).steps()["duration_ns"].mean() / 1e9 == pytest.approx(step_s, rel=0.015)
    others = [perfkit.estimate(pangu_38b(length)).step_time_s for length in (2048, 8192)]
    assert min(abs(other - 11.5) for other in others) > 4 * abs(step_s - 11.5)
