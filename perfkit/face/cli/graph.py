"""Communications and their causes, recomputation in effect or not, from saved graph files.

example: perfkit graph graph/rank_0 --config pretrain.yaml
"""

from __future__ import annotations

import argparse
import sys

from perfkit.face.cli._command import Command
from perfkit.face.cli._document import print_document
from perfkit.face.cli._progress import Progress


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graph", metavar="IR", help="a graph file (.ir) that save_graphs wrote, or a folder of them")
    parser.add_argument("--config", metavar="CONFIG", help="compare with this configuration; its device gives predicted times")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _run(arguments: argparse.Namespace) -> int:
    from perfkit.explain.graph import against_config, read_graph

    plan = None
    if arguments.config:
        from perfkit.predict.reading import read_config

        plan = read_config(arguments.config)
    with Progress(sys.stderr) as progress:
        report = read_graph(arguments.graph, hardware=plan.hardware if plan else None, progress=progress)
    document = report.to_json()
    if plan is not None:
        document["config"] = against_config(report, plan)
    if arguments.json:
        print_document(document)
    else:
        from perfkit.face.cli._graphs import print_graph

        print_graph(document, sys.stdout)
    return 0


COMMAND = Command(name="graph", add=_add, run=_run)
