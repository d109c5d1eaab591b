"""Pipeline state: what a visitor can choose on page 06, and the problem that it makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.units import GIB, NS_PER_US
from perfkit.predict.plans.balance.case_file import read_problem
from perfkit.predict.plans.balance.moves import LayerPlanner, layers_text, parse_layers
from perfkit.predict.plans.balance.problem import LayerType, PipelineProblem

SAMPLES = {
    "Dense + MoE, 28 layers, 4 stages": "dense_moe_4_stages.json",
    "Llama, 96 layers, 16 stages": "llama_96_layers_16_stages.json",
    "GPT 175B, 16 stages": "gpt_175b_16_stages.json",
    "GPT 175B, 16 stages x 3 chunks": "gpt_175b_16_stages_3_chunks.json",
}
SCHEDULE_NAMES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "zbh1": "ZB-H1",
    "vpp": "interleaved",
    "vpp_lm": "interleaved, less memory",
}
TRANSFERS = (("ignored", "none"), ("overlapped", "overlap"), ("sender waits", "sender"), ("both wait", "rendezvous"))


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """What is on the page. Another `case` fills it anew (`filled`); other `layers` than the `taken` ones make the layout edited."""

    case: str = ""
    filled: str = ""
    schedule: str = "1f1b"
    num_stages: int = 1
    num_chunks: int = 1
    num_microbatches: int = 1
    limit_gib: float = 0.0
    p2p_us: float = 0.0
    p2p_mode: str = "none"
    layout: str = "even"
    layers: str = ""
    taken: str = ""
    time_limit_s: int = 30

    def __post_init__(self) -> None:
        if self.case != self.filled:
            self._fill(read_problem(self.case))
        elif self.layers != self.taken:
            object.__setattr__(self, "layout", "edited")
        elif self.layout == "even":
            self._follow_sizes()
        object.__setattr__(self, "taken", self.layers)

    def _follow_sizes(self) -> None:
        """Show the even split of the stages and chunks on the page; sizes that do not fit together yet leave the last one."""
        try:
            chunks = parse_layers(self.layers)
            if (len(chunks), len(chunks[0])) != (int(self.num_chunks), int(self.num_stages)):
                object.__setattr__(self, "layers", layers_text(LayerPlanner(problem_of(self)).even()))
        except InputError:
            return

    def _fill(self, problem: PipelineProblem) -> None:
        values: dict[str, Any] = {
            "filled": self.case,
            "schedule": problem.schedule,
            "num_stages": problem.num_stages,
            "num_chunks": problem.num_chunks,
            "num_microbatches": problem.num_microbatches,
            "limit_gib": (problem.memory_limit_bytes or 0) / GIB,
            "p2p_us": problem.p2p_ns / NS_PER_US,
            "p2p_mode": problem.p2p_mode,
            "layout": "even",
            "layers": layers_text(LayerPlanner(problem).even()),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)


def start() -> State:
    """The sample where solving gains most against an even split."""
    return State(case=str(data_folder() / "plans" / SAMPLES["GPT 175B, 16 stages"]))


def case_options(_state: object = None) -> list[tuple[str, str, str]]:
    """The bundled cases."""
    return [(name, str(data_folder() / "plans" / file), "Samples") for name, file in SAMPLES.items()]


def problem_of(state: State) -> PipelineProblem:
    """The case with the sizes on the page; raises InputError if they do not fit together."""
    return replace(
        case_of(state),
        schedule=state.schedule,
        num_stages=int(state.num_stages),
        num_chunks=int(state.num_chunks),
        num_microbatches=int(state.num_microbatches),
        memory_limit_bytes=round(state.limit_gib * GIB) if state.limit_gib > 0 else None,
        p2p_ns=round(state.p2p_us * NS_PER_US),
        p2p_mode=state.p2p_mode,
    )


def case_of(state: State) -> PipelineProblem:
    """The case as its file has it."""
    return _case(state.case, Path(state.case).stat().st_mtime_ns)


@cache
def _case(path: str, _changed_ns: int) -> PipelineProblem:
    return read_problem(path)


def schedule_options(state: State) -> list[tuple[str, str]]:
    if int(state.num_chunks) > 1:
        names: tuple[str, ...] = ("vpp", "vpp_lm")
    else:
        split = any(kind.wgrad_ns for part in problem_body(state) for kind in part.kinds.values())
        names = ("1f1b", "gpipe", "zbh1") if split else ("1f1b", "gpipe")
    return [(SCHEDULE_NAMES[name], name) for name in names]


def problem_body(state: State) -> tuple[LayerType, ...]:
    """The layer types of the case."""
    return case_of(state).body


def transfer_options(state: State) -> list[tuple[str, str]]:
    blocking = state.schedule in ("1f1b", "gpipe")
    return [option for option in TRANSFERS if blocking or option[1] != "rendezvous"]


def counts_of(size: str) -> Callable[[State], list[float]]:
    """Values of a size for which there are enough layers."""

    def values(state: State) -> list[float]:
        layers = sum(part.count for part in problem_body(state))
        other = int(state.num_chunks if size == "num_stages" else state.num_stages)
        return [float(value) for value in range(1, min(64, layers // max(1, other)) + 1)] or [1.0]

    return values
