"""Simulate pipeline schedules exactly: makespan, bubble, activations in flight, critical path.

example: perfkit schedule data/plans/schedules_4_stages.json --json
"""

from __future__ import annotations

import argparse
import sys

from perfkit.face.cli._command import Command
from perfkit.face.cli._document import print_document
from perfkit.face.cli._screen import say


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("case", metavar="CASE", help="a perfkit.plans.schedules/1 file; - is standard input")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _run(arguments: argparse.Namespace) -> int:
    from perfkit.predict.plans.balance.case_file import read_schedules
    from perfkit.predict.plans.schedule.schedule import simulate_schedule

    results = [simulate_schedule(case) for case in read_schedules(arguments.case)]
    if arguments.json:
        print_document([result.to_dict() for result in results])
        return 0
    from perfkit.face.cli._tables import print_table
    from perfkit.predict.plans.balance.text import schedule_table

    for result in results:
        table = schedule_table(result)
        say(sys.stdout, table.title)
        print_table(table.header, table.rows, sys.stdout)
        say(sys.stdout)
    return 0


COMMAND = Command(name="schedule", add=_add, run=_run)
