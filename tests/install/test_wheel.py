"""The wheel holds all that perfkit needs: built from the checkout, used where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder of installed packages with a space and an umlaut in its path."""
    folder = tmp_path_factory.mktemp("wheel") / "Zielordner für alles"
    [wheel] = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("dist")), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_the_wheel_holds_the_package_the_samples_and_the_pages(installed):
    assert {path.name for path in installed.iterdir()} == {"perfkit", next(installed.glob("perfkit-*.dist-info")).name}
    tracked = subprocess.run(
        ["git", "ls-files", "perfkit", "data", "notebooks"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    places = {"data": "perfkit/_data", "notebooks": "perfkit/_notebooks", "perfkit": "perfkit"}
    expected = {places[name.split("/")[0]] + name[name.index("/") :] for name in tracked.stdout.splitlines()}
    there = {path.relative_to(installed).as_posix() for path in (installed / "perfkit").rglob("*") if path.is_file()}
    assert expected - there == set()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="the app is ended as Ctrl-C does")
def test_what_the_wheel_holds_reads_a_recording_and_shows_pages(installed, tmp_path):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PERFKIT_")}
    script = Path(__file__).with_name("use.py").read_text()
    environment = kept | {"PYTHONPATH": str(installed), "PERFKIT_CACHE": str(tmp_path / "cache"), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(installed)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
