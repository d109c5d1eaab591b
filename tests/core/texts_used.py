"""Every text that a page can say besides what it computes, with where it comes from.

What is left to translate: `python -m tests.core.texts_used`.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import yaml

from perfkit.core import discover
from perfkit.core.quantity import label as column_label
from perfkit.core.texts import catalogue, english_lines
from perfkit.explain.diagnose.own_words import OWN_WORDS
from perfkit.face.app.handlers import ENDED
from perfkit.face.widgets import header_view
from perfkit.face.widgets.control import PathPicker
from perfkit.face.widgets.control import words as control_words
from perfkit.teach import _mark, card, exercises
from tests.notebook_format import pages

ROOT = Path(__file__).resolve().parents[2]
FACE = ROOT / "perfkit" / "face"
WORD = re.compile(r"[A-Za-z]{3,}")


def used() -> dict[str, dict[str, str]]:
    """Section, English text, place."""
    found: dict[str, dict[str, str]] = {}
    for section, text, place in (*_written(), *_rules(), *_sentences(), *_words(), *_said(), *_problems(), *_columns(), *_class()):
        if text.strip() and re.search(r"[A-Za-z]{2}", text):
            found.setdefault(section, {}).setdefault(text, place)
    return found


@cache
def _written() -> tuple[tuple[str, str, str], ...]:
    """What stands in files, which are read once; the rest is that of rules and catalogues as they are at the moment."""
    return (
        *_pages(),
        *_shell(),
        *_verdict(),
        *_next(),
        *_titles(),
        *_steps(),
        *_forms(),
        *_findings(),
        *_header_texts(),
        *_scripts(),
        *_templates(),
    )


def untranslated(language: str = "zh") -> dict[str, str]:
    """The texts that a language has not, which are shown in English, with the place of each."""
    known = {english for section in catalogue(language).values() for english in section}
    return {text: place for section in used().values() for text, place in section.items() if text not in known}


def _pages() -> Iterator[tuple[str, str, str]]:
    from perfkit.core.resources import pages as known

    for page in known():
        yield "pages", page.group, page.name
    for path in pages():
        cells = json.loads(path.read_text())["cells"]
        for cell in cells:
            if cell["id"] == "question" or cell["cell_type"] == "markdown":
                for line in english_lines("".join(cell["source"])):
                    yield "pages", line, path.name


def _shell() -> Iterator[tuple[str, str, str]]:
    """The rail and the switches of the header."""
    from perfkit.core.resources import pages as known

    for page in known():
        yield "frame", page.short, "rail"
    for group in ("Uploads", "Project", "Opened before", "Bundled samples"):
        yield "frame", group, "opener.py"


def _verdict() -> Iterator[tuple[str, str, str]]:
    """What the verdict says, with places for figures, and the names of its figures."""
    tree = ast.parse((ROOT / "perfkit" / "project" / "verdict.py").read_text())
    defined = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module)]
    documented = {node.body[0].value for node in defined if isinstance(node.body[0], ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr | ast.Constant) and node not in documented:
            yield from (("sentences", text, "verdict.py") for text in texts_of(node, tree) if " " in text.strip() == text)
    yield from (("sentences", text, "figure.py") for text in ("not measured", "throughput", "MFU"))


def _next() -> Iterator[tuple[str, str, str]]:
    for path in pages():
        for cell in json.loads(path.read_text())["cells"]:
            if cell["id"] == "next":
                for node in ast.walk(ast.parse("".join(cell["source"]))):
                    if isinstance(node, ast.keyword) and isinstance(node.value, ast.Constant):
                        yield "next", node.value.value, path.name


def _titles() -> Iterator[tuple[str, str, str]]:
    """Titles of figures and tables that are written as they are; those with figures in them are made of data."""
    for path in sorted((FACE / "widgets").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Table", "Figure"):
                for word in node.keywords:
                    if word.arg == "title" and isinstance(word.value, ast.Constant):
                        yield "titles", word.value.value, path.name
    for path in sorted(path for room in ("config", "predict", "explain") for path in (ROOT / "perfkit" / room).rglob("*.py")):
        if "attrs" in (text := path.read_text()):  # of frames, which say their title themselves
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Dict):
                    named = zip(node.keys, node.values, strict=True)
                    yield from (("titles", _constant(value), path.name) for key, value in named if _constant(key) == "title")


WITH_CONTROLS = (
    "class_entries",
    "pickers",
    "graphs",
    "losses",
    "pipelines",
    "plan_entries",
    "prediction_entries",
    "project_entries",
    "sides",
    "strategy_entries",
)


def _steps() -> Iterator[tuple[str, str, str]]:
    """The words of the steps of pages: their names, controls and options, and the titles of what they return."""
    for path in pages():
        for cell in json.loads(path.read_text())["cells"]:
            if cell["cell_type"] != "code" or not re.search(r"widgets\.|choose_|Button\(", source := "".join(cell["source"])):
                continue
            for node in ast.walk(ast.parse(source)):
                for section, text in _step_texts(node, path):
                    yield section, text, path.name
    for text in (PathPicker("").prompt, PathPicker("").placeholder):
        yield "controls", text, "control.py"
    for module in (FACE / "widgets" / f"{name}.py" for name in WITH_CONTROLS):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.keyword | ast.Call | ast.arguments):
                for section, text in _step_texts(node, module):
                    yield section, text, module.name


def _step_texts(node: ast.AST, page: Path) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.FunctionDef):
        yield "panels", (ast.get_docstring(node) or control_words(node.name)).splitlines()[0].rstrip(".")
    elif isinstance(node, ast.keyword) and node.arg in ("label", "help", "placeholder", "button", "title", "action"):
        yield "controls", _constant(node.value).rstrip(".")
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "Choice":
        for option in node.args:
            if isinstance(option, ast.Starred):
                yield from (("options", text) for text in _imported(page, option.value))
            else:
                yield "options", _constant(option.elts[0] if isinstance(option, ast.Tuple) else option)
    elif isinstance(node, ast.arguments):
        for name, default in zip(node.kwonlyargs, node.kw_defaults, strict=True):
            yield from [("controls", _constant(default))] * (name.arg == "label")
    elif isinstance(node, ast.Dict):
        for key in node.keys:
            yield "titles", _constant(key)


def _imported(page: Path, node: ast.expr) -> list[str]:
    """The words of a constant that a page imports, by itself or with its module, or that a module holds."""
    if page.suffix == ".py":
        return _option_words(getattr(importlib.import_module(f"perfkit.face.widgets.{page.stem}"), ast.unparse(node)))
    code = "\n".join("".join(cell["source"]) for cell in json.loads(page.read_text())["cells"] if cell["cell_type"] == "code")
    first, _, rest = ast.unparse(node).partition(".")
    for imported in ast.walk(ast.parse(code)):
        for alias in imported.names if isinstance(imported, ast.ImportFrom) else ():
            if (alias.asname or alias.name) == first:
                if rest:
                    return _option_words(getattr(importlib.import_module(f"{imported.module}.{alias.name}"), rest))
                return _option_words(getattr(importlib.import_module(str(imported.module)), alias.name))
    return []


def _option_words(options: Iterable[object]) -> list[str]:
    return [str(each[0] if isinstance(each, tuple) else each) for each in options]


def _constant(node: ast.AST | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _rules() -> Iterator[tuple[str, str, str]]:
    for rule in discover.constants("perfkit.explain.diagnose.rules", "RULE"):
        yield "rules", rule.title, rule.name


def _forms() -> Iterator[tuple[str, str, str]]:
    """What is said with figures or names in it: the forms, and the clauses that are put into them."""
    for path in sorted((ROOT / "perfkit").rglob("*.py")):
        if not re.search(r"import [^\n]*\bsay\b", source := path.read_text()):
            continue
        tree = ast.parse(source)
        pieces = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if id(node) not in pieces and re.search(r"\{[a-z]\w*\}", text := _constant(node)):
                yield "forms", text, path.name
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "say":
                said = [*node.args, *(word.value for word in node.keywords)]
                yield from (("forms", _constant(each), path.name) for value in said for each in _elements(value))


def _findings() -> Iterator[tuple[str, str, str]]:
    """What rules say with figures in it, with places for these."""
    folder = ROOT / "perfkit" / "explain" / "diagnose"
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                said = [word.value for word in node.keywords if (name, word.arg) in SAID]
                said += node.args[:1] if name in ("NotMeasuredError", "told") else []
                said += [each for word in node.keywords if (name, word.arg) in ADVISED for each in _elements(word.value)]
                for text in (text for value in said for text in texts_of(value, tree)):
                    yield "sentences", text, path.name


def _sentences() -> Iterator[tuple[str, str, str]]:
    """What rules say in constants, and in words of their own."""
    yield from (("sentences", text, "own_words.py") for text in _strings(OWN_WORDS))
    for rule in discover.constants("perfkit.explain.diagnose.rules", "RULE"):
        yield "sentences", rule.how_to_collect, rule.name
        for name, value in vars(importlib.import_module(rule.check.__module__)).items():
            if name.isupper():
                for text in _strings(value):
                    yield "sentences", text, f"{rule.name} {name}"


ADVISED = (("Finding", "actions"), ("finding", "actions"))
SAID = (("NotMeasuredError", "how_to_collect"), ("Finding", "title"), ("finding", "title"), ("Table", "title"), ("Figure", "title"))


def _elements(node: ast.expr) -> list[ast.expr]:
    """The single sentences of a tuple, or of the two that a condition chooses from."""
    if isinstance(node, ast.IfExp):
        return [*_elements(node.body), *_elements(node.orelse)]
    return [each for part in node.elts for each in _elements(part)] if isinstance(node, ast.Tuple) else [node]


def _strings(value: object) -> Iterator[str]:
    """The sentences in a constant of a rule, its actions for example."""
    if isinstance(value, str) and " " in value:
        yield value
    elif isinstance(value, tuple | list):
        for entry in value:
            yield from _strings(entry)
    elif isinstance(value, dict):
        yield from _strings(list(value.values()))


def texts_of(node: ast.expr, tree: ast.AST, depth: int = 0) -> list[str]:
    """Every text that an expression may be, with places for what is computed; none that is nothing but a place."""
    found = [""]
    for part in _parts(node, tree, depth):
        found = [text + more for text in found for more in part]
    numbered = [_numbered(text) for text in found]
    return [text for text in numbered if re.search(r"[A-Za-z]{2}", re.sub(r"\{\d\}", "", text))]


def _parts(node: ast.expr, tree: ast.AST, depth: int) -> list[list[str]]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [[node.value]]
    if isinstance(node, ast.JoinedStr):
        return [part for value in node.values for part in _parts(value, tree, depth)]
    if isinstance(node, ast.IfExp):
        return [
            [
                text
                for branch in (node.body, node.orelse)
                for text in ["".join(p) for p in itertools.product(*_parts(branch, tree, depth))]
            ]
        ]
    if isinstance(node, ast.FormattedValue) and (isinstance(node.value, ast.IfExp) or _is_plural(node.value)):
        return _parts(node.value, tree, depth)
    if _is_plural(node):
        return [["", node.left.value]]  # type: ignore[attr-defined]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_parts(node.left, tree, depth), *_parts(node.right, tree, depth)]
    if isinstance(node, ast.Name) and node.id == "title" and not depth:
        assigned = [
            each.value for each in ast.walk(tree) if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "title"
        ]
        return [["".join(p) for value in assigned for p in itertools.product(*_parts(value, tree, depth + 1))] or [PLACE]]
    return [[PLACE]]


def _is_plural(node: ast.expr) -> bool:
    """An ending that stands for many only: 's' * (number > 1)."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(getattr(node.left, "value", None), str)


