"""Plan entries: the controls that change a plan or its model, named as `perfkit.predict.changes` names what they change.

    @widgets.step(base=open_plan, **plan_entries())
    def does_it_fit(base, **changes):
        return memory_fit(changed_plan(base, **changes))

The plan `base`, which the step must follow under that name, fills them, anew when it becomes another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perfkit.config.presets import read_plan
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan, even_layers
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.software import FRAMEWORKS
from perfkit.core.units import GIB, TERA
from perfkit.face.widgets import context
from perfkit.face.widgets.entries import Choice, Entry, Folder, Number, Slider, Toggle
from perfkit.predict.changes import AS_PLANNED, RECOMPUTATIONS, limit_gib_of, on_device, shard_level_of
from perfkit.project import Project

USUAL_DEVICE = "Ascend-910B2"
"""Of a plan that names none, as a published model."""
SHARING = (("no", 0), ("optimizer state", 1), ("+ gradients", 2), ("+ parameters", 3))
POWERS = tuple(2**power for power in range(12))


def plan_entries(*only: str, without: Iterable[str] = ()) -> dict[str, Entry]:
    """Controls by what they change, in the order in which they are drawn: all but those `without`, or `only` the named ones."""
    left_out = frozenset(without)
    return {name: entry for name, entry in _entries().items() if name not in left_out and (not only or name in only)}


def _entries() -> dict[str, Entry]:
    return {
        "device": Choice(lambda: list(catalog.hardware()), default=device_of, label="Device"),
        "limit_gib": Number(limit_gib, low=0.5, high=2048, label="Limit", unit="GiB", key="context.max_device_memory"),
        **_sizes(),
        **_work(),
        "sequence_parallel": Toggle(
            lambda base: base.parallel.sequence_parallel, label="Sequence parallel", key="parallel_config.use_seq_parallel"
        ),
        "optimizer_shard_level": Choice(
            *SHARING,
            default=lambda base: shard_level_of(base.parallel),
            label="Shared by the optimizer's group",
            key="parallel.enable_parallel_optimizer",
        ),
        "recompute": Choice(
            AS_PLANNED,
            *RECOMPUTATIONS,
            default=lambda base: "none" if base.recompute == RecomputePlan() else AS_PLANNED,
            label="Recompute",
            key="recompute_config",
        ),
        "full_layers": Slider(
            1,
            1024,
            values=_layers_of_a_chunk,
            label="Layers a stage, recomputed in full",
            visible=lambda recompute: recompute == "some layers",
        ),
        "attention_kernel": Choice(
            "flash", "unfused", default=lambda base: base.workload.attention_kernel, label="Attention kernel"
        ),
        "framework": Choice(
            *FRAMEWORKS,
            default=lambda base, device: on_device(base, device).program,
            label="Framework",
            help="decides buffers, copies and the reserve",
        ),
    }


def _sizes() -> dict[str, Entry]:
    return {
        "data_parallel_size": _size("data_parallel_size", label="Data parallel", key="parallel_config.data_parallel"),
        "tensor_parallel_size": _size(
            "tensor_parallel_size",
            label="Tensor parallel",
            key="parallel_config.model_parallel",
            help="must divide the attention heads",
        ),
        "pipeline_parallel_size": _size("pipeline_parallel_size", label="Pipeline stages", key="parallel_config.pipeline_stage"),
        "virtual_pipeline_parallel_size": Slider(
            1,
            16,
            default=lambda base: base.parallel.virtual_pipeline_parallel_size,
            label="Chunks a stage",
            key="model.model_config.pp_interleave_num",
        ),
        "context_parallel_size": _size("context_parallel_size", label="Context parallel", key="parallel_config.context_parallel"),
        "expert_parallel_size": Slider(
            values=POWERS,
            default=lambda base: base.parallel.expert_parallel_size,
            label="Expert parallel",
            key="parallel_config.expert_parallel",
            visible=lambda base: bool(base.model.num_experts),
        ),
    }


def _size(field: str, *, label: str, key: str, help: str = "") -> Slider:
    return Slider(
        values=lambda base: _with_own(getattr(base.parallel, field)),
        default=lambda base: getattr(base.parallel, field),
        label=label,
        key=key,
        help=help,
    )


def _work() -> dict[str, Entry]:
    return {
        "micro_batch_size": Number(
            lambda base: base.workload.micro_batch_size,
            low=1,
            high=4096,
            step=1,
            label="Micro batch",
            unit="sequences",
            key="runner_config.batch_size",
        ),
        "global_batch_size": Number(
            lambda base: base.workload.global_batch_size, low=1, high=1_000_000, step=1, label="Global batch", unit="sequences"
        ),
        "seq_length": Slider(
            128,
            1_048_576,
            scale="log",
            default=lambda base: base.workload.seq_length,
            label="Sequence length",
            unit="tokens",
        ),
    }


def device_of(base: Plan) -> str:
    """The device of a plan, else the usual one."""
    return base.hardware.name if base.hardware else USUAL_DEVICE


def limit_gib(base: Plan, device: str) -> float:
    """The limit that the plan states if the device has as much, else the project's on its own device, else all of it."""
    own = limit_gib_of(on_device(base, device))
    project = project_on(base, device)
    asked = (project.usable_limit_bytes or project.device_memory_bytes) if project is not None else None
    if base.memory_limit is not None or not asked:
        return own
    return min(own, round(asked / GIB, 6))


