"""Where the bundled samples and notebooks are: beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_folder() -> Path:
    """The folder with models.toml, hardware.toml, reference tables and samples."""
    return _first_existing(_PACKAGE / "_data", _PACKAGE.parent / "data")


def notebooks_folder() -> Path:
    """The folder with the guided pages."""
    return _first_existing(_PACKAGE / "_notebooks", _PACKAGE.parent / "notebooks")


def _first_existing(*folders: Path) -> Path:
    for folder in folders:
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"perfkit is installed without its {folders[-1].name} folder; reinstall it")
