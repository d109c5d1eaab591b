"""Search the best parallel and recomputation strategies for a model on a number of devices.

example: perfkit plan pretrain.yaml --device Ascend-910B2 --devices 64 --memory-limit-gib 58 --out best.yaml
"""

from __future__ import annotations

import argparse
import sys

from perfkit.face.cli._command import Command
from perfkit.face.cli._devices import add_device, add_limit


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="the configuration (- is standard input)")
    parser.add_argument("--devices", type=int, help="how many devices (default: those of the configuration)")
    add_limit(parser)
    parser.add_argument("--top", type=int, default=10, help="how many plans to list (default: 10)")
    add_device(parser)
    parser.add_argument("--calibration", help="a bundled calibration by name, or a TOML file")
    parser.add_argument("--out", metavar="FILE", help="write the best plan as a configuration in the dialect of CONFIG")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _run(arguments: argparse.Namespace) -> int:
    from perfkit.face.cli._asked import asked_plan
    from perfkit.face.cli._plans import plan_config
    from perfkit.predict.plans.search.strategy_space import count_problems

    stated = {} if arguments.devices is None else {"devices": arguments.devices}
    counts = count_problems(**stated, top=arguments.top)
    plan_config(
        arguments.config,
        asked_plan(arguments.config, arguments.device, arguments.memory_limit_gib, others=counts),
        devices=arguments.devices,
        top=arguments.top,
        calibration=arguments.calibration,
        target=arguments.out,
        as_json=arguments.json,
        out=sys.stdout,
        errors=sys.stderr,
    )
    return 0


COMMAND = Command(name="plan", add=_add, run=_run)
