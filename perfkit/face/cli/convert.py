"""Write a configuration in another dialect, or change single values of it; say what the dialect cannot express.

example: perfkit convert pretrain.yaml --to megatron --out pretrain.sh
         perfkit convert pretrain.yaml --set parallel_config.micro_batch_num=16 > more_micro_batches.yaml
"""

from __future__ import annotations

import argparse
import sys

from perfkit.face.cli._command import Command
from perfkit.face.cli._devices import add_device, chosen_device


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="a configuration in any dialect; - is standard input")
    parser.add_argument(
        "--to",
        metavar="DIALECT",
        help="the dialect to write, such as mindformers (default: that of CONFIG)",
    )
    parser.add_argument("--out", help="where to write it (default: standard output); never the input itself")
    parser.add_argument(
        "--set", dest="changes", metavar="KEY=VALUE", action="append", default=[], help="change a value of CONFIG by its dotted key"
    )
    parser.add_argument("--repair", action="store_true", help="first repair broken lists and patterns of a MindFormers YAML")
    add_device(parser, "also predict both on this device where something is lost")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _run(arguments: argparse.Namespace) -> int:
    from perfkit.face.cli._conversion import convert

    convert(
        arguments.config,
        arguments.to or "",
        target=arguments.out,
        changes=arguments.changes,
        device=chosen_device(arguments.device),
        repair=arguments.repair,
        out=sys.stdout,
        remarks=sys.stderr,
        as_json=arguments.json,
    )
    return 0


COMMAND = Command(name="convert", add=_add, run=_run)