PLACE = "{}"


def _numbered(text: str) -> str:
    numbers = itertools.count()
    return re.sub(r"\{\}", lambda _: f"{{{next(numbers)}}}", text)


def _words() -> Iterator[tuple[str, str, str]]:
    """Clauses that stand in the places of sentences: those of the catalogue that the code still has."""
    paths = (ROOT / "perfkit" / "explain" / "diagnose").rglob("*.py")
    code = "\n".join(path.read_text() for path in [*paths, ROOT / "perfkit" / "explain" / "data_feed.py"])
    for section in ("costs", "words"):
        for text in catalogue("zh").get(section, {}):
            if all(piece in code for piece in re.split(r"\{\w+\}", text)):
                yield section, text, "perfkit/explain/diagnose"


def _said() -> Iterator[tuple[str, str, str]]:
    """What pages say, wherever it is made, with places for figures: those of the catalogue whose words some code still has."""
    known = _words_that_are_said()
    for text in catalogue("zh").get("said", {}):
        if known.issuperset(WORD.findall(text)):
            yield "said", text, "perfkit"


@cache
def _words_that_are_said() -> frozenset[str]:
    rooms = ("config", "explain", "face", "predict", "project", "record", "teach")
    files = [path.read_text() for room in rooms for path in (ROOT / "perfkit" / room).rglob("*.py")]
    files += [text for path in pages() for text in _code_of(path)]
    files += [path.read_text() for path in (ROOT / "data").rglob("*.toml")]
    return frozenset(WORD.findall("\n".join(files)))


