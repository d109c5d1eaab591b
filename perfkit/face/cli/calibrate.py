"""Calibrate predictions with your own cluster: collectives (nccl-tests, hccl_test), products and measured steps.

example: perfkit calibrate all_reduce.log --device A100-80GB-SXM --out mine.toml
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from perfkit.core.errors import InputError
from perfkit.face.cli._command import Command
from perfkit.face.cli._devices import add_device, chosen_device
from perfkit.face.cli._document import print_document


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="+", help="what the tests printed, or tables; - is standard input")
    add_device(parser, "the device on which they were measured")
    parser.add_argument("--calibration", default="default", help="what holds where nothing was measured (default: default)")
    parser.add_argument("--operation", default="", help="of hccl_test: all_reduce, all_gather, reduce_scatter or all_to_all")
    parser.add_argument("--ranks", type=int, default=0, help="ranks of the test, where its output does not name them")
    parser.add_argument("--nodes", type=int, default=0, help="nodes of the test, where its output does not name them")
    parser.add_argument("--out", required=True, help="the calibration to write, for --calibration of estimate and plan")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _run(arguments: argparse.Namespace) -> int:
    from perfkit.face.cli._measured import print_changes
    from perfkit.face.cli._own_runs import texts_of
    from perfkit.predict.calibration.file import calibration
    from perfkit.predict.calibration.own import calibrate_with

    device = chosen_device(arguments.device)
    if device is None:
        raise InputError("calibrate", ["on which device were they measured? Name it with --device"])
    found, changes = calibrate_with(
        texts_of(arguments.files),
        device,
        base=calibration(arguments.calibration),
        operation=arguments.operation,
        num_ranks=arguments.ranks,
        num_nodes=arguments.nodes,
    )
    target = Path(arguments.out)
    if target.suffix != ".toml" or any(target.resolve() == Path(name).resolve() for name in arguments.files):
        raise InputError(arguments.out, ["--out must be a new file that ends in .toml"])
    try:
        found.write(target)
    except OSError as error:
        raise InputError(arguments.out, [f"the file cannot be written: {error.strerror}"]) from error
    if arguments.json:
        print_document({"device": device.name, "written": str(target), "changes": [asdict(change) for change in changes]})
        return 0
    print_changes(changes, target)
    return 0


COMMAND = Command(name="calibrate", add=_add, run=_run)