def peak_tflops(base: Plan, device: str) -> float:
    """The peak in TFLOP/s that MFU is a share of: the project's on its own device, else the device's in the plan's precision."""
    project = project_on(base, device)
    if project is not None and project.peak_flops_per_s:
        return project.peak_flops_per_s / TERA
    known = catalog.hardware_named(device).peak_flops_per_s
    return known.get(base.workload.dtype, next(iter(known.values()))) / TERA


def configuration(label: str, help: str = "") -> Folder:
    """A control for the configuration of a training, none at first; its value is a path."""
    return Folder("", context.config_options, label=label, help=help)


def config_peak_tflops(config: str) -> float:
    """`peak_tflops` of the configuration at a path; where none is chosen the project's, else that of the usual device."""
    try:
        if config:
            base = read_plan(config)
            return peak_tflops(base, device_of(base))
    except InputError:  # the answer says what is wrong with it
        pass
    project = context.current_project()
    own = project.peak_flops_per_s if project is not None else None
    return (own or catalog.hardware_named(USUAL_DEVICE).peak("bfloat16")) / TERA


def project_on(base: Plan, device: str) -> Project | None:
    """The page's project where peak and limit that it states are those of a plan on `device`, else None.

    They are of the device of its own configuration, of the plan's where it has none open: other devices have their own. Those of
    the sample project are of no configuration that lies elsewhere.
    """
    project = context.current_project()
    if project is None or device != device_of(base):
        return None
    place = base.document.path if base.document is not None else None
    if project.sample_case and place is not None and not place.is_relative_to(project.folder):
        return None
    own = project.open_config
    try:
        return project if own is None or not own.exists() or device_of(read_plan(str(own))) == device else None
    except InputError:  # the pages of the configuration say what is wrong with it
        return None


def limits_gib(base: Plan, device: str, limit_gib: float | None) -> Sequence[float]:
    """The limits of a slider: whole GiB of the device, all of it, and what stands there."""
    memory = catalog.hardware_named(device).memory_bytes / GIB
    own = () if limit_gib is None else (min(limit_gib, memory),)
    return sorted({*map(float, range(2, int(memory) + 1)), memory, *own})


def _with_own(size: int) -> Sequence[float]:
    """The sizes to choose from: powers of two, and the plan's own."""
    return sorted({*POWERS, size})


def _layers_of_a_chunk(base: Plan, pipeline_parallel_size: int, virtual_pipeline_parallel_size: int) -> Sequence[float]:
    sizes = (pipeline_parallel_size, virtual_pipeline_parallel_size)
    own = (base.parallel.pipeline_parallel_size, base.parallel.virtual_pipeline_parallel_size)
    layers = base.stage_layers if sizes == own else even_layers(base.model.num_layers, *sizes)
    return range(1, max(1, *map(max, layers)) + 1)


def model_entries() -> dict[str, Entry]:
    """The sizes of the model of the plan `base`, for `changed_model`."""
    return {
        "hidden_size": _dimension("hidden_size", 64, 65_536, label="Hidden size", key="model.model_config.hidden_size"),
        "num_layers": _dimension("num_layers", 1, 1024, label="Layers", key="model.model_config.num_layers"),
        "num_attention_heads": _dimension(
            "num_attention_heads", 1, 512, label="Attention heads", key="model.model_config.num_heads"
        ),
        "num_key_value_heads": Slider(
            values=lambda num_attention_heads: [
                size for size in range(1, num_attention_heads + 1) if num_attention_heads % size == 0
            ],
            default=lambda base: base.model.num_key_value_heads,
            label="Key-value heads",
            key="model.model_config.n_kv_heads",
            help="must divide the attention heads",
        ),
        "ffn_hidden_size": _dimension(
            "ffn_hidden_size", 64, 262_144, label="FFN hidden size", key="model.model_config.intermediate_size"
        ),
        "vocab_size": Number(
            lambda base: base.model.vocab_size,
            low=1,
            high=10_000_000,
            step=1,
            label="Vocabulary",
            unit="tokens",
            key="model.model_config.vocab_size",
        ),
    }


def _dimension(field: str, low: int, high: int, *, label: str, key: str) -> Slider:
    return Slider(low, high, scale="log", default=lambda base: getattr(base.model, field), label=label, key=key)
