"""A run as it would be recorded, from a configuration alone, with faults on demand.

example: perfkit simulate llama2_13b.yaml --device Ascend-910B2 --out run/ --fault slow_rank:5:1.35
"""

from __future__ import annotations

import argparse
import sys

from perfkit.core.texts import told
from perfkit.face.cli._command import Command
from perfkit.face.cli._devices import add_device
from perfkit.face.cli._document import print_document


def _add(parser: argparse.ArgumentParser) -> None:
    from perfkit.predict.simulate.faults import FAULTS

    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("config", metavar="CONFIG", help="a configuration (- is standard input)")
    parser.add_argument("--out", metavar="DIR", required=True, help="a new folder for the run")
    parser.add_argument("--fault", metavar="KIND:ARGS", action="append", default=[], help="a fault as listed below (repeatable)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, another noise (default 0)")
    parser.add_argument("--steps", type=int, default=3, help="steps of the run (default 3)")
    parser.add_argument("--ranks", default="", help="record only these ranks, for example 0-7,12 (all are simulated)")
    parser.add_argument("--format", choices=("perfkit", "kineto", "ascend"), default="perfkit", help="form of the files")
    add_device(parser)
    parser.add_argument("--calibration", help="a bundled calibration by name, or a TOML file")
    parser.add_argument("--no-cost", action="store_true", help="do not simulate again to find what each fault costs")
    parser.add_argument("--json", action="store_true", help="print the truth as one JSON document")
    width = max(len(kind.spelling(name)) for name, kind in FAULTS.items())
    faults = "\n".join(f"  {kind.spelling(name):{width}}  {told(kind.doc)}" for name, kind in FAULTS.items())
    parser.epilog = f"{parser.epilog}\n\nfaults:\n{faults}"


def _run(arguments: argparse.Namespace) -> int:
    from perfkit.face.cli._simulation import simulate_config

    document = simulate_config(arguments)
    if arguments.json:
        print_document(document)
    else:
        from perfkit.face.cli._simulation import print_simulation

        print_simulation(document, arguments.out, sys.stdout)
    return 0


COMMAND = Command(name="simulate", add=_add, run=_run)
