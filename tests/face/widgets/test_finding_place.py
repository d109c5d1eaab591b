"""Links of findings: every one selects at least one slice or rank, on the timeline where anything of it has a time."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs

import pytest

from perfkit.core.resources import data_folder
from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.told import finding_names, ranks_of
from perfkit.explain.steps import parts_of, ranks_to_show, typical_steps
from perfkit.face.charts.steps import part_rows, rank_bars
from perfkit.face.widgets.finding_place import costliest, evidence_pages, place_of, ranks_concerned
from perfkit.face.widgets.page_state import page_state
from perfkit.face.widgets.timelines.view import TimelineView
from perfkit.record.load import load

OWN = Path(__file__).resolve().parents[2] / "data" / "traces" / "dlrm_8xV100"
SAMPLES = [data_folder() / "traces" / name for name in ("torch_npu_2rank", "kineto_resnet")] + [OWN]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_every_link_of_a_finding_selects_a_slice_or_a_rank(path: Path):
    run = load(path)
    findings = diagnose(run).findings
    assert findings
    table = costliest(run, str(path), dict(zip(finding_names(findings), findings, strict=True)), most=len(findings))
    for finding, link in zip(findings, table.attrs["links"]["see"], strict=True):
        pages = evidence_pages(run, str(path), finding).attrs["links"]["page"]
        assert all(parse_qs(page.partition("#")[2])["run"] == [str(path)] for page in pages)
        assert [page for page in pages if page.startswith("14_timeline")] == [link] * bool(link)
        assert pages
        if not link:
            assert place_of(run, finding) is None
            assert not run.has("kernels") or not ranks_of(finding)
            continue
        page_state.cache_clear()
        page_state().set({name: value for name, (value,) in parse_qs(link.partition("#")[2]).items()})
        view = TimelineView()
        asked = view._goto(view.wait())
        assert asked is not None, finding.rule
        assert asked["slice"] is not None or asked["pins"], finding.rule


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_the_bars_of_the_ranks_of_a_finding_stand_out_and_all_where_it_names_none(path: Path):
    run = load(path)
    findings = diagnose(run).findings
    table = costliest(run, str(path), dict(zip(finding_names(findings), findings, strict=True)), most=len(findings))
    rows = part_rows(parts_of(run, steps := typical_steps(run), ranks_to_show(steps)))
    for finding, name in zip(findings, table["finding"], strict=True):
        lit = ranks_concerned(findings, name)
        bars = rank_bars(rows, unit="ms", lit=lit).datasets["parts"]
        named = {str(rank) for rank in finding.subject.get("ranks", ())}
        assert {row["rank"] for row in bars if row["lit"]} >= named & set(rows["rank"])
        assert {row["rank"] for row in bars if row["lit"]} == ({*map(str, lit)} & set(rows["rank"]) or set(rows["rank"]))
    assert ranks_concerned(findings, "no such finding") == ()


def test_a_finding_links_to_its_evidence_by_its_own_name():
    path = SAMPLES[0]
    findings = diagnose(load(path)).findings
    table = costliest(load(path), str(path), dict(zip(finding_names(findings), findings, strict=True)))
    assert [link.partition("finding=")[2] for link in table.attrs["links"]["finding"]] == table["finding"].tolist()


def test_an_address_of_a_rank_that_is_not_there_selects_nothing():
    page_state().set({"run": str(SAMPLES[0]), "show": "99"})
    view = TimelineView()
    asked = view._goto(view.wait())
    assert asked is not None
    assert (asked["slice"], asked["pins"]) == (None, [])
