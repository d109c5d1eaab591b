"""The trial of mutants: every test is collected once, and each mutant is a fork of that process with one function replaced.

What lies outside of functions (constants, defaults) is made wrong before the tests are collected, in a process of its own. Tests
run in the order in which their files are near the module by its imports, until one fails or a trial has had its processor time,
which no busy machine shortens.
"""

from __future__ import annotations

import ast
import gc
import os
import resource
import time
from collections.abc import Callable, Iterable
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType

import numpy as np  # noqa: F401
import pandas as pd  # noqa: F401
import pytest
from hypothesis import Phase, settings

from benchmarks.mutation.mutants import Mutant

QUIET = ("-q", "-x", "-n", "0", "-p", "no:cacheprovider", "--no-header", "--tb=no", "-W", "ignore")
LAST_S = 600
"""Seconds on the clock after which a trial is given up as hanging, which counts as noticed."""


def trials(mutants: list[Mutant], tests: list[Path], cpu_s: int, most: int | None = None) -> Iterable[tuple[Mutant, bool]]:
    """Every mutant, and whether the tests pass with it: those of `most` files, the nearest to its module, or of all that use it."""
    by_module: dict[Path, list[Mutant]] = {}
    for mutant in mutants:
        by_module.setdefault(mutant.path, []).append(mutant)
    for module, some in by_module.items():
        files = nearest(module, tests)[:most]
        inside = [mutant for mutant in some if mutant.in_function]
        if inside:
            yield from zip(inside, _collected(inside, files, cpu_s), strict=True)
        for mutant in some:
            if not mutant.in_function:
                yield mutant, _apart(lambda mutant=mutant, files=files: _from_its_start(mutant, files, cpu_s), cpu_s) == 0  # type: ignore[misc]


def nearest(module: Path, tests: list[Path]) -> tuple[str, ...]:
    """The test files that import a module, directly or by others, the nearest first."""
    files = [path for root in tests for path in (sorted(root.rglob("test_*.py")) if root.is_dir() else [root])]
    users, order, seen = _users(), [module], {module}
    for path in order:
        new = sorted(users.get(path, set()) - seen)
        seen.update(new)
        order.extend(new)
    return tuple(str(path) for path in order if path in files)


@cache
def _users() -> dict[Path, set[Path]]:
    """By module of the package and of the tests, those that import it."""
    users: dict[Path, set[Path]] = {}
    tests = (path for path in Path("tests").rglob("*.py") if "data" not in path.parts)  # what a scan shall refuse is there
    for path in [*Path("perfkit").rglob("*.py"), *tests]:
        for used in _imports(path):
            users.setdefault(used, set()).add(path)
    return users


def _imports(path: Path) -> set[Path]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    places = [Path(*name.split(".")) for name in names]
    return {found for place in places for found in (place.with_suffix(".py"), place / "__init__.py") if found.exists()}


def _collected(mutants: list[Mutant], files: tuple[str, ...], cpu_s: int) -> list[bool]:
    """Whether the tests of some files, collected once, pass with each mutant of a function."""
    reader, writer = os.pipe()
    _apart(lambda: int(pytest.main([*QUIET, *files], plugins=[_Loop(mutants, cpu_s, writer)])))
    os.close(writer)
    with os.fdopen(reader, "rb") as told:
        found = told.read()
    if len(found) != len(mutants):
        raise SystemExit(f"the tests of {', '.join(files)} do not run")
    return [byte == 0 for byte in found]


class _Quick:
    """A pytest plug-in under which a property that fails is not made smaller before it is told."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutation", settings.get_profile("perfkit"), phases=phases, database=None)
        settings.load_profile("mutation")


class _Loop(_Quick):
    """Instead of running the tests once, it forks for each mutant and runs them there."""

    def __init__(self, mutants: list[Mutant], cpu_s: int, writer: int) -> None:
        self.mutants, self.cpu_s, self.writer = mutants, cpu_s, writer

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for mutant in self.mutants:
            code = _apart(lambda mutant=mutant: _replaced(mutant) and _run(session, self.cpu_s), self.cpu_s)  # type: ignore[misc]
            os.write(self.writer, bytes([min(abs(code), 255)]))
        return True


def _run(session: pytest.Session, cpu_s: int) -> int:
    """1 if a test fails, 0 if none did before the time was over."""
    begin = time.process_time()
    for item, after in zip(session.items, [*session.items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        if session.testsfailed or time.process_time() - begin > cpu_s:
            break
    return int(session.testsfailed > 0)


def _from_its_start(mutant: Mutant, files: tuple[str, ...], cpu_s: int) -> int:
    """The tests where a module is another one from its import on."""
    path, tree = str(mutant.path.resolve()), ast.fix_missing_locations(mutant.tree)
    original = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
        return compile(tree, path, "exec") if loader.path == path else original(loader, name)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign,assignment]
    return int(pytest.main([*QUIET, *files], plugins=[_Limited(cpu_s)]))


class _Limited(_Quick):
    """Runs the tests for a while only."""

    def __init__(self, cpu_s: int) -> None:
        self.cpu_s = cpu_s

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("errors during collection")
        _run(session, self.cpu_s)
        return True


def _replaced(mutant: Mutant) -> bool:
    """Give the functions of a module the code of the mutant's, wherever they are referred to."""
    path = str(mutant.path.resolve())
    codes = {code.co_qualname: code for code in _codes(compile(ast.fix_missing_locations(mutant.tree), path, "exec"))}
    for found in gc.get_objects():
        if isinstance(found, FunctionType) and found.__code__.co_filename == path and found.__code__.co_qualname in codes:
            found.__code__ = codes[found.__code__.co_qualname]
    return True


def _codes(code: CodeType) -> Iterable[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _codes(inner)


def _apart(action: Callable[[], int], cpu_s: int | None = None) -> int:
    """An action in a process of its own, in silence: what it returns, or another number than 0 where it fails or does not end."""
    child = os.fork()
    if not child:
        code = 1
        try:
            if cpu_s:
                resource.setrlimit(resource.RLIMIT_CPU, (2 * cpu_s + 30, 2 * cpu_s + 40))
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
            code = action()
        finally:
            os._exit(code)
    begin = time.monotonic()
    while True:
        done, status = os.waitpid(child, os.WNOHANG if cpu_s else 0)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() - begin > LAST_S:
            os.kill(child, 9)
        time.sleep(0.02)
