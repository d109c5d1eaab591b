"""perfkit and its peers at the same labelled runs: who names the slow rank, who blames others, who is silent on a healthy run.

Runs of 8 ranks in three layouts, with one fault or none, are made by a generator as in `bench_generated`; it must also offer
`--layers`, `--no-cost`, for `ascend` `--flavour pt` and `--db-out DIR` (the sqlite form), for `kineto` `--nccl-names old`. A run is
written in every form that a tool reads, all from one simulation. Peers run in environments of their own (`--environments FOLDER`
keeps them), every tool in a fresh process that has 60 s; rules on step times need none. A tool without an answer has said nothing.

With `--results FILE` the benchmark can be stopped by SIGTERM and go on; `--seeds 0` prints the table of what is there.

example: python -m benchmarks.diagnosis.bench_peers path/to/generator.py --seeds 2 --environments venvs --results peers.jsonl
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.diagnosis._cases import HEALTHY_JITTER, Case, links_of
from benchmarks.diagnosis._generated import generator, records_in, until_stopped, written
from benchmarks.diagnosis._peer_table import Record, table
from benchmarks.diagnosis._peers import CLASSIC, TOOLS, Tool, Verdict
from benchmarks.trace.bench_peers import Used, measure, reap_orphans

LIMIT_S = 60
LAYOUTS = ((8, 1, 1), (4, 2, 1), (2, 2, 2))
FAULTS = (
    "",
    "slow_rank:{rank}:1.1",
    "slow_link:{link}:2",
    "data_stall:{rank}:25",
    "jitter:0.02",
    "slow_rank:{rank}:1.35",
    "host_bound:all:12",
    "slow_rank:{rank}:1.05",
    "slow_link:{link}:4",
    "",
    "slow_rank:{rank}:1.5",
    "data_stall:all:40",
    "jitter:0.03",
    "slow_rank:{rank}:1.2",
    "host_bound:{rank}:12",
    "slow_link:{link}:1.5",
)
FORMS = {
    "text": ("ascend", "--flavour", "pt", "--timeline", "all"),
    "kineto": ("kineto",),
    "kineto-old": ("kineto", "--nccl-names", "old"),
}
SIZE = ("--layers", "4", "--no-cost")


def peer_cases(seeds: range) -> Iterator[Case]:
    """Every fault once a seed, each in one of the layouts."""
    for seed in seeds:
        for number, text in enumerate(FAULTS):
            layout = LAYOUTS[(number + seed) % len(LAYOUTS)]
            first, second = links_of(*layout, seed + number)
            fault = text.format(rank=(5 * seed + 3 * number) % 8, link=f"{first}-{second}")
            yield Case(*layout, 100 * seed + number, steps=5, faults=(fault,) if fault else ())


def judged(case: Case, make: Any, folder: Path, root: Path) -> list[Record]:
    """What every tool says of one case."""
    runs = {}
    for form, options in FORMS.items():
        place = folder / form
        place.mkdir()
        runs[form], truth = written(case, make, place, [*options, *SIZE, *_also(form, folder)], case.faults)
    runs["sqlite"] = folder / "sqlite"
    about = {"name": case.name, "world": case.world, "faults": _faults(truth)}
    records = [{**about, **_said(tool, runs[tool.form], folder, root)} for tool in TOOLS]
    for name, rule in CLASSIC.items():
        verdict = rule(runs["text"])
        records.append({**about, "tool": name, "cpu_s": None, "failure": "", "ranks": verdict.ranks, "told": verdict.told})
    return records


def _also(form: str, folder: Path) -> tuple[str, ...]:
    """The sqlite form is written beside the text."""
    return ("--db-out", str(folder / "sqlite")) if form == "text" else ()


def _faults(truth: dict[str, Any]) -> list[dict[str, Any]]:
    labels = [{key: fault[key] for key in ("kind", "ranks", "links", "factor")} for fault in truth["faults"]]
    return [label for label in labels if label["kind"] != "jitter" or label["factor"] > HEALTHY_JITTER]


def _said(tool: Tool, run: Path, folder: Path, root: Path) -> Record:
    out, log = folder / f"out of {tool.name}", folder / f"{tool.name}.log"
    out.mkdir()
    used: Used = measure(tool.work(run, out), root, log, LIMIT_S)
    verdict = Verdict() if used.failure else tool.read(log.read_text(encoding="utf-8", errors="replace"), out)
    return {
        "tool": tool.name,
        "cpu_s": used.cpu_s,
        "failure": used.failure,
        "ranks": verdict.ranks,
        "told": verdict.told,
    }


def main() -> None:
    """Generate, ask every tool, print the table."""
    arguments = _arguments()
    make, results = generator(arguments.generator), arguments.results
    records = records_in(results)
    known = {record["name"] for record in records}
    reap_orphans()
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    with tempfile.TemporaryDirectory() as once:
        for case in until_stopped([case for case in peer_cases(seeds) if case.name not in known]):
            with tempfile.TemporaryDirectory() as name:
                os.environ["PERFKIT_CACHE"] = str(Path(name) / "cache")
                found = judged(case, make, Path(name), arguments.environments or Path(once))
            records += found
            if results is not None:
                with results.open("a", encoding="utf-8") as file:
                    file.writelines(json.dumps(record) + "\n" for record in found)
    print(f"{len({record['name'] for record in records})} runs\n\n{table(records)}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("generator", type=Path, help="the generator's Python file")
    parser.add_argument("--seeds", type=int, default=1, help=f"each has {len(FAULTS)} runs")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--environments", type=Path, help="where the peers' environments are kept; by default nowhere")
    parser.add_argument("--results", type=Path, help="a file of JSON lines to add to; runs that it has are not made again")
    return parser.parse_args()


if __name__ == "__main__":
    main()
