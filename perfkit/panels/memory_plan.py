"""Memory plan: the peak of every stage against the card's limit, what it is made of, and which switch buys how much.

A configuration or a published model fills the sizes; every size can then be changed. The guides' figures stand beside the exact
ones with the reason. An impossible plan is answered with all reasons at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from perfkit import catalog
from perfkit.calc._memory_guide import activation_table, static_table
from perfkit.calc._memory_layout import stage_layers
from perfkit.calc._memory_settings import FRAMEWORKS, SOURCES, Framework, MemorySettings, preset, settings_for
from perfkit.calc._memory_switches import Switch, switches, with_full_layers, with_silu_mul
from perfkit.calc.memory import MemoryEstimate, peak_memory
from perfkit.charts.memory import stage_bars, stage_rows, switch_bars, switch_rows
from perfkit.dialects import read_config
from perfkit.errors import InputError
from perfkit.panels import _context as context
from perfkit.panels._chart import Figure
from perfkit.panels._control import Choice, Number, Slider, Toggle
from perfkit.panels._panel import Answer, Panel
from perfkit.panels._table import Table
from perfkit.spec.parallel import ParallelPlan
from perfkit.spec.plan import Plan
from perfkit.spec.recompute import RecomputePlan
from perfkit.spec.workload import AttentionKernel, Workload
from perfkit.units import GIB, format_bytes, format_ratio

DEFAULT_PRESET = "llama2-13b"
RECOMPUTE = ("as in the file", "none", "Silu and Mul", "attention core", "some layers", "all layers")
SHARING = (("no", 0), ("optimizer state", 1), ("+ gradients", 2), ("+ parameters", 3))
AMPLE_HEADROOM = 0.1
"""Share of the limit above which giving up recomputation comes first."""
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
            plan = preset_plan(self.preset)
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
            object.__setattr__(self, "limit_gib", catalog.hardware_named(self.device).memory_bytes / GIB)


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """All that the page shows."""

    state: State
    plan: Plan
    settings: MemorySettings
    estimate: MemoryEstimate
    switches: tuple[Switch, ...]

    @property
    def limit_bytes(self) -> float:
        """The limit of a device."""
        return self.state.limit_gib * GIB


def preset_plan(name: str) -> Plan:
    """The plan of a preset: the path of a configuration, or a model of the catalogue on 16 devices."""
    if name not in catalog.models():
        return read_config(name)
    record = catalog.records()[name]
    layout = ParallelPlan(
        data_parallel_size=8, pipeline_parallel_size=2 if record.spec.num_layers > 1 else 1, optimizer_shard_size=8
    )
    work = Workload(seq_length=record.seq_length, micro_batch_size=1, global_batch_size=256)
    return Plan(model=record.spec, workload=work, parallel=layout)


def start() -> State:
    """The project's configuration against its usable limit, else the Llama2-13B of the guides on 16 devices."""
    project = context.current_project()
    if project is None:
        return State()
    config = project.open_config
    state = State(preset=str(config)) if config is not None and config.exists() else State()
    limit_bytes = project.usable_limit_bytes or project.device_memory_bytes
    return replace(state, limit_gib=limit_bytes / GIB) if limit_bytes else state


def compute(state: State) -> Result:
    """Estimate the plan and every switch; raises InputError with every reason why the plan is impossible."""
    plan = _plan(state)
    settings = preset(state.framework, state.device)
    estimate = peak_memory(plan, schedule=state.schedule, settings=settings)
    return Result(state=state, plan=plan, settings=settings, estimate=estimate, switches=switches(plan, settings, state.schedule))


