"""The plan of the arguments of Hugging Face's Trainer, by their names in `transformers/training_args.py`.

Without DeepSpeed and FSDP every device has a copy, in the precision in which the model is loaded, and layers compute in 16 bits
beside it (autocast). Adapters of PEFT are kept in 32 bits. What a plan cannot say (quantised weights, rewards, adapters of which
not all is stated) is named by `data/key_effects.toml`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from perfkit.config.dialects import _slurm
from perfkit.config.dialects._adapters import Named, with_adapters
from perfkit.config.dialects._deepspeed_engine import OPTIMIZERS
from perfkit.config.dialects._model_beside import model_beside
from perfkit.config.dialects._section import Section, shown
from perfkit.config.dialects._trained_layers import Frozen, Rule, told
from perfkit.config.dialects._trainer_sharing import Sharing, sharing_of, with_settings_beside
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.optimizer import OptimizerSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.software import SoftwareSpec
from perfkit.core.spec.workload import AttentionKernel, Workload

USUAL_DEVICES = 8
LORA = "LoraConfig"
"""The call of PEFT in Python that says what is trained."""
TUNED = "lora: the program's own; adapters alone are trained; time and memory are estimated too high, as if all weights were"
EACH = ("nproc_per_node", "num_gpus", "NPROC_PER_NODE", "PET_NPROC_PER_NODE")
NODES = ("nnodes", "num_nodes", "NNODES", "PET_NNODES")
ALL, WORLD = ("num_processes", "ray_num_workers"), ("WORLD_SIZE",)
OF_LAUNCHER = ("nproc_per_node", "num_gpus")
"""Options of launchers that start one node unless they are told of more."""
BATCH = ("per_device_train_batch_size", "per_gpu_train_batch_size")
VISIBLE = ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")
MODEL = ("model_name_or_path", "model_id_or_path", "model_name", "model_id", "model")
KERNELS: Mapping[str, AttentionKernel] = {
    **dict.fromkeys(
        ("auto", "sdpa", "fa2", "fa3", "fa4", "flash_attention_2", "flash_attention_3", "flash_attn", "flex_attention"), "flash"
    ),
    **dict.fromkeys(("eager", "disabled", "off"), "unfused"),
}
KERNEL_KEYS = ("flash_attn", "attn", "attn_implementation", "attn_impl", "use_flash_attn", "use_flash_attention_2")
ADAM = (
    *("adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_apex_fused", "adamw_torch_xla", "adamw_torch_npu_fused", "adamw_8bit"),
    *("adamw_bnb_8bit", "paged_adamw_8bit", "paged_adamw_32bit", "paged_adamw", "adamw_torch_8bit", "stable_adamw"),
)
OPTIMIZER_STATES = {
    "sgd": 0,
    "adafactor": 0,
    "lion_32bit": 4,
    "paged_lion_32bit": 4,
    "lion_8bit": 1,
    "paged_lion_8bit": 1,
    "adagrad": 4,
}
OPTIMIZER_STATES |= {"rmsprop": 4, "rmsprop_bnb": 4, "rmsprop_bnb_8bit": 1, "rmsprop_8bit": 1, "adamw_torch_4bit": 1, "lomo": 0}
"""Bytes of state a parameter of the other optimizers; Adafactor keeps a row and a column of each matrix."""
DTYPES = {
    "bfloat16": "bfloat16",
    "float16": "float16",
    "float32": "float32",
    "half": "float16",
    "bf16": "bfloat16",
    "fp16": "float16",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What a program takes that its arguments do not say, or say in words of its own.

    `length` are the tokens of a sample, `repeats` whether layers are computed again, `stored` the precision in which weights are
    loaded and kept, `dtype` that of layers, `devices` how many there are where nothing counts them, `batch` the samples of
    a device at a time. `adapters` says where those that are trained are stated (None: all weights are), `method` is the key by
    which the program would have been told so, if it was not, and `frozen_as_layers` that frozen weights are kept in the precision
    of layers. `frozen` finds which layers are trained, by keys that are `asked` once they are counted.
    """

    dialect: str
    length: int
    repeats: bool
    stored: str
    dtype: str
    devices: int = USUAL_DEVICES
    batch: int = 8
    adapters: Named | None = None
    method: str = ""
    frozen_as_layers: bool = False
    frozen: Rule | None = None
    asked: tuple[str, ...] = ()


