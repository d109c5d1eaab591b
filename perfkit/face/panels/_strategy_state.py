"""Strategy state: what a visitor can choose on page 03, the search that it asks for, and answers remembered."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, fields, replace
from threading import Lock
from typing import Any

from perfkit.config.presets import read_plan
from perfkit.core import catalog
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.units import GIB
from perfkit.face.panels._plan_state import DEFAULT_PRESET, placed
from perfkit.face.widgets import context
from perfkit.face.widgets.worker import Cancelled, Progress
from perfkit.predict.plans.search.search import search_plans
from perfkit.predict.plans.search.search_result import SearchResult
from perfkit.predict.plans.search.search_scores import Scored
from perfkit.predict.plans.search.strategy_space import divisors

MOST_CHOSEN = 4
SEQUENCE = {"either": (0, 1), "on": (1,), "off": (0,)}
LEVELS = (("nothing", 0), ("optimizer state", 1), ("+ gradients", 2), ("+ parameters", 3))
GUIDE_LIMIT_GIB = 58.0
_KEPT = 8
_searched: OrderedDict[tuple[Any, ...], SearchResult] = OrderedDict()
_scored = Scored()
_lock = Lock()


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """What is on the page. Another `preset` fills it anew (`filled`), another `device` sets the limit (`limit_of`).

    `chosen` are marks to compare, oldest first; they hold for the search `chosen_of` only. Fields that begin with `own_` are the
    plan by hand.
    """

    preset: str = DEFAULT_PRESET
    filled: str = ""
    device: str = "Ascend-910B2"
    limit_of: str = ""
    limit_gib: float = GUIDE_LIMIT_GIB
    devices: int = 16
    global_batch_size: int = 256
    most_tensor: int = 8
    micro_batches: tuple[int, ...] = (1, 2, 4)
    chunks: tuple[int, ...] = (1, 2, 4)
    levels: tuple[int, ...] = (0, 1, 2, 3)
    sequence: str = "either"
    chosen: tuple[str, ...] = ()
    chosen_of: tuple[Any, ...] = ()
    compare_own: bool = False
    own_tensor: int = 1
    own_pipeline: int = 1
    own_chunks: int = 1
    own_context: int = 1
    own_expert: int = 1
    own_micro_batch: int = 1
    own_level: int = 1
    own_sequence: bool = False
    own_recompute: str = "none"
    dialect: str = "mindformers"

    def __post_init__(self) -> None:
        if self.preset != self.filled:
            self._fill(read_plan(self.preset))
        if self.limit_of != self.device:
            memory = catalog.hardware_named(self.device).memory_bytes / GIB
            limit = min(self.limit_gib, memory) if not self.limit_of else memory
            object.__setattr__(self, "limit_of", self.device)
            object.__setattr__(self, "limit_gib", limit)
        if self.chosen_of != self.question():
            object.__setattr__(self, "chosen_of", self.question())
            object.__setattr__(self, "chosen", ())

    def question(self) -> tuple[Any, ...]:
        """What the search depends on."""
        names = [field.name for field in fields(self) if not field.name.startswith(("own_", "chosen"))]
        return tuple(getattr(self, name) for name in names if name not in {"compare_own", "dialect", "filled", "limit_of"})

    def _fill(self, plan: Plan) -> None:
        if plan.memory_limit is not None and plan.memory_limit.limit_bytes is not None:
            object.__setattr__(self, "limit_gib", round(plan.memory_limit.limit_bytes / GIB, 6))
        values: dict[str, Any] = {
            "filled": self.preset,
            "devices": plan.num_devices,
            "global_batch_size": plan.workload.global_batch_size,
            "device": plan.hardware.name if plan.hardware else self.device,
            "dialect": plan.document.dialect if plan.document else self.dialect,
            "own_tensor": plan.parallel.tensor_parallel_size,
            "own_pipeline": plan.parallel.pipeline_parallel_size,
            "own_chunks": plan.parallel.virtual_pipeline_parallel_size,
            "own_context": plan.parallel.context_parallel_size,
            "own_expert": plan.parallel.expert_parallel_size,
            "own_micro_batch": plan.workload.micro_batch_size,
            "own_level": plan.parallel.optimizer_shard_level if plan.parallel.optimizer_shard_size > 1 else 0,
            "own_sequence": plan.parallel.sequence_parallel,
            "own_recompute": "full" if plan.recompute.num_full_layers(plan.model.num_layers) else "none",
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)


def start() -> State:
    """The project's configuration and limit, else the Llama2-13B of the guides on 16 devices."""
    project = context.current_project()
    if project is None:
        return State()
    config = project.open_config
    state = State(preset=str(config)) if config is not None and config.exists() else State()
    limit_bytes = project.usable_limit_bytes or project.device_memory_bytes
    own = read_plan(state.preset).memory_limit is not None
    return replace(state, limit_gib=limit_bytes / GIB) if limit_bytes and not own else state


def base_of(state: State) -> Plan:
    """The preset on the page's device with the page's batch."""
    plan = read_plan(state.preset)
    work = replace(plan.workload, micro_batch_size=1, global_batch_size=int(state.global_batch_size))
    # Who shares the optimizer state is for the search to say, as the replicas are.
    layout = replace(plan.parallel, optimizer_shard_size=1, micro_batch_interleave_size=1, layers_per_stage=None)
    parallel = replace(layout, data_parallel_size=1)
    parallel = replace(parallel, expert_parallel_size=1, expert_tensor_parallel_size=0)
    # What is recomputed where is for the search to say too.
    return placed(replace(plan, workload=work, parallel=parallel, recompute=RecomputePlan()), state.device, state.limit_gib)


def search(state: State, progress: Progress | None) -> SearchResult:
    """The search of the state, from memory if it was done before; a stopped one is shown, but not kept."""
    with _lock:
        return _search(state, progress)


def _search(state: State, progress: Progress | None) -> SearchResult:
    key = state.question()
    if key in _searched:
        return _searched[key]
    result = search_plans(
        base_of(state),
        devices=int(state.devices),
        progress=None if progress is None else lambda what, done, total: _tick(progress, what, done, total),
        choices={
            "tp": tuple(size for size in divisors(max(1, int(state.devices))) if size <= state.most_tensor),
            "mbs": state.micro_batches,
            "vpp": state.chunks,
            "zero": state.levels,
            "sp": SEQUENCE[state.sequence],
        },
        scored=_scored,
    )
    if result.complete:
        _searched[key] = result
        while len(_searched) > _KEPT:
            _searched.popitem(last=False)
    return result


def _tick(progress: Progress, what: str, done: int, total: int) -> bool:
    """Whether to go on: no after the visitor's stop, whose result is shown; a newer question ends the search for good."""
    try:
        progress(what, done, total, unit="strategies")
    except Cancelled:
        if not progress.heed():
            raise
        return False
    return True
