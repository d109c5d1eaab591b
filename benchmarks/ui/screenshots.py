"""One picture of every page in light and dark, to be looked at: `python -m benchmarks.ui.screenshots FOLDER`."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from perfkit.core.resources import data_folder
from tests.browser.app_server import start, stop, wait_ready
from tests.browser.conftest import ARGUMENTS, find_chromium
from tests.notebook_format import pages

SCHEMES = ("light", "dark")
SIZE = {"width": 1280, "height": 720}
README_SIZE = {"width": 1280, "height": 960}
README_PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "step_breakdown.png"
SIXTEEN_RANKS = data_folder() / "traces" / "cluster_16card"


def main(folder: Path) -> None:
    """Write NAME.png and NAME-dark.png for every page, and the picture of the README."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        project = Path(temporary) / "demo"
        subprocess.run([sys.executable, "-m", "perfkit", "demo", str(project)], check=True, capture_output=True)
        server = start(project, Path(temporary) / "server.log")
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
        try:
            for scheme in SCHEMES:
                page = browser.new_page(viewport=SIZE, color_scheme=scheme)
                for path in pages():
                    page.goto(f"{server.url}{path.stem}", timeout=120_000)
                    wait_ready(page, timeout_s=120)
                    suffix = "-dark" if scheme == "dark" else ""
                    page.screenshot(path=folder / f"{path.stem}{suffix}.png", full_page=True)
                    print(folder / f"{path.stem}{suffix}.png", flush=True)
                page.close(run_before_unload=True)
            page = browser.new_page(viewport=README_SIZE)
            page.goto(f"{server.url}11_step_breakdown#run={SIXTEEN_RANKS}", timeout=120_000)
            wait_ready(page, timeout_s=120)
            page.wait_for_function("document.body.innerText.includes('of 16 ranks')")
            page.wait_for_timeout(1_000)  # the drawing of the chart follows its title
            README_PICTURE.parent.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=README_PICTURE)
        finally:
            browser.close()
            stop(server)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("screenshots"))
    main(parser.parse_args().folder)
