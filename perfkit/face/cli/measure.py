"""Measure products and collectives on this machine in five minutes, and write them as tables and as a calibration.

example: perfkit measure --device A100-80GB-SXM --out mine.toml
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

from perfkit.core import texts
from perfkit.core.errors import InputError
from perfkit.core.texts import told
from perfkit.face.cli._command import Command
from perfkit.face.cli._devices import add_device, chosen_device
from perfkit.face.cli._document import print_document
from perfkit.face.cli._screen import say

KINDS = ("cuda", "npu", "mindspore", "cpu")


def _add(parser: argparse.ArgumentParser) -> None:
    add_device(parser, "the device of this machine")
    parser.add_argument("--on", default="", choices=KINDS, help="what to measure (default: the accelerator that is found)")
    parser.add_argument("--seconds", type=float, default=300.0, help="how long to measure at most (default: 300)")
    parser.add_argument("--calibration", default="default", help="what holds where nothing was measured (default: default)")
    parser.add_argument("--out", required=True, help="the calibration to write; the measured tables are written beside it")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _run(arguments: argparse.Namespace) -> int:
    from perfkit.face.cli._measured import print_changes
    from perfkit.predict.calibration import node
    from perfkit.predict.calibration.file import calibration
    from perfkit.predict.calibration.own import calibrate_with

    device, target = chosen_device(arguments.device), Path(arguments.out)
    problems = [] if device else ["which device does this machine have? Name it with --device"]
    if target.suffix != ".toml":
        problems.append(f"--out {target.name} must end in .toml")
    if problems or device is None:
        raise InputError("measure", problems)
    base = calibration(arguments.calibration)
    measured = node.measure_node(node.find_backend(arguments.on), device, seconds=arguments.seconds)
    written = {kind: target.with_suffix(f".{kind}.csv") for kind in measured.texts}
    try:
        for kind, text in measured.texts.items():
            written[kind].write_text(text, encoding="utf-8")
        # The tables stand before rates that the device cannot reach are refused.
        own, changes = calibrate_with({str(written[kind]): text for kind, text in measured.texts.items()}, device, base=base)
        own.write(target)
    except OSError as error:
        raise InputError(arguments.out, [f"the file cannot be written: {error.strerror}"]) from error
    if arguments.json:
        files = {kind: str(path) for kind, path in written.items()}
        written_as = {"device": device.name, "measured_with": measured.backend, "written": str(target), "tables": files}
        print_document(written_as | {"left_out": list(measured.left_out), "changes": [asdict(change) for change in changes]})
        return 0
    say(sys.stdout, texts.say("{device}, measured with {backend}", device=device.name, backend=measured.backend))
    print_changes(changes, target)
    for one in measured.left_out:
        say(sys.stdout, texts.say("not measured: {what}", what=told(one)))
    return 0


COMMAND = Command(name="measure", add=_add, run=_run)
