"""Single views: charts that are patched, the header, links, and the bundles that draw them."""

from __future__ import annotations

import copy
import hashlib
import re
from pathlib import Path

import altair as alt
import pandas as pd
import pytest

from perfkit.core.source import Source
from perfkit.face import panels
from perfkit.face.charts import theme
from perfkit.face.charts.vega import VEGA_FILE
from perfkit.face.panels import ChartHost, Figure
from perfkit.face.widgets.page_state import page_state
from perfkit.project import create_project

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "perfkit" / "face" / "widgets"
REPORT = ROOT / "perfkit" / "face" / "report" / "_report.js"
USED_BY_REPORT = ("chart", "dom", "load_module", "table", "texts", "theme")


@pytest.fixture
def chart() -> alt.Chart:
    bars = alt.Chart(alt.NamedData("rows")).mark_bar().encode(x="a:Q")
    return theme.with_rows(bars, {"rows": [{"a": 1}, {"a": 2}]})


def test_new_rows_change_the_data_and_not_the_description(chart):
    host = ChartHost(Figure(chart, title="T", sources=[Source("measured", "a.csv", "field b")]))
    before = host.description
    host.update({"rows": pd.DataFrame({"a": [5.0, float("nan")]})}, {"limit": 3})
    assert host.data["datasets"] == {"rows": {"a": [5.0, None]}}
    assert host.data["params"] == {"limit": 3}
    assert host.description == before
    assert before["sources"] == ["measured: a.csv (field b)"]


def test_a_new_structure_has_a_new_digest(chart):
    host = ChartHost(chart)
    before = host.description["digest"]
    host.rebuild(chart.encode(x="b:Q"))
    assert host.description["digest"] != before


def test_a_click_on_a_mark_comes_back_with_its_data(chart):
    clicks = []
    host = ChartHost(chart, name="bars", on_select=lambda name, datum: clicks.append((name, datum)))
    host.on_message({"type": "select", "chart": "bars", "datum": {"a": 2}})
    assert clicks == [("bars", {"a": 2})]


def test_the_modules_of_a_page_are_sent_when_it_asks(chart):
    host, sent = ChartHost(chart), []
    host.send = sent.append
    host._dispatch(host, {"type": "need-module", "name": "vega"}, [])
    host._dispatch(host, {"type": "need-module", "name": "widgets"}, [])
    library, views = sent
    assert (library["type"], library["name"], library["source"]) == ("module", "vega", VEGA_FILE.read_text(encoding="utf-8"))
    assert (views["source"], views["style"]) == tuple(
        (FOLDER / f"_widgets.{kind}").read_text(encoding="utf-8") for kind in ("js", "css")
    )


class Wire:
    """A comm to a page that drops what comes before it has made its model, as Jupyter's does."""

    kernel = comm_id = "here"

    def __init__(self) -> None:
        self.page: dict | None = None
        self.messages = 0

    def on_msg(self, callback):
        """Messages of the page are given to the view by the tests."""

    def send(self, data, **_):
        self.messages += 1
        if self.page is not None and data["method"] == "update":
            self.page.update(copy.deepcopy(data["state"]))


@pytest.mark.parametrize("changed_before", [(), ("description",), ("description", "data")])
def test_a_page_that_was_loading_while_the_kernel_worked_catches_up(chart, changed_before):
    host = ChartHost(chart)
    wire = Wire()
    host.comm = wire
    host.data = {"datasets": {"before": {}}, "params": {}}
    page = copy.deepcopy(host.get_state())
    for name in changed_before:
        setattr(host, name, {"datasets": {}, "params": {}, "late": name})
    wire.page = page
    sent = wire.messages
    host._dispatch(host, {"type": "catch-up"}, [])
    assert page == host.get_state()
    assert wire.messages == sent + bool(changed_before), "nothing is sent twice"


def test_the_header_names_project_round_and_goal(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))
    create_project(tmp_path, "<b>mine</b>", goal_value=2562.0, open_round=3)
    content = panels.header("11_step_breakdown").content
    assert content["project"] == "<b>mine</b>"
    assert content["round"] == "Round 3"
    assert content["goal"] == "Goal ≥ 2\u2009562 tokens/s/device"
    assert [chip["id"] for chip in content["chips"] if chip["state"] == "current"] == ["S5"]


def test_a_damaged_project_file_does_not_keep_the_header_from_opening(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))
    (tmp_path / "perfkit.toml").write_text("name = [")
    content = panels.header().content
    assert content["project"] == "No project open"
    assert "perfkit.toml" in content["warnings"][0]


def test_the_header_takes_the_address_and_gives_it():
    view = panels.header()
    view.on_message({"type": "hash", "values": {"run": "7"}})
    assert page_state().get("run") == "7"
    page_state().set({"rank": 3})
    assert view.values == {"run": "7", "rank": "3"}


def test_links_lead_to_pages_that_exist_in_the_app_and_in_jupyterlab(monkeypatch):
    monkeypatch.delenv("PERFKIT_APP", raising=False)
    content = panels.next_pages("11", "99", p11="see it").content
    assert content["links"] == [{"href": "11_step_breakdown.ipynb", "title": "Where did the step go?", "why": "see it"}]
    monkeypatch.setenv("PERFKIT_APP", "1")
    assert panels.page_link("11_step_breakdown", rank=3) == "11_step_breakdown#rank=3"
    assert panels.next_pages(page="10_load_run").content["links"][0]["href"] == "11_step_breakdown"


@pytest.mark.parametrize(
    ("bundle", "sources"),
    [
        (FOLDER / "_load.js", [ROOT / "js" / "load" / "load.js", ROOT / "js" / "src" / "load_module.js"]),
        (FOLDER / "_widgets.js", sorted((ROOT / "js" / "src").glob("*.js"))),
        (VEGA_FILE, [ROOT / "js" / "vega" / "vega.js", ROOT / "js" / "package-lock.json"]),
        (REPORT, [ROOT / "js" / "report" / "report.js", *(ROOT / "js" / "src" / f"{name}.js" for name in USED_BY_REPORT)]),
    ],
)
def test_the_committed_bundle_was_built_from_the_present_sources(bundle, sources):
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    assert bundle.read_text(encoding="utf-8").startswith(f"/* sources {digest};"), "run make js"


def test_the_bundles_fetch_nothing():
    # Names of standards look like addresses; everything else would be a place to fetch from.
    standards = r"www\.w3\.org|vega\.github\.io|github\.com|json-schema\.org"
    for bundle in (FOLDER / "_load.js", FOLDER / "_widgets.js", VEGA_FILE, REPORT):
        text = bundle.read_text(encoding="utf-8")
        assert not re.findall(rf"https?://(?!{standards})[a-z0-9.-]+\.[a-z]+", text)
