"""Predict step time, throughput, utilisation and memory of configurations, or of every row of a table.

example: perfkit estimate pretrain.yaml --device Ascend-910B2
         perfkit estimate pretrain.yaml --device devices.toml --device MyDevice
         perfkit estimate runs.csv --out predictions.csv
         perfkit estimate pretrain.yaml --calibrate-with measured.csv --device Ascend-910B2
         perfkit estimate pretrain.yaml --profile profile --profiled-plan two_layers.yaml --device Ascend-910B2
"""

from __future__ import annotations

import argparse
import sys

from perfkit.face.cli._command import Command
from perfkit.face.cli._devices import add_device, add_limit


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("inputs", metavar="CONFIG|TABLE.csv", nargs="+", help="configurations (- is standard input), or one table")
    add_device(parser, "the device, where a configuration or a row names none")
    parser.add_argument(
        "--assume-roofline", metavar="KEY=NUMBER", nargs="+", default=[], help="figures of a device that is not in the catalogue"
    )
    add_limit(parser)
    parser.add_argument("--calibration", help="a bundled calibration by name, or a TOML file")
    parser.add_argument(
        "--calibrate-with",
        metavar="FILE|FOLDER",
        nargs="+",
        default=[],
        help="measured runs of your own, which move and narrow it",
    )
    parser.add_argument("--profile", metavar="RECORDING", help="a recording of a scaled-down model that says how fast it is here")
    parser.add_argument("--profiled-plan", metavar="CONFIG", help="the configuration of that recording")
    parser.add_argument("--out", help="where to write the predictions of a table (default: standard output)")
    parser.add_argument("--json", action="store_true", help="one JSON document a configuration or row")


def _run(arguments: argparse.Namespace) -> int:
    from perfkit.face.cli._asked import asked_plans
    from perfkit.face.cli._estimates import estimate_configs, estimate_file
    from perfkit.face.cli._own_runs import own_calibration

    paths, own = arguments.inputs, (arguments.calibrate_with, arguments.calibration)
    profiled_plan = [arguments.profiled_plan] if arguments.profiled_plan else []
    is_profiled = arguments.profile or profiled_plan
    if len(paths) == 1 and paths[0].lower().endswith(".csv") and not is_profiled:
        estimate_file(paths[0], arguments, sys.stdout)
        return 0
    options = (arguments.device, arguments.memory_limit_gib)
    plans = asked_plans("estimate", [*paths, *profiled_plan], *options, roofline=arguments.assume_roofline)
    calibration = own_calibration(own[0], plans[0].hardware, own[1])
    if is_profiled:
        from perfkit.face.cli._profiled import estimate_profiled

        estimate_profiled(paths, plans, arguments.profile, calibration, sys.stdout, as_json=arguments.json)
    else:
        estimate_configs(paths, plans, calibration, sys.stdout, as_json=arguments.json)
    return 0


COMMAND = Command(name="estimate", add=_add, run=_run)
