"""Choose layers and recomputation of every pipeline stage so that the step is shortest, with a proven bound.

example: perfkit balance pretrain.yaml --device Ascend-910B2 --memory-limit-gib 58 --out balanced.yaml
         perfkit balance data/plans/dense_moe_4_stages.json --json
"""

from __future__ import annotations

import argparse
import sys

from perfkit.face.cli._command import Command
from perfkit.face.cli._devices import add_device, add_limit


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "case", metavar="CASE|CONFIG", help="a perfkit.plans.plan/1 file, one of SAPP's, or a configuration; - is standard input"
    )
    parser.add_argument("--stages", type=int, help="stages, where one of SAPP's files states none (default there: 4)")
    parser.add_argument("--micro-batches", type=int, help="micro batches, where one of SAPP's files states none (default there: 4)")
    parser.add_argument("--time-limit-s", type=float, default=60.0, help="stop with the best layout so far (default: 60)")
    parser.add_argument("--run", help="take the times of CONFIG from this run: of its layers, or else of its stages")
    add_device(parser)
    parser.add_argument("--calibration", help="a bundled calibration by name, or a TOML file")
    add_limit(parser, "a stage")
    parser.add_argument("--out", metavar="FILE", help="write CONFIG with what was found; of SAPP's files the layers as its JSON")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _run(arguments: argparse.Namespace) -> int:
    from perfkit.face.cli._balance import balance_input

    balance_input(
        arguments.case,
        sizes=(arguments.stages, arguments.micro_batches),
        time_limit_s=arguments.time_limit_s,
        run=arguments.run,
        given=arguments.device,
        calibration=arguments.calibration,
        limit=arguments.memory_limit_gib,
        target=arguments.out,
        as_json=arguments.json,
        out=sys.stdout,
        errors=sys.stderr,
    )
    return 0


COMMAND = Command(name="balance", add=_add, run=_run)