def _problems() -> Iterator[tuple[str, str, str]]:
    """What perfkit and the parsers below it refuse: that of the catalogue whose words some code still has."""
    known = _words_that_are_raised()
    for text in catalogue("zh").get("problems", {}):
        if known.issuperset(WORD.findall(text)):
            yield "problems", text, "perfkit"


@cache
def _words_that_are_raised() -> frozenset[str]:
    folders = [ROOT / "perfkit", *(Path(str(package.__file__)).parent for package in (json, tomllib, yaml))]
    return frozenset(WORD.findall("\n".join(path.read_text() for folder in folders for path in folder.rglob("*.py"))))


def _code_of(path: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def _columns() -> Iterator[tuple[str, str, str]]:
    """Heads of columns: those of the catalogue that the code of a page still has, as a key with its unit or in words."""
    labels = _labels()
    for text in catalogue("zh").get("columns", {}):
        if text in labels:
            yield "columns", text, "perfkit/face"


@cache
def _labels() -> frozenset[str]:
    rooms = (FACE / "cli", FACE / "widgets", *(ROOT / "perfkit" / room for room in ("explain", "predict", "project", "teach")))
    code = "\n".join(path.read_text() for room in rooms for path in room.rglob("*.py"))
    keys = set(re.findall(r"[\"']([A-Za-z][\w ]*)[\"']|\b([a-z_]+)=", code))
    return frozenset(column_label(key) for pair in keys for key in pair if key)


def _class() -> Iterator[tuple[str, str, str]]:
    """What an exercise asks and says; a formula is the same in all languages."""
    for exercise in exercises().values():
        for text in (exercise.title, exercise.text, exercise.idea, exercise.group, *exercise.wrong.values()):
            yield "class", text, exercise.name
    for text in (card.LETTERS, *_mark.SAID.values()):
        yield "class", text, "class"
    for text in re.findall(r"""\bt\("([^"]*)"\)""", (ROOT / "perfkit" / "teach" / "card.py").read_text()):
        yield "class", text, "card"


def _header_texts() -> Iterator[tuple[str, str, str]]:
    for _, label, work, _ in header_view.CYCLE:
        yield "cycle", label, "header"
        yield "cycle", work, "header"


def _scripts() -> Iterator[tuple[str, str, str]]:
    for path in (ROOT / "js" / "src").glob("*.js"):
        for text in re.findall(r'\bt\("((?:[^"\\]|\\.)*)"', path.read_text()):
            yield "browser", text.replace('\\"', '"'), path.name


def _templates() -> Iterator[tuple[str, str, str]]:
    for path in (ROOT / "perfkit" / "face" / "app" / "templates").glob("*.j2"):
        for text in re.findall(r"\bt\('((?:[^'\\]|\\.)*)'\)", path.read_text()):
            yield "frame", text.replace("\\'", "'"), path.name
    for why, text in ENDED.items():
        yield "frame", text, f"ended: {why}"
    for module in (
        "face/widgets/status.py",
        "face/widgets/header_view.py",
        "face/widgets/control.py",
        "face/widgets/navigation.py",
        "face/widgets/timelines/finding.py",
        "face/widgets/class_entries.py",
        "face/widgets/timelines/view.py",
    ):
        for text in re.findall(r"""\bt\(["']([^"']*)["']\)""", (ROOT / "perfkit" / module).read_text()):
            yield "states", text, module


if __name__ == "__main__":
    for text, place in untranslated().items():
        print(f"{place}: {text}")
