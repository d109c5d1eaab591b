"""The command `estimate`: configurations or a table in, predictions out as text, JSON or CSV."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import pandas as pd

from perfkit.config.dialects.table import with_options
from perfkit.config.dialects.table_file import read_frame
from perfkit.core import quantity, texts
from perfkit.core.errors import InputError, Problems
from perfkit.core.spec.memory_limit import MemoryLimit
from perfkit.core.spec.plan import Plan
from perfkit.core.spreadsheet import safe_frame
from perfkit.core.texts import told
from perfkit.core.units import format_bytes
from perfkit.face.cli._devices import OPTION, Devices, read_devices
from perfkit.face.cli._document import print_document
from perfkit.face.cli._own_runs import own_calibration
from perfkit.face.cli._screen import say, write_text
from perfkit.face.cli._tables import print_rows, print_table
from perfkit.predict.calibration.file import Calibration
from perfkit.predict.estimate import Estimate, estimate, estimate_table
from perfkit.predict.limits import Assumed, option_limit

FIGURES = ("tokens_per_s_per_device", "mfu", "hfu", "peak_memory_bytes")


def estimate_configs(
    paths: Sequence[str],
    plans: Sequence[Plan],
    calibration: str | Calibration | None,
    out: TextIO,
    *,
    as_json: bool = False,
) -> None:
    """Predict every plan and print it by the name of its configuration. Raises InputError that lists the problems of all."""
    problems, done = Problems(), []
    for path, plan in zip(paths, plans, strict=True):
        with problems.of(path):
            done.append((path, estimate(plan, calibration=calibration)))
    problems.tell("estimate")
    for path, predicted in done:
        if as_json:
            print_document(predicted.to_dict(), out)
        else:
            print_estimate(path, predicted, out)


def estimate_file(path: str, arguments: argparse.Namespace, out: TextIO) -> None:
    """Predict every row of the table at `path`; writes CSV, or a JSON document a row, to `--out`, or to `out` without one.

    The options of the device and the limit are taken as for configurations. Never writes over its input.
    """
    target, limit_bytes, source, devices, frame = arguments.out, None, "", Devices({}, None), None
    problems = Problems()
    if target and Path(target).resolve() == Path(path).resolve():
        problems.append("--out names the input itself; choose another file")
    with problems.of(OPTION):
        devices = read_devices(arguments.device, arguments.assume_roofline)
    with problems.of():
        limit_bytes, source = option_limit(arguments.memory_limit_gib)
    with problems.of():
        frame = read_frame(path)
    problems.tell(path)
    name = devices.chosen.name if devices.chosen else ""
    calibration = own_calibration(arguments.calibrate_with, devices.chosen, arguments.calibration)
    frame = with_options(frame, device=name, limit_bytes=limit_bytes or 0)
    predicted = estimate_table(frame, devices.own, calibration=calibration, limit_source=source)
    if not target:
        _save(predicted, out, arguments.json)
        return
    try:
        _save(predicted, target, arguments.json)
    except OSError as error:
        raise InputError(target, [f"the file cannot be written: {error.strerror}"]) from error
    empty = int(predicted["step_time_s"].isna().sum())
    lead = texts.say("{num} rows predicted to {target}", num=str(len(predicted)), target=target)
    say(out, texts.say("{lead}, {empty} of them impossible (see note)", lead=lead, empty=str(empty)) if empty else lead)


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
    steps = {name: document[name] for name in ("step_time_s", "step_time_low_s", "step_time_high_s")}
    say(out, texts.say("{path}: {step_time_s} a step (80 % between {step_time_low_s} and {step_time_high_s})", path=path, **steps))
    say(out)
    known = [name for name in FIGURES if document[name] is not None]
    print_table(["figure", "value"], [[told(quantity.label(name)), quantity.text(name, document[name])] for name in known], out)
    if predicted.memory_limit is not None:
        say(out, "\n", _limit_text(predicted, predicted.memory_limit))
    for name, breakdown in (("duration_s", predicted.breakdown), ("peak_bytes", predicted.memory)):
        if breakdown is not None:
            say(out)
            parts = breakdown.parts.items()
            print_rows([{"part": part, name: amount, "share": amount / breakdown.total} for part, amount in parts], out)
    assumed = [one for one in predicted.assumed if one.value is not None]
    for lines in (
        [texts.say("warning: {warning}", warning=warning) for warning in predicted.warnings],
        [texts.say("assumed: {what}: {why}", what=_stated(one), why=told(one.why)) for one in assumed],
        [texts.say("not counted: {key}: {decides}", key=key, decides=decides) for key, decides in predicted.not_counted],
        [texts.say("note: {note}", note=told(note)) for note in predicted.notes],
    ):
        for number, line in enumerate(lines):
            say(out, "" if number else "\n", line)


def _stated(one: Assumed) -> str:
    return f"{one.field} = {quantity.text(one.field, one.value)}"


def _limit_text(predicted: Estimate, limit: MemoryLimit) -> texts.Said:
    """The limit that counts, who states it, and what lies outside of it."""
    form = "memory: fits into {size} ({source})" if predicted.fits else "memory: does not fit into {size} ({source})"
    verdict, outside = texts.say(form, size=format_bytes(limit.limit_bytes), source=limit.source), predicted.outside_pool_bytes
    rest = "{verdict}; {outside_bytes} more lie outside of the pool"
    return texts.say(rest, verdict=verdict, outside_bytes=outside) if outside else verdict