def plan_of(options: Section, job: Job) -> Plan:
    """The plan of the arguments. Raises InputError with every problem, each with line, key and value."""
    options = with_settings_beside(options)
    reading = options.reading
    named = options.word(*MODEL, default="")
    found = model_beside(reading, MODEL[0], "" if "$" in named else named)
    adapted, frozen = _trained(options, found[0], job) if found else (None, None)
    sharing = sharing_of(options, job.batch)
    engine = sharing.engine
    tensor = max(options.positive_int("tp_size", default=1), engine.tensor if engine else 1)
    context = max(options.positive_int("sequence_parallel_size", "cp_size", "sp_size", default=1), engine.context if engine else 1)
    stages = engine.stages if engine else 1
    devices = _devices(options, job.devices)
    replicas, rest = divmod(devices, tensor * context * stages)
    if rest or not replicas:
        reading.problem(
            "num_processes", f"{devices} devices are no multiple of tensor x context x stages = {tensor * context * stages}"
        )
    inside = sharing.inside
    if inside and replicas > inside and replicas % inside:
        reading.default(
            "optimizer_shard_size", f"{replicas}: a hybrid shares in nodes of {inside}, which {replicas} devices do not fill"
        )
        inside = 0
    micro = options.positive_int(*BATCH, default=job.batch)
    if not options.has(*BATCH):
        reading.default("micro_batch_size", f"{job.batch}: the program's own")
    steps = options.positive_int("gradient_accumulation_steps", default=1)
    exchanged = context > 1 and not _is_ring(options)
    if replicas > 1 and not sharing.framework:
        told = "1: neither deepspeed nor fsdp is stated, so every device has a copy; a file for accelerate may say otherwise"
        reading.default("optimizer_shard_size", told)
    dtype = _dtype(options, job.dtype, sharing)
    kernel = _kernel(options)
    has_adapters = adapted is not None and adapted.adapters is not None
    stored = dtype if (has_adapters or frozen) and job.frozen_as_layers and dtype != "float8" else job.stored
    apart = has_adapters or (frozen is not None and job.frozen_as_layers and job.stored == "float32")
    optimizer = reading.build(lambda: _optimizer(options, stored, dtype, sharing, adapted=apart))
    reading.stop_if_problems()
    assert found is not None
    _, sequence = found
    shards = min(replicas, inside or replicas) * context
    stated = RecomputePlan(all_layers=job.repeats or sharing.repeats)
    document = reading.annotated(job.dialect, options.values)
    return reading.plan(
        model=adapted,
        workload=reading.build(
            lambda: Workload(
                seq_length=job.length,
                micro_batch_size=micro,
                global_batch_size=micro * steps * replicas,
                dtype=dtype,
                attention_kernel=kernel,
                dropout=sequence.dropout,
            )
        ),
        parallel=reading.build(
            lambda: ParallelPlan(
                data_parallel_size=replicas,
                tensor_parallel_size=tensor,
                pipeline_parallel_size=stages,
                context_parallel_size=context,
                context_parallel_algorithm="ulysses" if exchanged else "ring",
                expert_parallel_size=engine.experts if engine else 1,
                optimizer_shard_size=shards if sharing.level else 1,
                optimizer_shard_level=max(1, sharing.level),
            )
        ),
        recompute=frozen.recompute(stated) if frozen else stated,
        optimizer=optimizer,
        software=SoftwareSpec(framework=sharing.framework or "fsdp", overlap_dp=engine.overlap if engine else True),
        document=replace(
            document, unread=(*document.unread, *sharing.unread), unknown=(*document.unknown, *sharing.unknown)
        ),
    )  # fmt: skip


def _trained(options: Section, model: ModelSpec, job: Job) -> tuple[ModelSpec, Frozen | None]:
    """The model with the adapters or the layers that are trained, if that is what the job does and all of it is known."""
    frozen = job.frozen(options, model, repeats=job.repeats) if job.frozen else None
    if frozen is None:
        return _adapted(options, model, job), None
    options.asked(*job.asked)
    options.reading.note(told(frozen.trained))
    return replace(model, trained_layers=frozen.trained), frozen


def _adapted(options: Section, model: ModelSpec, job: Job) -> ModelSpec:
    """The model with the adapters that are trained, if that is what the job does and all of it is known."""
    config = options.section(LORA) if job.adapters is not None and options.has(LORA) else options
    found = with_adapters(config, model, job.adapters) if job.adapters else model
    if job.method:
        options.reading.default(job.method, "lora: the program's own" if found.adapters else TUNED)
    return found


def _is_ring(options: Section) -> bool:
    return "ring" in options.word("sequence_parallel_mode", default="ulysses")


