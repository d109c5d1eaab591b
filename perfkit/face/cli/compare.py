"""What changed between two runs, plans, a run and its plan, two graph dumps or two loss series, and by how much.

example: perfkit compare before/ after/ --fail-above 3
         perfkit compare old.yaml pretrain.yaml --hardware Ascend-910B2
"""

from __future__ import annotations

import argparse
import sys

from perfkit.face.cli._command import Command
from perfkit.face.cli._devices import add_device, chosen_device
from perfkit.face.cli._document import print_document
from perfkit.face.cli._progress import Progress


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="the old side: a run, a configuration, a graph dump, a log or table of losses")
    parser.add_argument("b", metavar="B", help="the new side")
    parser.add_argument("--kind", choices=("runs", "plans", "run_plan", "graphs", "losses"), help="where two would do")
    add_device(parser)
    parser.add_argument("--calibration", help="a bundled calibration by name, or a TOML file")
    parser.add_argument("--noise", metavar="PCT", type=float, default=1.0, help="changes below count as none (default: 1 %%)")
    parser.add_argument("--fail-above", metavar="PCT", type=float, help="exit code 1 if B is more than PCT percent worse than A")
    parser.add_argument("--operators", action="store_true", help="also match operators and list added and removed ones")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _run(arguments: argparse.Namespace) -> int:
    from perfkit.explain.compare import compare

    with Progress(sys.stderr) as progress:
        found = compare(
            arguments.a,
            arguments.b,
            kind=arguments.kind,
            noise_ratio=arguments.noise / 100,
            device=chosen_device(arguments.device),
            calibration=arguments.calibration,
            operators=arguments.operators,
            progress=progress,
        )
    if arguments.json:
        print_document(found.to_json())
    else:
        from perfkit.face.cli._comparisons import print_comparison

        print_comparison(found, sys.stdout)
    return int(arguments.fail_above is not None and found.worse_than(arguments.fail_above))


COMMAND = Command(name="compare", add=_add, run=_run)
