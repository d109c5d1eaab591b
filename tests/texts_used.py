"""Every text that a page can say besides what it computes, with where it comes from."""

from __future__ import annotations

import ast
import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

from perfkit import panels
from perfkit.classroom import _mark, exercises
from perfkit.panels import _header, class_exercise
from perfkit.texts import english_lines
from tests.notebook_format import pages

ROOT = Path(__file__).resolve().parents[1]


def used() -> dict[str, dict[str, str]]:
    """Section, English text, place."""
    found: dict[str, dict[str, str]] = {}
    for section, text, place in (
        *_pages(),
        *_next(),
        *_panels(),
        *_titles(),
        *_rules(),
        *_header_texts(),
        *_scripts(),
        *_templates(),
        *_class(),
    ):
        if text.strip() and re.search(r"[A-Za-z]{2}", text):
            found.setdefault(section, {}).setdefault(text, place)
    return found


def _pages() -> Iterator[tuple[str, str, str]]:
    from perfkit._resources import pages as known

    for page in known():
        yield "pages", page.group, page.name
    for path in pages():
        cells = json.loads(path.read_text())["cells"]
        for cell in cells:
            if cell["id"] == "question":
                for line in english_lines("".join(cell["source"])):
                    yield "pages", line, path.name
            elif cell["cell_type"] == "markdown":
                for line in english_lines("".join(cell["source"]))[:1]:
                    yield "pages", line, path.name


def _next() -> Iterator[tuple[str, str, str]]:
    for path in pages():
        for cell in json.loads(path.read_text())["cells"]:
            if cell["id"] == "next":
                for node in ast.walk(ast.parse("".join(cell["source"]))):
                    if isinstance(node, ast.keyword) and isinstance(node.value, ast.Constant):
                        yield "next", node.value.value, path.name


def _panels() -> Iterator[tuple[str, str, str]]:
    for name in panels.names():
        module = importlib.import_module(f"perfkit.panels.{name.replace('-', '_')}")
        panel = getattr(module, "PANEL", None)
        if panel is None:
            continue
        yield "panels", panel.title, name
        for control in panel.controls:
            yield "controls", control.label or panels._control.words(control.path), f"{name} {control.path}"
            yield "help", control.help.rstrip("."), f"{name} {control.path}"
            for field in ("placeholder", "prompt"):
                yield "controls", getattr(control, field, ""), f"{name} {control.path}"
            options = getattr(control, "options", ())
            for option in () if callable(options) else options:
                if isinstance(option, tuple):
                    yield "options", str(option[0]), f"{name} {control.path}"
                    yield "options", str(option[2]) if len(option) == 3 else "", f"{name} {control.path}"
                elif isinstance(option, str):
                    yield "options", option, f"{name} {control.path}"
        for action in panel.actions:
            yield "actions", action.label, name
            yield "actions", action.help, name
        if panel.empty:
            yield "actions", panel.empty.action, name


def _titles() -> Iterator[tuple[str, str, str]]:
    """Titles of figures and tables that are written as they are; those with figures in them are made of data."""
    for path in sorted((ROOT / "perfkit" / "panels").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Table", "Figure"):
                for word in node.keywords:
                    if word.arg == "title" and isinstance(word.value, ast.Constant):
                        yield "titles", word.value.value, path.name


def _rules() -> Iterator[tuple[str, str, str]]:
    from perfkit import _discover

    for rule in _discover.constants("perfkit.diagnose.rules", "RULE"):
        yield "rules", rule.title, rule.name


def _class() -> Iterator[tuple[str, str, str]]:
    """What an exercise asks and says; a formula is the same in all languages."""
    for exercise in exercises().values():
        for text in (exercise.title, exercise.text, exercise.idea, exercise.group, *exercise.wrong.values()):
            yield "class", text, exercise.name
    for text in (class_exercise.LETTERS, *_mark.SAID.values()):
        yield "class", text, "class"
    for text in re.findall(r"""\bt\("([^"]*)"\)""", (ROOT / "perfkit" / "panels" / "class_exercise.py").read_text()):
        yield "class", text, "class_exercise"


def _header_texts() -> Iterator[tuple[str, str, str]]:
    for _, label, work, _ in _header.CYCLE:
        yield "cycle", label, "header"
        yield "cycle", work, "header"


def _scripts() -> Iterator[tuple[str, str, str]]:
    for path in (ROOT / "js" / "src").glob("*.js"):
        for text in re.findall(r'\bt\("((?:[^"\\]|\\.)*)"', path.read_text()):
            yield "browser", text.replace('\\"', '"'), path.name


def _templates() -> Iterator[tuple[str, str, str]]:
    for path in (ROOT / "perfkit" / "app" / "templates").glob("*.j2"):
        for text in re.findall(r"\bt\('((?:[^'\\]|\\.)*)'\)", path.read_text()):
            yield "frame", text.replace("\\'", "'"), path.name
    for module in (
        "panels/_status.py",
        "panels/_header.py",
        "panels/_control.py",
        "panels/_navigation.py",
        "panels/_finding_links.py",
        "panels/finding_timeline.py",
    ):
        for text in re.findall(r"""\bt\(["']([^"']*)["']\)""", (ROOT / "perfkit" / module).read_text()):
            yield "states", text, module
