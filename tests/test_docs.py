"""The documentation and the program say the same things."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from perfkit.face.cli import commands
from perfkit.record.recognise import formats
from tests import readme_formats
from tests.notebook_format import pages

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("command", sorted(known.name for known in commands()))
def test_every_command_is_documented(command):
    assert f"## perfkit {command}" in text("docs/commands.md")


@pytest.mark.parametrize("name", [known.name for known in formats()])
def test_every_format_is_documented(name):
    assert f"`{name}`" in text("docs/formats.md")


def test_the_formats_of_the_readme_are_those_that_are_read():
    assert readme_formats.renewed(text("README.md")) == text("README.md"), "run: python -m tests.readme_formats"
    assert readme_formats.listed() in text("README.md")


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_every_page_is_named_in_the_readme(page):
    assert f"page {page.name[:2]}" in text("README.md")


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_every_page_has_its_picture_in_the_gallery(page):
    assert f"(images/gallery/{page.stem}.png)" in text("docs/gallery.md")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files_that_exist(document):
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", document.read_text(encoding="utf-8")):
        assert (document.parent / target).exists(), target


def test_the_first_screen_of_the_readme_has_one_picture_and_two_commands():
    screen = "\n".join(text("README.md").splitlines()[:30])
    assert screen.count("![") == 1
    assert re.findall(r"^make \w+", screen, re.MULTILINE) == ["make app", "make test"]


def test_make_targets_that_the_documents_name_exist():
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))
    named = {target for document in DOCUMENTS for target in re.findall(r"`make ([a-z-]+)", document.read_text(encoding="utf-8"))}
    assert named <= targets


def _exists(dotted: str) -> bool:
    """Whether a dotted name is a module, or what follows the longest module in it is a name there."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            found = getattr(found, name, None)
        return found is not None
    return False


@pytest.mark.parametrize("document", [*DOCUMENTS[:2], *DOCUMENTS[3:]], ids=lambda path: path.name)
def test_what_the_documents_import_exists(document):
    for module, names in re.findall(
        r"^ *from (perfkit[\w.]*) import ([\w, ]+)$", document.read_text(encoding="utf-8"), re.MULTILINE
    ):
        for name in re.split(r", ?", re.sub(r" as \w+", "", names)):
            assert _exists(f"{module}.{name}"), f"{module}.{name}"


@pytest.mark.parametrize("document", [*DOCUMENTS[:2], *DOCUMENTS[3:]], ids=lambda path: path.name)
def test_modules_that_the_documents_name_exist(document):
    named = set(re.findall(r"(?<![\w./])(perfkit(?:\.\w+){2,})(?![\w/]|\.\w)", document.read_text(encoding="utf-8")))
    assert [name for name in named if not _exists(name)] == []
