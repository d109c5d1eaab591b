"""The documentation as a site: it is built without a warning, leads nowhere that is not, and loads nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

import perfkit

ROOT = Path(__file__).resolve().parents[1]
LOADED = {"script": "src", "img": "src", "iframe": "src", "link": "href"}


class Page(HTMLParser):
    """What a page leads to, what it loads, and the places in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        self.places.add(told.get("id") or "")
        if tag == "a" and told.get("href"):
            self.links.append(str(told["href"]))
        if told.get(LOADED.get(tag, "")):
            self.loaded.append(str(told[LOADED[tag]]))


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("sphinx", reason="the extra `docs` is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(ROOT / "docs"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.slow
def test_the_site_has_every_page_and_leads_nowhere_that_is_not(site):
    pages = {path: Page(path) for path in site.glob("*.html")}
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} <= {path.stem for path in pages}
    lost = []
    for path, page in pages.items():
        for link in page.links:
            if re.match(r"[a-z]+:", link):
                continue
            target, place = urldefrag(unquote(link))
            there = (path.parent / target).resolve() if target else path
            known = pages[there].places if there in pages else {place}
            if not there.exists() or place not in known:
                lost.append(f"{path.name}: {link}")
    assert lost == []


@pytest.mark.slow
def test_the_site_loads_nothing_from_another_host(site):
    foreign = re.compile(r"(https?:)?//")
    assert [(path.name, what) for path in site.glob("*.html") for what in Page(path).loaded if foreign.match(what)] == []
    sheets = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"(?:@import|url\()[\s\"']*(?:https?:)?//[^)]*", sheets) == []


@pytest.mark.slow
def test_every_public_function_stands_in_the_reference_with_its_docstring(site):
    places = Page(site / "reference.html").places
    assert {f"perfkit.{name}" for name in perfkit._PUBLIC} - places == set()
    assert "Raises InputError" in (site / "reference.html").read_text(encoding="utf-8")
