"""How often a diagnosis is right: recall, precision and false alarms on labelled runs of a generator.

The generator is a Python script with a function `main(arguments)` that writes a run and its labels:
`ascend --out DIR --truth FILE --dp N --tp N --pp N --seed N --steps N [--fault KIND:ARGS] [--timeline all]`, or `kineto` likewise.
Labels are JSON with `healthy` and `faults`, each with `kind`, `ranks`, `links`, `stages`, `op_type`, `factor` and `cost_share`.

With `--results FILE` every run adds a line to the file, and runs that it already has are not made again: a long benchmark can be
stopped and go on, and `--limit 0` prints the scores of what is there.

example: python -m benchmarks.diagnosis.bench_generated path/to/generator.py --seeds 3 --first-seed 300 --each 3 --results r.jsonl
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.diagnosis._cases import Case, cases, drawn
from benchmarks.diagnosis._generated import generator, records_in, until_stopped, written
from benchmarks.diagnosis._peers import classic_computing
from benchmarks.diagnosis._scores import print_classic, print_scores, record_of, scores_of
from perfkit.explain.diagnose import diagnose, to_dict
from perfkit.record.load import load


def main() -> None:
    """Generate, diagnose, score, print."""
    arguments = _arguments()
    make = generator(Path(arguments.generator))
    results = Path(arguments.results) if arguments.results else None
    records = records_in(results)
    known = {record["name"] for record in records}
    started, count = time.process_time(), 0
    for case in until_stopped([case for case in _chosen(arguments) if case.name not in known]):
        with tempfile.TemporaryDirectory() as folder:
            found, truth = _diagnosed(case, make, Path(folder), arguments.format)
            classic = classic_computing(Path(folder) / "run").ranks if arguments.format == "ascend" else None
        count += 1
        records.append({**record_of(case.name, case.faults, found, truth), "classic": classic})
        if results is not None:
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(records[-1]) + "\n")
    print_scores(*scores_of(records, verbose=arguments.verbose))
    print_classic(records)
    print(f"\n{len(records)} runs, {count} of them now in {time.process_time() - started:.0f} cpu-s with generation")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("generator", help="the generator's Python file")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0, help="held-out seeds start here")
    parser.add_argument("--limit", type=int, help="only so many of the cases, drawn at random")
    parser.add_argument("--each", type=int, help="only so many cases of every kind and severity, drawn at random")
    parser.add_argument("--largest", type=int, default=64, help="ranks of the largest layout")
    parser.add_argument("--format", choices=("ascend", "kineto"), default="ascend")
    parser.add_argument("--kinds", nargs="*", default=(), help="only these kinds of fault; healthy for runs without")
    parser.add_argument("--results", help="a file of JSON lines to add to")
    parser.add_argument("--verbose", action="store_true", help="print every miss, every alarm and every wrong cost")
    return parser.parse_args()


def _chosen(arguments: argparse.Namespace) -> list[Case]:
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    chosen = list(cases(seeds, tuple(arguments.kinds), largest=arguments.largest))
    if arguments.each is not None:
        chosen = drawn(chosen, arguments.each, arguments.first_seed)
    if arguments.limit is not None:
        chosen = random.Random(arguments.first_seed).sample(chosen, min(arguments.limit, len(chosen)))
    return chosen


def _diagnosed(case: Case, make: Any, folder: Path, format: str) -> tuple[dict[str, Any], dict[str, Any]]:
    baseline = None
    if any(fault.startswith("slow_op") for fault in case.faults):
        out, _ = written(case, make, folder / "base", [format], ())
        baseline = load(out, cache=False)
    with_host = any(fault.startswith(("frequent_sync", "gc_pause", "host_bound", "memory")) for fault in case.faults)
    options = ["--timeline", "all"] if format == "ascend" and with_host else []
    out, truth = written(case, make, folder, [format, *options], case.written_faults)
    return to_dict(diagnose(load(out, cache=False), baseline)), truth


if __name__ == "__main__":
    main()
