"""Single views: figures, what a page is sent, the header, links, and the bundles that draw them."""

from __future__ import annotations

import copy
import hashlib
import re
from dataclasses import replace
from pathlib import Path

import altair as alt
import pytest

from perfkit.core.source import Source
from perfkit.face import widgets
from perfkit.face.charts import theme
from perfkit.face.charts.spec import split
from perfkit.face.charts.vega import VEGA_FILE
from perfkit.face.widgets.chart import Figure, describe
from perfkit.face.widgets.navigation import page_link
from perfkit.face.widgets.page_state import page_state
from perfkit.face.widgets.panel import Panel
from perfkit.face.widgets.view import Content
from perfkit.project import create_project
from tests.panels import open_panel

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "perfkit" / "face" / "widgets"
REPORT = ROOT / "perfkit" / "face" / "report" / "_report.js"
USED_BY_REPORT = ("chart", "dom", "load_module", "narrow", "shares", "table", "texts", "theme", "tips")


@pytest.fixture
def chart() -> alt.Chart:
    bars = alt.Chart(alt.NamedData("rows")).mark_bar().encode(x="a:Q")
    return theme.with_rows(bars, {"rows": [{"a": 1}, {"a": 2}]})


def test_a_figure_is_described_without_its_rows(chart):
    spec = split(chart)
    figure = Figure(chart=chart, title="T", sources=[Source("measured", "a.csv", "field b")])
    described = describe("bars", figure, spec)
    assert described["sources"] == ["measured: a.csv (field b)"]
    assert spec.datasets == {"rows": {"a": [1, 2]}}
    assert "values" not in repr(described["spec"])
    assert split(chart.encode(x="b:Q")).digest != spec.digest
    with pytest.raises(ValueError, match="no data set 'other'"):
        describe("bars", replace(figure, table="other"), spec)


def test_the_modules_of_a_page_are_sent_when_it_asks():
    view, sent = Content(kind="links", content={}), []
    view.send = sent.append
    view._dispatch(view, {"type": "need-module", "name": "vega"}, [])
    view._dispatch(view, {"type": "need-module", "name": "widgets"}, [])
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


@pytest.mark.parametrize("changed_before", [(), ("frame",), ("frame", "data")])
def test_a_page_that_was_loading_while_the_kernel_worked_catches_up(changed_before):
    panel = Panel(compute=lambda state: state, view=lambda _: ({}, {}, "an answer"))
    host = open_panel(panel)
    host.wait()
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
    content = widgets.header("11_step_breakdown").content
    assert content["project"] == "<b>mine</b>"
    assert content["round"] == "Round 3"
    assert content["goal"] == "Goal ≥ 2\u2009562 tokens/s/device"
    assert [chip["id"] for chip in content["chips"] if chip["state"] == "current"] == ["S5"]


def test_a_damaged_project_file_does_not_keep_the_header_from_opening(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))
    (tmp_path / "perfkit.toml").write_text("name = [")
    content = widgets.header().content
    assert content["project"] == "No project open"
    assert "perfkit.toml" in content["warnings"][0]


def test_the_header_takes_the_address_and_gives_it():
    view = widgets.header()
    view.on_message({"type": "hash", "values": {"run": "7"}})
    assert page_state().get("run") == "7"
    page_state().set({"rank": 3})
    assert view.values == {"run": "7", "rank": "3"}


def test_links_lead_to_pages_that_exist_in_the_app_and_in_jupyterlab(monkeypatch):
    monkeypatch.delenv("PERFKIT_APP", raising=False)
    content = widgets.next_pages("11", "99", p11="see it").content
    assert content["links"] == [{"href": "11_step_breakdown.ipynb", "title": "11 Step breakdown", "why": "see it"}]
    monkeypatch.setenv("PERFKIT_APP", "1")
    assert page_link("11_step_breakdown", rank=3) == "11_step_breakdown#rank=3"
    assert widgets.next_pages(page="10_load_run").content["links"][0]["href"] == "11_step_breakdown"


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
