"""Measurements of one's own in files, and the calibration that they make of the one that was named."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from perfkit.core.errors import InputError
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.predict.calibration.file import Calibration, calibration
from perfkit.predict.calibration.own import calibrate_with

STANDARD_INPUT = "-"


def texts_of(files: Sequence[str]) -> dict[str, str]:
    """The text of every file by its name; - is standard input, a folder stands for the tables in it."""
    paths = [path for name in files for path in _tables(name)]
    return {path: _text(path) for path in paths}


def own_calibration(files: Sequence[str], device: HardwareSpec | None, base: str | None) -> str | Calibration | None:
    """The calibration of that name, with what the files measured on the device; without files the name."""
    if not files:
        return base
    if device is None:
        raise InputError("--calibrate-with", ["on which device were they measured? Name it with --device"])
    return calibrate_with(texts_of(files), device, base=calibration(base or "default"))[0]


def _tables(name: str) -> list[str]:
    if name == STANDARD_INPUT or not Path(name).is_dir():
        return [name]
    found = sorted(map(str, Path(name).glob("*.csv")))
    if not found:
        raise InputError(name, ["the folder has no table (*.csv)"])
    return found


def _text(name: str) -> str:
    if name == STANDARD_INPUT:
        return sys.stdin.read()
    try:
        return Path(name).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(name, [f"cannot be read as text: {error}"]) from error
