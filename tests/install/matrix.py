"""Install matrix: perfkit from its wheel in fresh environments, away from the checkout, in folders named with spaces and umlauts.

example: python -m tests.install.matrix --wheel dist/perfkit-0.2.0-py3-none-any.whl

A row is a Python and a way of choosing versions: "locked" (requirements.lock), "newest", "lowest" (the lower bounds of
pyproject.toml, needs uv) and "offline" (`--wheelhouse`, without any index). In each a sample project is made, a recording is read
and the app opens pages, as an ordinary user where this is started by root; with the newest and the lowest versions every name that
perfkit's adapter needs of Jupyter and Voila is looked for (`tests/face/app/test_interfaces.py`). Prints a line a row; fails if a
row fails. What cannot be tried here (a Python, uv or micromamba that is not there) is said and is no failure. environment.yml is
solved where micromamba, mamba or conda is.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("3.11", "3.12", "3.13")
NOBODY = 65534
FOLDER = "Über alle Maßen viele Wörter"


@dataclass(frozen=True)
class Row:
    """One environment. `versions` is "locked", "newest", "lowest" or "offline"."""

    python: Path
    versions: str
    wheel: Path
    wheelhouse: Path | None = None

    def requirements(self) -> list[str]:
        """Arguments of pip that choose the versions."""
        if self.versions == "locked":
            return [str(self.wheel), "-c", str(ROOT / "requirements.lock")]
        if self.versions == "lowest":
            return [str(self.wheel), "--resolution", "lowest-direct"]
        if self.versions == "offline":
            return [str(self.wheel), "--no-index", "--find-links", str(self.wheelhouse)]
        return [str(self.wheel)]


def pythons(wanted: tuple[str, ...] = PYTHONS) -> Iterator[tuple[str, Path | None]]:
    """Each wanted version with an interpreter that is it, on PATH or of pyenv; root takes one that an ordinary user can run."""
    for version in wanted:
        of_pyenv = (Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python")
        on_path = [Path(folder) / f"python{version}" for folder in os.environ.get("PATH", "").split(os.pathsep)]
        found = [path for path in (*on_path, *of_pyenv, Path(sys.executable)) if path.is_file() and _version(path) == version]
        others = [path for path in found if os.geteuid() == 0 and _reachable(path)]
        yield version, next(iter([*others, *found]), None)


def _version(python: Path) -> str:
    code = "import sys; print(*sys.version_info[:2], sep='.')"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout.strip()


def tried(row: Row, folder: Path) -> str:
    """Install and use one row in `folder`; empty if all went well, else what did not."""
    uv = shutil.which("uv")
    if row.versions == "lowest" and uv is None:
        return "not tried: needs uv"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PERFKIT_", "PYTHON", "VIRTUAL"))}
    if row.versions == "offline":
        environment = {name: value for name, value in environment.items() if not name.startswith(("PIP_", "UV_"))}
    own = folder / "venv" / "bin" / "python"
    install = [uv, "pip", "install", "-q", "--python", str(own)] if uv else [str(own), "-m", "pip", "install", "-q"]
    steps: list[list[str | Path]] = [[row.python, "-m", "venv", "--copies", folder / "venv"], [*install, *row.requirements()]]
    for step in steps:
        done = subprocess.run(list(map(str, step)), capture_output=True, text=True, check=False, env=environment, cwd=folder)
        if done.returncode:
            return f"{step[1:4]} failed:\n{done.stderr[-1500:]}"
    if problem := _used(own, folder, environment):
        return problem
    return _interfaces([*install, "pytest>=8.3"], own, folder, environment) if row.versions in ("newest", "lowest") else ""


def _interfaces(install: list[str], python: Path, folder: Path, environment: dict[str, str]) -> str:
    """What the app takes from Jupyter and Voila, in the versions that are installed here."""
    tests = Path(shutil.copyfile(ROOT / "tests" / "face" / "app" / "test_interfaces.py", folder / "test_interfaces.py"))
    here = ["-q", "-p", "no:cacheprovider", "-k", "not imports", tests.name]  # what imports what is read in the checkout
    for step in (install, [str(python), "-m", "pytest", *here]):
        done = subprocess.run(step, capture_output=True, text=True, check=False, env=environment, cwd=folder)
        if done.returncode:
            return f"interfaces: {(done.stdout + done.stderr)[-2500:]}"
    print(f"    {done.stdout.strip().splitlines()[-1]}", flush=True)
    return ""


def _used(python: Path, folder: Path, environment: dict[str, str]) -> str:
    home = folder / "home"
    home.mkdir()
    shutil.copyfile(Path(__file__).with_name("use.py"), home / "use.py")  # no checkout is beside it there
    user: dict[str, int] = {}
    if os.geteuid() == 0 and _reachable(python):
        os.chown(home, NOBODY, NOBODY)
        user = {"user": NOBODY, "group": NOBODY}
    print(f"    used by {'an ordinary user' if user else 'this user'}", flush=True)
    done = subprocess.run(
        [str(python), str(home / "use.py"), str(folder / "venv")],
        capture_output=True,
        text=True,
        check=False,
        env=environment | {"HOME": str(home), "PYTHONSAFEPATH": "1"},
        cwd=home,
        timeout=600,
        extra_groups=[] if user else None,
        **user,
    )
    return f"used: {(done.stdout + done.stderr)[-2500:]}" if done.returncode else ""


def _reachable(python: Path) -> bool:
    """Whether an ordinary user can run this interpreter: root's own may lie where nobody else looks."""
    try:
        return subprocess.run([str(python), "-c", "import ssl"], check=False, user=NOBODY, group=NOBODY, cwd="/").returncode == 0
    except OSError:
        return False


def solved(environment: Path) -> str:
    """Whether conda's channels have what environment.yml names; empty if they have, else why not."""
    tool = next(filter(None, map(shutil.which, ("micromamba", "mamba", "conda"))), None)
    if tool is None:
        return "not tried: no micromamba, mamba or conda"
    command = [tool, "create", "--yes", "--dry-run", "--name", "perfkit-tried", "--file", str(environment)]
    if not tool.endswith("micromamba"):
        command.insert(1, "env")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    return f"failed: {(done.stdout + done.stderr)[-1500:]}" if done.returncode else ""


def main() -> int:
    """Try all rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--wheelhouse", type=Path, help="folder of `make wheelhouse`, for the row without an index")
    parser.add_argument("--versions", nargs="*", default=["locked", "newest", "lowest", "offline"])
    parser.add_argument("--python", nargs="*", default=list(PYTHONS))
    arguments = parser.parse_args()
    problem = solved(ROOT / "environment.yml")
    failed = int(bool(problem) and not problem.startswith("not tried"))
    print(f"environment.yml: {problem or 'solved'}", flush=True)
    for version, python in pythons(tuple(arguments.python)):
        if python is None:
            print(f"Python {version}: not tried, not on this machine")
            continue
        for versions in arguments.versions:
            if versions == "offline" and (
                arguments.wheelhouse is None or f"{sys.version_info[0]}.{sys.version_info[1]}" != version
            ):
                continue  # a wheelhouse is for the Python that made it
            chosen = Path(sys.executable) if versions == "offline" else python
            row = Row(chosen, versions, arguments.wheel.resolve(), arguments.wheelhouse and arguments.wheelhouse.resolve())
            with tempfile.TemporaryDirectory() as temporary:
                Path(temporary).chmod(0o755)
                folder = Path(temporary) / FOLDER
                folder.mkdir()
                problem = tried(row, folder)
            failed += bool(problem) and not problem.startswith("not tried")
            print(f"Python {version}, {versions}: {problem or 'works'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
