"""The tools of `bench_peers`: how each is started on a run, and what of its output is read as a verdict.

Doubtful output is read in favour of a peer: the rank that the advisor only chooses for a closer look counts as named, and of the
recipe's ranks only those with at least half of the most votes.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.diagnosis._cases import RULE_OF_FAULT
from benchmarks.trace.bench_peers import Work

CLASSIC_RATIO = 1.2
"""MindSpore Insight reports the rank with the largest value if it is more than this over the mean of all ranks."""
STRAGGLERS = """
import json
from hta.trace_analysis import TraceAnalysis
if __name__ == "__main__":
    print(json.dumps({{"stragglers": [int(rank) for rank in TraceAnalysis(trace_dir={path!r}).get_potential_stragglers()]}}))
"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Ranks named as slow, and the other kinds of fault told, each with the ranks it is told of (none: not said, or all)."""

    ranks: tuple[int, ...] = ()
    told: tuple[tuple[str, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Tool:
    """`environment` is that of `benchmarks.trace.bench_peers`, `form` the one of the written forms of a run that the tool reads."""

    name: str
    environment: str
    form: str
    command: Callable[[Path, Path], str | tuple[str, ...]]
    read: Callable[[str, Path], Verdict]

    def work(self, run: Path, out: Path) -> Work:
        """What is to be measured; `out` is a folder for what the tool writes."""
        return Work(self.name, self.environment, self.command(run, out))


def _perfkit(log: str, out: Path) -> Verdict:
    document: dict[str, Any] = json.loads(next(line for line in log.splitlines() if line.startswith("{")))
    kind_of = {rule: kind for kind, rule in RULE_OF_FAULT.items() if kind != "slow_node"}
    named: list[int] = []
    told: list[tuple[str, tuple[int, ...]]] = []
    for finding in document["findings"]:
        subject = finding["subject"]
        if finding["rule"] == "slow-rank":
            named += subject["ranks"]
        else:
            ranks = (*subject.get("ranks", ()), *chain.from_iterable(subject.get("links", ())))
            told.append((kind_of.get(finding["rule"], finding["rule"]), tuple(ranks)))
    return Verdict(tuple(named), tuple(told))


def _advisor(log: str, out: Path) -> Verdict:
    """Its log says which ranks it looks at because their times differ; for ranks that it takes by default it has other words."""

    def ranks_in(pattern: str) -> tuple[int, ...]:
        return tuple(sorted({int(rank) for rank in re.findall(pattern, log)}))

    told: list[tuple[str, tuple[int, ...]]] = []
    if links := ranks_in(r"Minimum [SR]DMA bandwidth for rank (\d+) and step"):
        told.append(("slow_link", links))
    if idle := ranks_in(r"maximum free for rank (\d+)"):
        told += [("host_bound", idle), ("data_stall", idle)]
    if "Slow Dataloader Issues" in log:
        told.append(("data_stall", ()))
    if "Operator Dispatch Issues" in log:
        told.append(("host_bound", ()))
    return Verdict(ranks_in(r"(?:Maximum computation time for rank|For stage-\d+, slow rank is) (\d+)"), tuple(told))


def _recipe(log: str, out: Path) -> Verdict:
    votes: dict[int, int] = {}
    for table in out.rglob("rank_stats.csv"):
        with table.open(encoding="utf-8", newline="") as file:
            votes = {int(row["rankId"]): int(row["slowAffectCount"]) for row in csv.DictReader(file)}
    return Verdict(tuple(rank for rank, count in votes.items() if 2 * count >= max(votes.values())))


def _stragglers(log: str, out: Path) -> Verdict:
    document: dict[str, Any] = json.loads(next(line for line in log.splitlines() if line.startswith('{"stragglers"')))
    return Verdict(tuple(document["stragglers"]))


def classic_computing(run: Path) -> Verdict:
    """The 20 % rule on the mean computing time of ranks."""
    return Verdict(_over_mean(run, "Computing"))


def classic_interval(run: Path) -> Verdict:
    """The 20 % rule on the mean step interval of ranks; it sends its reader to the data feed, so that is told as well."""
    worst = _over_mean(run, "Preparing")
    return Verdict(worst, (("data_stall", worst),) if worst else ())


def _over_mean(run: Path, column: str) -> tuple[int, ...]:
    """The rank with the largest mean in a column of its step_trace_time.csv, if it is that much over the mean of all ranks."""
    means: dict[int, float] = {}
    for info in run.glob("*/profiler_info_*.json"):
        with (info.parent / "ASCEND_PROFILER_OUTPUT" / "step_trace_time.csv").open(encoding="utf-8", newline="") as file:
            means[int(info.stem.rpartition("_")[2])] = fmean(float(row[column]) for row in csv.DictReader(file))
    worst = max(means, key=means.__getitem__)
    return (worst,) if means[worst] > CLASSIC_RATIO * fmean(means.values()) else ()


def _diagnose(run: Path, out: Path) -> tuple[str, ...]:
    return ("perfkit", "diagnose", str(run), "--json")


def _advise(run: Path, out: Path) -> tuple[str, ...]:
    return ("msprof-analyze", "advisor", "all", "-d", str(run), "-l", "en", "--force", "-o", str(out))


def _vote(run: Path, out: Path) -> tuple[str, ...]:
    return ("msprof-analyze", "cluster", "-d", str(run), "-m", "slow_rank", "--export_type", "text", "--force", "-o", str(out))


def _find_stragglers(run: Path, out: Path) -> str:
    return STRAGGLERS.format(path=str(run))


TOOLS = (
    Tool("perfkit", "perfkit", "text", _diagnose, _perfkit),
    Tool("perfkit, Kineto", "perfkit", "kineto", _diagnose, _perfkit),
    Tool("msprof-analyze advisor", "msprof-analyze", "text", _advise, _advisor),
    Tool("msprof-analyze slow_rank", "msprof-analyze", "sqlite", _vote, _recipe),
    Tool("HTA stragglers", "HTA", "kineto", _find_stragglers, _stragglers),
    Tool("HTA stragglers, old NCCL names", "HTA", "kineto-old", _find_stragglers, _stragglers),
)
CLASSIC = {"20 % rule, computing time": classic_computing, "20 % rule, step interval": classic_interval}
"""Rules of MindSpore Insight, computed here on the text form; the interval is what the profiler calls preparing."""
