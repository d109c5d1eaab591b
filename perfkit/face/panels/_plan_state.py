"""Plan state: the sizes of a plan as a page has them, the controls that change them, and the plan that they make.

A configuration or a published model fills the sizes; every size can then be changed. Pages that ask something of a plan share this.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from perfkit.config.presets import read_plan
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.relaid import resized, respread
from perfkit.core.spec.software import FRAMEWORKS, Framework
from perfkit.core.spec.workload import AttentionKernel, Workload
from perfkit.core.units import GIB
from perfkit.face.widgets import context
from perfkit.face.widgets.control import Choice, Control, Number, Slider, Toggle
from perfkit.predict.limits import with_limit
from perfkit.predict.memory.settings import settings_for
from perfkit.predict.memory.switches import with_full_layers, with_silu_mul

DEFAULT_PRESET = "llama2-13b"
RECOMPUTE = ("as in the file", "none", "Silu and Mul", "attention core", "some layers", "all layers")
SHARING = (("no", 0), ("optimizer state", 1), ("+ gradients", 2), ("+ parameters", 3))
SIZES = {
    "data": "data_parallel_size",
    "tensor": "tensor_parallel_size",
    "pipeline": "pipeline_parallel_size",
    "virtual": "virtual_pipeline_parallel_size",
    "context_size": "context_parallel_size",
    "expert": "expert_parallel_size",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """What is on the page. Choosing another `preset` fills it anew; `filled` is the preset that it was filled from.

    Choosing another device sets the limit to its memory; `limit_of` is the device that the limit was taken from.
    """

    preset: str = DEFAULT_PRESET
    filled: str = ""
    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    virtual: int = 1
    context_size: int = 1
    expert: int = 1
    sequence_parallel: bool = False
    sharing: int = 0
    micro_batch_size: int = 1
    global_batch_size: int = 1
    seq_length: int = 4096
    recompute: str = "none"
    full_layers: int = 1
    attention_kernel: AttentionKernel = "flash"
    schedule: str = "1f1b"
    framework: Framework = "mindspore"
    device: str = "Ascend-910B2"
    limit_gib: float = 0.0
    limit_of: str = ""

    def __post_init__(self) -> None:
        if self.preset != self.filled:
            plan = read_plan(self.preset)
            for name, field in SIZES.items():
                object.__setattr__(self, name, getattr(plan.parallel, field))
            level = plan.parallel.optimizer_shard_level if plan.parallel.optimizer_shard_size > 1 else 0
            values = {
                "sequence_parallel": plan.parallel.sequence_parallel,
                "sharing": level,
                "micro_batch_size": plan.workload.micro_batch_size,
                "global_batch_size": plan.workload.global_batch_size,
                "seq_length": plan.workload.seq_length,
                "attention_kernel": plan.workload.attention_kernel,
                "recompute": "none" if plan.recompute == RecomputePlan() else RECOMPUTE[0],
                "framework": settings_for(plan).framework if plan.document else "mindspore",
                "device": plan.hardware.name if plan.hardware else self.device,
                "filled": self.preset,
            }
            for name, value in values.items():
                object.__setattr__(self, name, value)
        if self.limit_of != self.device:
            object.__setattr__(self, "limit_of", self.device)
            object.__setattr__(self, "limit_gib", limit_gib_of(read_plan(self.preset), self.device))


def limit_gib_of(plan: Plan, device: str) -> float:
    """The limit in GiB that a plan states itself, if the device has as much; else all of the device."""
    usable = on_device(plan, device).usable_memory
    return 0.0 if usable is None else round((usable.limit_bytes or 0) / GIB, 6)


def on_device(plan: Plan, device: str) -> Plan:
    """The plan on another device; a limit of its own that this one cannot hold is left out."""
    hardware = catalog.hardware_named(device)
    limit = plan.memory_limit
    too_large = limit is not None and limit.problem(hardware.name, hardware.memory_bytes)
    return replace(plan, hardware=hardware, memory_limit=None if too_large else limit)


def placed(plan: Plan, device: str, limit_gib: float) -> Plan:
    """The plan on the device and under the limit of the page; its own limit stays where that is the same."""
    found = on_device(plan, device)
    same = abs(limit_gib_of(plan, device) - limit_gib) < 1e-6
    return found if same else with_limit(found, limit_gib * GIB, "the page")


def preset_key(name: str) -> tuple[int, ...]:
    """What tells whether a preset, or a device of the catalogue, is still what it was, for what is kept between two moves.

    A catalogue that was read stays in memory; another one has another id.
    """
    return _changed_ns(name), id(catalog.records()), id(catalog.hardware())


def _changed_ns(name: str) -> int:
    path = Path(name)
    return path.stat().st_mtime_ns if path.exists() else 0


def start() -> State:
    """The project's configuration against its own limit or the project's, else the Llama2-13B of the guides on 16 devices."""
    project = context.current_project()
    if project is None:
        return State()
    config = project.open_config
    state = State(preset=str(config)) if config is not None and config.exists() else State()
    limit_bytes = project.usable_limit_bytes or project.device_memory_bytes
    own = read_plan(state.preset).memory_limit is not None
    return replace(state, limit_gib=limit_bytes / GIB) if limit_bytes and not own else state


def plan_of(state: State) -> Plan:
    base = read_plan(state.preset)
    sizes = {field: int(getattr(state, name)) for name, field in SIZES.items()}
    layout = base.parallel
    same = all(getattr(layout, field) == size for field, size in sizes.items())
    group = int(state.data * state.context_size)
    shards = layout.optimizer_shard_size if same and layout.optimizer_shard_size > 1 else group
    parallel = resized(
        layout,
        **sizes,
        sequence_parallel=state.sequence_parallel,
        optimizer_shard_size=shards if state.sharing else 1,
        optimizer_shard_level=max(1, int(state.sharing)),
        expert_tensor_parallel_size=layout.expert_tensor_parallel_size if same else 0,
    )
    work = replace(
        base.workload,
        seq_length=int(state.seq_length),
        micro_batch_size=int(state.micro_batch_size),
        global_batch_size=int(state.global_batch_size),
        attention_kernel=state.attention_kernel,
    )
    _refuse(parallel, work)
    plan = placed(replace(base, workload=work, parallel=parallel, recompute=RecomputePlan()), state.device, state.limit_gib)
    return replace(plan, recompute=_recompute(state, base, plan))


def _refuse(parallel: ParallelPlan, work: Workload) -> None:
    """Raise what only this page checks: splits of the sequence."""
    pieces = parallel.context_parallel_size * (parallel.tensor_parallel_size if parallel.sequence_parallel else 1)
    if work.seq_length % pieces:
        raise InputError("plan", [f"seq_length = {work.seq_length} is not divisible by {pieces} devices that share a sequence"])


def _recompute(state: State, base: Plan, plan: Plan) -> RecomputePlan:
    return {
        "as in the file": respread(base.recompute, base.stage_layers, plan.stage_layers),
        "none": RecomputePlan(),
        "Silu and Mul": with_silu_mul(plan),
        "attention core": RecomputePlan(attention_core=True),
        "some layers": with_full_layers(plan, int(state.full_layers)),
        "all layers": RecomputePlan(all_layers=True),
    }[state.recompute]


def preset_options(_state: State) -> list[tuple[str, str, str]]:
    configs = [(label, path, f"Configuration ({group})") for label, path, group in context.config_options()]
    return [*configs, *((name, name, "Published models") for name in catalog.models())]


def _layers_of_a_stage(state: State) -> list[float]:
    if not _some_layers(state):
        return [float(state.full_layers)]
    try:
        return [
            float(count) for count in range(1, max(max(row) for row in plan_of(replace(state, recompute="none")).stage_layers) + 1)
        ]
    except InputError:
        return [float(state.full_layers)]


def _some_layers(state: State) -> bool:
    return state.recompute == "some layers"


def _powers(_state: State) -> list[float]:
    return [float(2**power) for power in range(12)]


def _size(path: str, label: str, key: str, help_: str = "") -> Slider:
    return Slider(path=path, low=1, high=2048, values=_powers, label=label, key=key, help=help_)


PLAN_CONTROLS: tuple[Control, ...] = (
    Choice(path="preset", options=preset_options, label="Plan", help="a configuration, or a published model on 16 devices"),
    Choice(path="device", options=lambda _state: list(catalog.hardware()), label="Device"),
    Number(path="limit_gib", low=0.5, high=2048, label="Limit", unit="GiB", key="context.max_device_memory"),
    _size("data", "Data parallel", "parallel_config.data_parallel"),
    _size("tensor", "Tensor parallel", "parallel_config.model_parallel", "must divide the attention heads"),
    _size("pipeline", "Pipeline stages", "parallel_config.pipeline_stage"),
    Slider(path="virtual", low=1, high=16, label="Chunks a stage", key="model.model_config.pp_interleave_num"),
    _size("context_size", "Context parallel", "parallel_config.context_parallel"),
    Slider(
        path="expert",
        low=1,
        high=2048,
        values=_powers,
        label="Expert parallel",
        key="parallel_config.expert_parallel",
        visible=lambda state: bool(read_plan(state.preset).model.num_experts),
    ),
    Number(
        path="micro_batch_size", low=1, high=4096, step=1, label="Micro batch", unit="sequences", key="runner_config.batch_size"
    ),
    Number(path="global_batch_size", low=1, high=1_000_000, step=1, label="Global batch", unit="sequences"),
    Slider(path="seq_length", low=128, high=1_048_576, scale="log", label="Sequence length", unit="tokens"),
    Toggle(path="sequence_parallel", label="Sequence parallel", key="parallel_config.use_seq_parallel"),
    Choice(
        path="sharing",
        options=SHARING,
        buttons=True,
        label="Shared by the optimizer's group",
        key="parallel.enable_parallel_optimizer",
    ),
    Choice(path="recompute", options=RECOMPUTE, label="Recompute", key="recompute_config"),
    Slider(
        path="full_layers",
        low=1,
        high=1024,
        values=_layers_of_a_stage,
        label="Layers a stage, recomputed in full",
        visible=_some_layers,
    ),
    Choice(path="attention_kernel", options=("flash", "unfused"), buttons=True, label="Attention kernel"),
    Choice(path="schedule", options=("1f1b", "gpipe", "zbh1", "vpp_lm", "dualpipe"), label="Pipeline schedule"),
    Choice(path="framework", options=FRAMEWORKS, label="Framework", help="decides buffers, copies and the reserve"),
)