def _devices(options: Section, usual: int) -> int:
    """Devices by what starts the processes; a number that the text leaves to its caller is the usual one, and said.

    WORLD_SIZE counts nodes where a cluster's launcher sets it and processes where torch does: only where nothing else counts.
    """
    each, stated, together, world = (_first(options, keys) for keys in (EACH, NODES, ALL, WORLD))
    asked, held = (_first(options, (key,)) for key in (_slurm.NODES, _slurm.DEVICES))
    options.asked(*VISIBLE)  # they count only where no launcher does
    if together:
        return together
    nodes = stated or (1 if options.has(*OF_LAUNCHER) else asked) or 1
    if nodes > 1 and not stated and not world:
        options.reading.default("nodes", f"{nodes}, of the job; nothing tells the program so (NNODES), and each may train alone")
    if each:
        return each * nodes
    included = options.raw("include")
    if isinstance(included, str) and "$" not in included:
        return sum(_slots(part, options) for part in included.split("@"))
    visible = [str(value) for key in VISIBLE if (value := options.raw(key)) is not None]
    if visible and "$" not in visible[0]:
        return max(1, len([word for word in visible[0].split(",") if word.strip()])) * nodes
    if world and not stated:
        return world
    if held:
        return held * nodes
    told = "the file does not say how many devices are started"
    if nodes > 1:
        told = f"{usual} on each of {nodes} nodes; the file does not say how many devices a node has"
    options.reading.default("data_parallel_size", f"{usual * nodes}: {told}")
    return usual * nodes


def _slots(part: str, options: Section) -> int:
    """The devices of a node of DeepSpeed's `--include`, `name:0,1`; a name alone has all of its own."""
    _, _, slots = part.partition(":")
    if not slots:
        options.reading.default("data_parallel_size", f"{USUAL_DEVICES} on {part}: the file does not say how many it has")
    return len([word for word in slots.split(",") if word.strip()]) or USUAL_DEVICES


def _first(options: Section, keys: tuple[str, ...]) -> int:
    """The first of the keys that has a plain number, or 0."""
    values = [options.raw(key) for key in keys]
    numbers = [int(value) for value in values if isinstance(value, int | str) and str(value).isdecimal()]
    return numbers[0] if numbers else 0


def _dtype(options: Section, usual: str, sharing: Sharing) -> str:
    """The precision of layers: of the switches, else what the program takes; DeepSpeed's file may say it too."""
    half, short = options.flag("bf16", default=usual == "bfloat16"), options.flag("fp16", default=usual == "float16")
    if options.has("fp16") and not options.has("bf16"):
        half = half and not short
    if half and short:
        options.reading.problem("fp16", "True stands beside bf16, which the library refuses; keep one")
    dtype = "bfloat16" if half or options.flag("pure_bf16", default=False) else "float16" if short else "float32"
    stated, off = (sharing.engine.dtype, sharing.engine.off) if sharing.engine else ("", ())
    if stated and stated != dtype:
        told = f'{stated} is enabled beside the argument\'s {dtype}, which the library refuses; write "auto"'
        options.reading.problem("deepspeed", told)
    elif dtype in off:
        told = f'{dtype} is switched off beside the argument that switches it on, which the library refuses; write "auto"'
        options.reading.problem("deepspeed", told)
    return "float8" if options.flag("fp8", default=False) else dtype


def _kernel(options: Section) -> AttentionKernel:
    value = options.raw(*KERNEL_KEYS)
    if value is None or value is True:
        return "flash"
    word = "off" if value is False else str(value)
    if "$" in word:
        options.reading.default("attention_kernel", f"flash: the file leaves it to {word}")
        return "flash"
    if word not in KERNELS and not word.startswith("kernels-community/"):
        key = options.has(*KERNEL_KEYS)
        near = difflib.get_close_matches(word, KERNELS, n=1, cutoff=0)[0]
        options.reading.problem(key, f"{shown(value)} must be one of {', '.join(KERNELS)}; nearest is {near}")
    return KERNELS.get(word, "flash")