def _plan(state: State) -> Plan:
    base = preset_plan(state.preset)
    sizes = {field: int(getattr(state, name)) for name, field in SIZES.items()}
    layout = base.parallel
    same = all(getattr(layout, field) == size for field, size in sizes.items())
    group = int(state.data * state.context_size)
    shards = layout.optimizer_shard_size if same and layout.optimizer_shard_size > 1 else group
    parallel = replace(
        layout,
        **sizes,  # type: ignore[arg-type]
        sequence_parallel=state.sequence_parallel,
        optimizer_shard_size=shards if state.sharing else 1,
        optimizer_shard_level=max(1, int(state.sharing)),
        layers_per_stage=layout.layers_per_stage if same else None,
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
    plan = replace(base, workload=work, parallel=parallel, recompute=RecomputePlan(), hardware=catalog.hardware_named(state.device))
    return replace(plan, recompute=_recompute(state, base, plan))


def _refuse(parallel: ParallelPlan, work: Workload) -> None:
    """Raise what only this page checks: splits of the sequence."""
    pieces = parallel.context_parallel_size * (parallel.tensor_parallel_size if parallel.sequence_parallel else 1)
    if work.seq_length % pieces:
        raise InputError("plan", [f"seq_length = {work.seq_length} is not divisible by {pieces} devices that share a sequence"])


def _recompute(state: State, base: Plan, plan: Plan) -> RecomputePlan:
    return {
        "as in the file": base.recompute,
        "none": RecomputePlan(),
        "Silu and Mul": with_silu_mul(plan),
        "attention core": RecomputePlan(attention_core=True),
        "some layers": with_full_layers(plan, int(state.full_layers)),
        "all layers": RecomputePlan(all_layers=True),
    }[state.recompute]


def view(result: Result) -> Answer:
    """Stages and switches as charts; parts, switches, the guides' figures and the tensors of a layer as tables."""
    limit, peak = result.limit_bytes, result.estimate.peak
    possible = [(found.name, found.price, float(found.estimate.peak.total)) for found in result.switches if found.estimate]
    charts = {
        "stages": Figure(
            chart=stage_bars(stage_rows(result.estimate.stages, limit)),
            title="Peak of one device by pipeline stage, against the limit",
            alt=_sentence(result),
            sources=[peak.source, "published: arXiv 2205.05198, table 2 (activations)", *_assumptions(result)],
            table="stages",
            wide=True,
        ),
        "switches": Figure(
            chart=switch_bars(switch_rows(float(peak.total), possible, limit)),
            title="Which switch buys how much",
            alt="Each bar goes from the present peak to the peak with one change.",
            sources=["computed: perfkit.calc.memory.peak_memory of the changed plan"],
            table="switches",
            wide=True,
        ),
    }
    tables = {
        "parts": Table(frame=_parts(result), title=f"What stage {result.estimate.fullest_stage} holds at its peak"),
        "switches": Table(frame=_switch_table(result), title="Switches, each on its own"),
        "static": Table(
            frame=static_table(result.plan, result.settings, result.estimate.fullest_stage),
            title="Static memory: the guide's 10N beside the exact count",
        ),
        "layer": Table(
            frame=_layer(result), title="One layer and micro batch: what this model keeps, and the guide's GPT with dropout"
        ),
    }
    return Answer(charts, tables, _sentence(result), _notes(result))


def _parts(result: Result) -> pd.DataFrame:
    frame = result.estimate.peak.to_frame().rename(columns={"path": "part", "amount": "peak_bytes"})
    return frame.sort_values("peak_bytes", ascending=False, ignore_index=True)


def _switch_table(result: Result) -> pd.DataFrame:
    peak = result.estimate.peak.total
    return pd.DataFrame(
        [
            {
                "switch": found.name,
                "peak_bytes": found.estimate.peak.total if found.estimate else None,
                "saved_bytes": peak - found.estimate.peak.total if found.estimate else None,
                "fits": "" if not found.estimate else "yes" if found.estimate.fits(result.limit_bytes) else "no",
                "price": found.price if found.estimate else f"impossible: {found.why_not}",
            }
            for found in result.switches
        ]
    )


def _layer(result: Result) -> pd.DataFrame:
    model = result.plan.model
    return activation_table(result.plan, result.settings, experts=bool(model.num_experts and not model.num_dense_layers))


def _sentence(result: Result) -> str:
    estimate, limit = result.estimate, result.limit_bytes
    peak = int(estimate.peak.total)
    where = f"stage {estimate.fullest_stage}" if len(estimate.stages) > 1 else "every device"
    name = result.plan.model.name or Path(result.state.preset).name
    text = f"{name} on {result.plan.num_devices} devices: {where} needs {format_bytes(peak)} {estimate.moment}, "
    if estimate.fits(limit):
        return f"{text}{format_bytes(limit - peak)} less than the limit of {format_bytes(limit)}."
    return f"{text}{format_bytes(peak - limit)} more than the limit of {format_bytes(limit)}. It does not fit."


def _notes(result: Result) -> tuple[str, ...]:
    estimate, limit, notes = result.estimate, result.limit_bytes, []
    peak = estimate.peak.total
    if not estimate.fits(limit):
        fitting = [found for found in result.switches if found.estimate and found.estimate.fits(limit)]
        names = ", ".join(found.name for found in fitting[::-1][:3])
        notes.append(f"One switch is enough: {names}." if names else "No single switch is enough; combine them.")
    elif (limit - peak) / limit > AMPLE_HEADROOM:
        notes.append(_with_headroom(result))
    leaves = estimate.peak.amount("dynamic/activations") / peak
    notes.append(
        f"Activations are {format_ratio(leaves)} of the peak; the guide's table counts one layer of a GPT with dropout and without "
        f"flash attention (X10), and its static 10N has neither gradients nor master weights (X09)."
    )
    return tuple(notes)


def _with_headroom(result: Result) -> str:
    free = format_bytes(result.limit_bytes - result.estimate.peak.total)
    if result.plan.recompute == RecomputePlan():
        return f"{free} are left: a larger micro batch or fewer slices of the model are worth a try."
    plain = next((found.estimate for found in result.switches if found.name == "recompute nothing" and found.estimate), None)
    if plain is not None and plain.fits(result.limit_bytes):
        return f"{free} are left: first give up recomputation, the peak would be {format_bytes(plain.peak.total)}."
    return f"{free} are left: first recompute fewer layers; without any the peak would be too high."


def _assumptions(result: Result) -> list[str]:
    shown = {name: getattr(result.settings, name) for name in ("context_bytes", "fragmentation")}
    return [f"assumed: {name.replace('_', ' ')} ({SOURCES[name]})" for name, value in shown.items() if value]


def _presets(_state: State) -> list[tuple[str, str, str]]:
    configs = [(label, path, f"Configuration ({group})") for label, path, group in context.config_options()]
    return [*configs, *((name, name, "Published models") for name in catalog.models())]


def _layers_of_a_stage(state: State) -> list[float]:
    try:
        return [
            float(count) for count in range(1, max(max(row) for row in stage_layers(_plan(replace(state, recompute="none")))) + 1)
        ]
    except InputError:
        return [float(state.full_layers)]


def _powers(_state: State) -> list[float]:
    return [float(2**power) for power in range(12)]


def _size(path: str, label: str, key: str, help_: str = "") -> Slider:
    return Slider(path=path, low=1, high=2048, values=_powers, label=label, key=key, help=help_)


PANEL = Panel(
    title="Memory of one device",
    start=start,
    compute=compute,
    view=view,
    shared=("preset",),
    controls=(
        Choice(path="preset", options=_presets, label="Plan", help="a configuration, or a published model on 16 devices"),
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
            visible=lambda state: bool(preset_plan(state.preset).model.num_experts),
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
            visible=lambda state: state.recompute == "some layers",
        ),
        Choice(path="attention_kernel", options=("flash", "unfused"), buttons=True, label="Attention kernel"),
        Choice(path="schedule", options=("1f1b", "gpipe", "zbh1", "vpp_lm", "dualpipe"), label="Pipeline schedule"),
        Choice(path="framework", options=FRAMEWORKS, label="Framework", help="decides buffers, copies and the reserve"),
    ),
)
