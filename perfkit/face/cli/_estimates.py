"""The command `estimate`: configurations or a table in, predictions out as text, JSON or CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import pandas as pd

from perfkit.config.dialects import read_config
from perfkit.config.dialects.table import with_options
from perfkit.config.dialects.table_file import read_frame
from perfkit.core import quantity
from perfkit.core.errors import InputError
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.core.spec.memory_limit import MemoryLimit
from perfkit.core.spreadsheet import safe_frame
from perfkit.core.units import GIB, format_bytes
from perfkit.face.cli._devices import Devices
from perfkit.face.cli._document import print_document
from perfkit.face.cli._screen import say, write_text
from perfkit.face.cli._tables import print_rows, print_table
from perfkit.predict.calibration.file import Calibration
from perfkit.predict.estimate import Estimate, estimate, estimate_table
from perfkit.predict.limits import asked_bytes, limit_text, with_limit_gib

FIGURES = ("tokens_per_s_per_device", "mfu", "hfu", "peak_memory_bytes")


def device_of(inputs: Sequence[str], devices: Devices) -> HardwareSpec | None:
    """The device that was chosen, or that of the first configuration; a table's rows may have many."""
    if devices.chosen or inputs[0].lower().endswith(".csv"):
        return devices.chosen
    return read_config(inputs[0]).hardware


def estimate_configs(
    paths: Sequence[str],
    devices: Devices,
    calibration: str | Calibration | None,
    out: TextIO,
    *,
    limit_gib: float | None = None,
    as_json: bool = False,
) -> None:
    """Predict every configuration and print it; the chosen one of `devices` where a configuration names none.

    `limit_gib` replaces the limits of the configurations. Raises InputError that lists the problems of all configurations.
    """
    problems: list[str] = []
    done: list[tuple[str, Estimate]] = []
    for path in paths:
        try:
            plan = read_config(path)
            plan = replace(plan, hardware=plan.hardware or devices.chosen)
            done.append((path, estimate(with_limit_gib(plan, limit_gib), calibration=calibration)))
        except InputError as error:
            problems += [f"{path}: {problem}" for problem in error.problems]
    if problems:
        raise InputError("estimate", problems)
    for path, predicted in done:
        if as_json:
            print_document(predicted.to_dict(), out)
        else:
            print_estimate(path, predicted, out)


def estimate_file(
    path: str,
    target: str | None,
    out: TextIO,
    *,
    devices: Devices,
    calibration: str | Calibration | None = None,
    limit_gib: float | None = None,
    as_json: bool = False,
) -> None:
    """Predict every row of the table at `path`; writes CSV, or a JSON document a row, to `target`, or to `out` without one.

    `devices` and `limit_gib` are taken as for configurations. Never writes over its input.
    """
    if target and Path(target).resolve() == Path(path).resolve():
        raise InputError(path, ["--out names the input itself; choose another file"])
    source = "" if limit_gib is None else limit_text(limit_gib)
    name = devices.chosen.name if devices.chosen else ""
    limit_bytes = 0 if limit_gib is None else asked_bytes(limit_gib * GIB, source)
    frame = with_options(read_frame(path), device=name, limit_bytes=limit_bytes)
    predicted = estimate_table(frame, devices.own, calibration=calibration, limit_source=source)
    if not target:
        _save(predicted, out, as_json)
        return
    try:
        _save(predicted, target, as_json)
    except OSError as error:
        raise InputError(target, [f"the file cannot be written: {error.strerror}"]) from error
    empty = int(predicted["step_time_s"].isna().sum())
    say(out, f"{len(predicted)} rows predicted to {target}" + (f", {empty} of them impossible (see note)" if empty else ""))


def _save(predicted: pd.DataFrame, target: str | TextIO, as_json: bool) -> None:
    file = target if isinstance(target, str) else None
    if as_json:
        text = predicted.to_json(file, orient="records", lines=True, double_precision=15, force_ascii=False)
    else:
        text = safe_frame(predicted).to_csv(file, index=False)
    if not isinstance(target, str):
        write_text(target, text or "")


def print_estimate(path: str, predicted: Estimate, out: TextIO) -> None:
    """One estimate with its figures, its limit and its parts."""
    document = predicted.to_dict()
    step, low, high = (quantity.text(name, document[name]) for name in ("step_time_s", "step_time_low_s", "step_time_high_s"))
    say(out, f"{path}: {step} a step (80 % between {low} and {high})")
    say(out)
    known = [name for name in FIGURES if document[name] is not None]
    print_table(["figure", "value"], [[quantity.label(name), quantity.text(name, document[name])] for name in known], out)
    if predicted.memory_limit is not None:
        say(out, f"\n{_limit_text(predicted, predicted.memory_limit)}")
    for name, breakdown in (("duration_s", predicted.breakdown), ("peak_bytes", predicted.memory)):
        if breakdown is not None:
            say(out)
            parts = breakdown.parts.items()
            print_rows([{"part": part, name: amount, "share": amount / breakdown.total} for part, amount in parts], out)
    assumed = [one for one in predicted.assumed if one.value is not None]
    for title, lines in (
        ("warning", predicted.warnings),
        ("assumed", [f"{one.field} = {quantity.text(one.field, one.value)}: {one.why}" for one in assumed]),
        ("not counted", [f"{key}: {decides}" for key, decides in predicted.not_counted]),
    ):
        for number, line in enumerate(lines):
            say(out, f"{'' if number else chr(10)}{title}: {line}")


def _limit_text(predicted: Estimate, limit: MemoryLimit) -> str:
    """The limit that counts, who states it, and what lies outside of it."""
    outside = predicted.outside_pool_bytes
    rest = f"; {format_bytes(outside)} more lie outside of the pool" if outside else ""
    verdict = "fits" if predicted.fits else "does not fit"
    return f"memory: {verdict} into {format_bytes(limit.limit_bytes)} ({limit.source}){rest}"