def _optimizer(options: Section, stored: str, dtype: str, sharing: Sharing, *, adapted: bool) -> OptimizerSpec:
    """Where weights and states are kept in which precision: DeepSpeed and FSDP keep them in 32 bits beside those of 16.

    Adapters of PEFT, which have 32 bits, are counted as a copy beside one of the width of the frozen weights.
    """
    word = options.word("optim", default="adamw_torch")
    layers = "bfloat16" if dtype == "float8" else dtype
    pure = stored != "float32"
    fields: dict[str, Any] = {"name": "AdamW"}
    kept = "float32"
    if sharing.engine:
        fields |= {"master_weights": layers != "float32", "gradient_dtype": sharing.engine.gradient_dtype(layers)}
        if kind := sharing.engine.optimizer:
            fields["name"], word = OPTIMIZERS.get(kind.lower(), kind), "adamw_torch"
    elif sharing.framework:
        fields |= {"master_weights": not pure and layers != "float32", "gradient_dtype": layers}
        kept = stored
    else:
        fields |= {
            "master_weights": adapted and pure,
            "parameter_dtype": stored,
            "gradient_dtype": "float32" if adapted else stored,
        }
        kept = "float32" if adapted else stored
    return OptimizerSpec(**fields, **_states(options, word, "float32" if kept == "float16" else kept))


def _states(options: Section, word: str, kept: str) -> dict[str, Any]:
    """The moments by the name of the optimizer."""
    if options.flag("use_muon", default=False):
        return {"matrix_state_bytes_per_parameter": 4}
    if word in ADAM:
        if word.startswith("paged"):
            options.reading.default("optim", f"{word}: states are counted on the device; where it is full they move to the host")
        return {"moment_dtype": "float8" if "8bit" in word else "float32" if "32bit" in word else kept}
    if word in OPTIMIZER_STATES:
        return {"state_bytes_per_parameter": OPTIMIZER_STATES[word]}
    options.reading.default("optim", f"AdamW: the states of {word} are not known here; two moments are counted")
    return {"moment_dtype": kept}


def length_of(options: Section, keys: tuple[str, ...], usual: int, *, packed: bool) -> int:
    """Tokens of a sample: what the file says at most, else what the program takes; samples that are not packed are shorter."""
    stated = options.positive_int(*keys, default=usual)
    if not options.has(*keys):
        options.reading.default("seq_length", f"{stated}: the file does not say how long samples are")
    elif not packed:
        options.reading.default(
            "seq_length", f"{stated}: the longest that a sample may be; shorter ones need less, as they are not packed"
        )
    return stated


def settings(plan: Plan) -> dict[tuple[str, ...], Any]:
    """What the plan says in the Trainer's arguments; the number of devices is what starts it."""
    work, parallel = plan.workload, plan.parallel
    shared = parallel.optimizer_shard_size > 1
    half, short = work.dtype in ("bfloat16", "float8"), work.dtype == "float16"
    values: dict[str, Any] = {
        "model_name_or_path": plan.model.name,
        "per_device_train_batch_size": work.micro_batch_size,
        "gradient_accumulation_steps": plan.num_micro_batches,
        "bf16": half,
        "fp16": short,
        "optim": next(_names_of(plan.optimizer)),
    }
    if shared and plan.software.framework == "fsdp":
        values["fsdp"] = {3: "full_shard", 2: "shard_grad_op"}.get(parallel.optimizer_shard_level, "full_shard") + " auto_wrap"
    found: dict[tuple[str, ...], Any] = {(key,): value for key, value in values.items()}
    if plan.software.framework != "fsdp":
        found |= _engine_settings(plan, half=half, short=short)
    return found


def _engine_settings(plan: Plan, *, half: bool, short: bool) -> dict[tuple[str, ...], Any]:
    parallel = plan.parallel
    values: dict[tuple[str, ...], Any] = {
        ("zero_optimization", "stage"): parallel.optimizer_shard_level if parallel.optimizer_shard_size > 1 else 0,
        ("zero_optimization", "overlap_comm"): bool(plan.software.overlap_dp),
        ("train_micro_batch_size_per_gpu",): "auto",
        ("gradient_accumulation_steps",): "auto",
        ("bf16", "enabled"): "auto" if half or short else False,
        ("fp16", "enabled"): "auto" if half or short else False,
    }
    if parallel.tensor_parallel_size > 1:
        values["tensor_parallel", "autotp_size"] = parallel.tensor_parallel_size
    if parallel.context_parallel_size > 1:
        values["sequence_parallel_size",] = parallel.context_parallel_size
    if plan.optimizer.gradient_dtype == "float32" and half:
        values["data_types", "grad_accum_dtype"] = "fp32"
    return {("deepspeed", *path): value for path, value in values.items()}


def _names_of(optimizer: OptimizerSpec) -> Iterator[str]:
    name, size = optimizer.name.lower(), optimizer.state_bytes_per_parameter
    if "adam" in name or "muon" in name:
        yield "adamw_8bit" if optimizer.moment_dtype == "float8" else "adamw_torch"
    yield from (word for word, state in OPTIMIZER_STATES.items() if word.startswith(name) and state == size)
    yield "adamw_torch"
