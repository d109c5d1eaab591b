"""Game: a simulated cluster that was fine last week; find what is wrong, where, how much it costs and what to do.

Faults are drawn by class seed, student, level and round. The healthy twin has the same seed and no fault. A look at one view costs
minutes of a budget; the truth is computed when it is needed and stands in no file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

from perfkit.core import catalog
from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.workload import Workload
from perfkit.core.units import NS_PER_MS
from perfkit.explain.diagnose import diagnose
from perfkit.predict.simulate import simulate, truth
from perfkit.predict.simulate.run import prepare
from perfkit.teach._draw import digest

NONE = "none"
NONE_SHARE = 8
"""At level 2 one draw in so many is a healthy run."""
SIMULATION_SEED = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Truth:
    """A fault that is there: its kind, the ranks that it concerns (empty: all, or none in particular), and ms a step."""

    kind: str
    ranks: frozenset[int]
    cost_ms: float
    action: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A round of the game: the run of today and last week's, and what is true."""

    name: str
    level: str
    today: Run
    last_week: Run
    truths: tuple[Truth, ...]


@cache
def pack() -> Mapping[str, Any]:
    """The game as data/class/game.toml describes it."""
    table: Mapping[str, Any] = tomllib.loads((data_folder() / "class" / "game.toml").read_text(encoding="utf-8"))
    return table


@cache
def plan() -> Plan:
    """The plan that is simulated."""
    wanted = pack()["plan"]
    return Plan(
        model=replace(catalog.model(wanted["model"]), num_layers=wanted["layers"]),
        workload=Workload(seq_length=wanted["seq_length"], micro_batch_size=1, global_batch_size=wanted["global_batch_size"]),
        parallel=ParallelPlan(
            data_parallel_size=wanted["data_parallel"],
            pipeline_parallel_size=wanted["pipeline"],
            optimizer_shard_size=wanted["data_parallel"],
        ),
        hardware=catalog.hardware_named(wanted["device"]),
    )


def drawn_faults(level: str, number: int, class_seed: int, student: str) -> tuple[tuple[str, str], ...]:
    """Kind and spelling of the faults of a round; none for a healthy run."""
    wanted, kinds = pack()["levels"][level], dict(pack()["kinds"])
    bytes_ = digest(class_seed, student, name_of(level, number))
    if level == "2" and bytes_[31] % NONE_SHARE == 0:
        return ()
    left = [kind for kind in kinds if kind != NONE]
    found = []
    for place in range(wanted["faults"]):
        kind = left.pop(bytes_[4 * place] % len(left))
        found.append((kind, kinds[kind]["faults"][wanted["strength"]].format(**_places(bytes_[4 * place + 1 : 4 * place + 4]))))
    return tuple(found)


def _places(drawn: bytes) -> dict[str, str | int]:
    size, stages = pack()["plan"]["data_parallel"], pack()["plan"]["pipeline"]
    stage, first = drawn[1] % stages, drawn[2] % (size - 1)
    return {"rank": drawn[0] % (size * stages), "stage": stage, "link": f"{stage * size + first}-{stage * size + first + 1}"}


def name_of(level: str, number: int) -> str:
    """The name of a round as answers are kept under it."""
    return f"G{level}.{number}"


@lru_cache(maxsize=4)
def case(level: str, number: int, class_seed: int, student: str) -> Case:
    """A round with its runs; simulated anew where it is not at hand, always the same."""
    drawn = drawn_faults(level, number, class_seed, student)
    texts = [text for _, text in drawn]
    steps = pack()["plan"]["steps"]
    prepared = prepare(plan(), texts, seed=SIMULATION_SEED, steps=steps)
    return Case(
        name=name_of(level, number),
        level=level,
        today=prepared.run(),
        last_week=healthy(),
        truths=tuple(_truth(kind, label) for (kind, _), label in zip(drawn, truth(prepared)["faults"], strict=True)),
    )


@cache
def healthy() -> Run:
    """The run of last week."""
    return simulate(plan(), seed=SIMULATION_SEED, steps=pack()["plan"]["steps"])


def _truth(kind: str, label: Mapping[str, Any]) -> Truth:
    ranks = frozenset(label["ranks"]) | {rank for link in label["links"] for rank in link}
    cost_ns = max(label["cost_ns_per_step"], label["alone_cost_ns_per_step"])
    return Truth(kind=kind, ranks=ranks, cost_ms=cost_ns / NS_PER_MS, action=pack()["kinds"][kind]["action"])


def actions_for(kind: str) -> tuple[str, ...]:
    """Four things to do of which one is right for the kind, in an order that does not tell which."""
    kinds = list(pack()["kinds"])
    start = kinds.index(kind)
    near = [kinds[(start + step) % len(kinds)] for step in (0, 3, 5, 7)]
    return tuple(sorted(pack()["kinds"][name]["action"] for name in near))


def findings(run: Run) -> list[str]:
    """What perfkit itself says about a run, for after the answer."""
    return [f"{finding.rule}: {finding.title}" for finding in diagnose(run).findings]
