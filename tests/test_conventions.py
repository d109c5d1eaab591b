"""The conventions that no tool checks: plug-ins, docstrings, layout, what the repository may hold."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from perfkit.core import discover

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "perfkit"
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))
PLUG_INS = [
    ("perfkit.record.formats", "FORMAT"),
    ("perfkit.explain.diagnose.rules", "RULE"),
    ("perfkit.config.lint.checks", "CHECK"),
    ("perfkit.config.dialects", "DIALECT"),
    ("perfkit.face.cli", "COMMAND"),
    ("perfkit.explain.fragments.kinds", "FRAGMENT"),
]
TESTED_ALONE = [("perfkit.record.formats", "FORMAT"), ("perfkit.explain.diagnose.rules", "RULE")]


@pytest.mark.parametrize(("package", "constant"), PLUG_INS)
def test_every_plug_in_has_its_one_constant_named_like_its_module(package: str, constant: str):
    found = discover.modules(package, constant)
    assert found
    for name, plug_in in zip(found, discover.constants(package, constant), strict=True):
        assert plug_in.name.replace("-", "_") == name.rstrip("_").removesuffix("_toml")


@pytest.mark.parametrize(("package", "constant"), TESTED_ALONE)
def test_every_plug_in_has_a_test_file(package: str, constant: str):
    folder = ROOT / "tests" / Path(*package.split(".")[1:])
    assert [name for name in discover.modules(package, constant) if not (folder / f"test_{name}.py").exists()] == []


@cache
def _imported(path: Path) -> set[str]:
    """Every dotted name that a module imports: `from a import b` counts as a and as a.b."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@pytest.mark.parametrize(("package", "constant"), PLUG_INS)
def test_no_plug_in_imports_another_one(package: str, constant: str):
    modules = set(discover.modules(package, constant).values())
    for module in modules:
        path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
        assert not (_imported(path) & modules) - {module}, path


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_what_has_an_underscore_is_used_by_its_own_folder_alone(path: Path):
    own = path.relative_to(ROOT).parent.parts
    for name in _imported(path):
        parts = tuple(name.split("."))
        if parts[0] != "perfkit":
            continue
        for place, part in enumerate(parts):
            owner = ROOT.joinpath(*parts[:place])
            if part.startswith("_") and ((owner / part).is_dir() or (owner / f"{part}.py").exists()):
                assert (*own[:place], *own[place : place + 1]) in (parts[:place], parts[: place + 1]), name


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_module_starts_with_a_sentence_and_stays_short(path: Path):
    text = path.read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(text))
    assert docstring
    assert docstring.splitlines()[0].strip()
    assert len(text.splitlines()) <= 400


def test_the_table_of_rooms_in_contributing_is_the_contract():
    """Lower rooms come first in the table, last in the contract; each line ends with folders and modules that the room has."""
    contract = next(
        one
        for one in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
        if one["type"] == "layers"
    )
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Layers")[1].split("```")[1].strip().splitlines()
    rooms = [line.split()[0] for line in table]
    levels = [set(level.split(" | ")) for level in contract["layers"][::-1]]
    assert [room for level in levels for room in sorted(level, key=rooms.index)] == rooms
    assert set(rooms) == {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert contract["exhaustive"]


def test_no_module_is_a_drawer_for_everything():
    assert not [path for path in MODULES if path.stem.strip("_") in {"utils", "helpers", "common", "misc", "base", "manager"}]


def _tracked_text() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    names = {".py", ".md", ".toml", ".yml", ".yaml", ".ipynb", ".sh", ".js", ".html", ".j2", ".css", ".txt", ".lock", ""}
    return [
        ROOT / name
        for name in listed
        if name and Path(name).suffix in names and "tests/data" not in name and not name.startswith("data/")
    ]


def test_the_repository_names_no_machine_and_no_registry():
    forbidden = re.compile(r"/root/|/home/[a-z]|/work/|\.\./shared|pypi\.org|registry\.npmjs|files\.pythonhosted")
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in _tracked_text()
        if path.name != "test_conventions.py"
        and path.is_file()
        and (match := forbidden.search(path.read_text(encoding="utf-8", errors="replace")))
    ]
    assert found == []


def test_the_repository_stays_under_40_mb():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    assert sum((ROOT / name).stat().st_size for name in listed if name and (ROOT / name).is_file()) < 40e6


def test_every_data_folder_says_where_it_comes_from():
    folders = [path for root in (ROOT / "data", ROOT / "tests" / "data") for path in root.iterdir() if path.is_dir()]
    assert folders
    unexplained = [
        folder for folder in folders if not [*folder.rglob("PROVENANCE.md"), *folder.rglob("README.md"), *folder.rglob("LICENSE*")]
    ]
    assert unexplained == []


def test_importing_perfkit_loads_no_engine():
    engines = ("pandas", "numpy", "polars", "altair", "ipywidgets", "msgspec")
    code = f"import perfkit, sys; print([name for name in {engines} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_a_documented_function_or_class():
    import perfkit

    for name in dir(perfkit):
        if name != "__version__":
            assert getattr(perfkit, name).__doc__, name


def test_environment_yml_agrees_with_pyproject_toml():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    command = re.search(r"^ENVIRONMENT := (.*)$", makefile, re.MULTILINE)
    assert command
    program, *arguments = command[1].replace("'-e .'", "-e#.").split()
    done = subprocess.run(
        [str(Path(sys.executable).parent / program), *(argument.replace("-e#.", "-e .") for argument in arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == (ROOT / "environment.yml").read_text(encoding="utf-8").strip()


def test_the_lock_file_pins_every_dependency_and_records_no_address():
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in text.splitlines() if "==" in line}
    declared = re.findall(r'^  "([A-Za-z0-9_.-]+)>=', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert {name.lower().replace("_", "-") for name in declared} <= pinned
    assert "://" not in text


def _own_private_names(tree: ast.AST) -> set[str]:
    """Names with an underscore that a module defines itself, on its classes or their instances."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


ADAPTER = PACKAGE / "face" / "app" / "adapter.py"
OF_NOTEBOOKS = {
    "anywidget",
    "ipykernel",
    "ipywidgets",
    "jupyter_client",
    "jupyter_server",
    "jupyterlab",
    "tornado",
    "traitlets",
    "voila",
}


def test_only_the_adapter_uses_what_voila_jupyter_and_their_widgets_keep_to_themselves():
    """Voila has no public interface in Python; of the others all names but those with an underscore are."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}
    of_namedtuples = {"_asdict", "_replace", "_fields"}
    own = of_namedtuples.union(
        *(_own_private_names(tree) for path, tree in trees.items() if path.is_relative_to(ADAPTER.parents[1]))
    )
    found = []
    for path, tree in trees.items():
        imported = {name for name in _imported(path) if name.partition(".")[0] in OF_NOTEBOOKS}
        private = {name for name in imported if name.startswith("voila") or re.search(r"\._(?!_)", name)}
        if path.is_relative_to(PACKAGE / "face"):
            used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and re.match("_(?!_)", node.attr)}
            said = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and "voila_" in str(node.value)}
            private |= used - own | said
        found += [f"{path.relative_to(PACKAGE)}: {name}" for name in sorted(private) if path != ADAPTER]
        assert path != ADAPTER or private >= {"voila.app", "_handle_kernel_info_reply", "_headers_written"}
    assert found == []
