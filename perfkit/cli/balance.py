"""Choose layers and recomputation of every pipeline stage so that the step is shortest, with a proven bound.

example: perfkit balance data/plans/gpt_175b_16_stages.json --time-limit-s 60
"""

from __future__ import annotations

import argparse
import json
import sys

from perfkit.cli._command import Command
from perfkit.cli._progress import SolveProgress


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("case", metavar="CASE", help="a perfkit.plans.plan/1 file; - is standard input")
    parser.add_argument("--time-limit-s", type=float, default=60.0, help="stop with the best layout so far (default: 60)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _run(arguments: argparse.Namespace) -> int:
    from perfkit.plans.balance import balance

    with SolveProgress(sys.stderr) as progress:
        result = balance(arguments.case, time_limit_s=arguments.time_limit_s, progress=progress)
    if arguments.json:
        print(json.dumps(result.to_dict(), ensure_ascii=False))
        return 0
    from perfkit.cli._tables import print_table
    from perfkit.plans.text import plan_table

    table = plan_table(result)
    print(table.title)
    if table.rows:
        print_table(table.header, table.rows, sys.stdout)
    return 0


COMMAND = Command(name="balance", add=_add, run=_run)
