"""NeMo Automodel's YAML: a Hugging Face model by its name, batches, FSDP2 with its groups, and the precision of what is kept.

Keys and defaults are those of `NVIDIA-NeMo/Automodel nemo_automodel/components/distributed/config.py` and its examples. Without
`dp_size` parameters are shared over all devices that the launcher starts.
"""

from __future__ import annotations

import math
import re
from typing import Any

from perfkit.config.dialects import yaml
from perfkit.config.dialects._model_beside import model_beside
from perfkit.config.dialects._section import Reading, Section, shown
from perfkit.config.dialects._yaml_values import new_file
from perfkit.config.dialects.dialect import Changes, Dialect, Document
from perfkit.config.dialects.splice import edit
from perfkit.core.spec.optimizer import OptimizerSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.software import SoftwareSpec
from perfkit.core.spec.workload import Workload

STEPS = re.compile(r"^step_scheduler[ \t]*:", re.MULTILINE)
GROUPS = re.compile(r"^(?:distributed|model)[ \t]*:", re.MULTILINE)
USUAL_DEVICES = 8
USUAL_LENGTH = 4096
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
DTYPES |= {dtype: dtype for dtype in DTYPES.values()}
LENGTHS = ("seq_length", "seq_len", "max_seq_length", "block_size", "seq_len_per_sample")
HEADER = "# Settings of a step; model, data, checkpoints and learning rate are still to be added.\n"


def detect(document: Document) -> bool:
    """Whether the text has the group that only this program calls so, beside a model or groups of devices."""
    return STEPS.search(document.text) is not None and GROUPS.search(document.text) is not None


def read(document: Document) -> Plan:
    """The plan of the file and of the model that it names. Raises InputError with every problem, each with line, key and value."""
    parsed = yaml.parse(document.text, document.name)
    reading, top = Reading.of(document, parsed)
    steps, groups, named = (top.section(name) for name in ("step_scheduler", "distributed", "model"))
    nested_config = named.section("config") if isinstance(named.values.get("config"), dict) else named
    folder = named.word("pretrained_model_name_or_path", default="") or nested_config.word(
        "pretrained_model_name_or_path", default=""
    )
    found = model_beside(reading, "model.pretrained_model_name_or_path", folder)
    tensor, context, stages = (groups.positive_int(f"{name}_size", default=1) for name in ("tp", "cp", "pp"))
    experts = groups.positive_int("ep_size", default=1)
    replicas = _replicas(reading, groups, tensor * context * stages, experts // math.gcd(experts, context))
    copies = groups.positive_int("dp_replicate_size", default=1)
    if replicas % copies:
        reading.problem("distributed.dp_replicate_size", f"{copies} does not divide {replicas} replicas")
    alone = _strategy(groups) == "ddp"
    local = steps.positive_int("local_batch_size", default=1)
    batch = steps.positive_int("global_batch_size", default=local * replicas)
    pipeline = groups.section("pipeline")
    micro = pipeline.positive_int("pp_microbatch_size", default=1) if stages > 1 else local
    if stages > 1 and batch > local * replicas:
        told = f"all micro batches follow one another; here those of {local} samples pass the stages before the next ones begin"
        reading.default("schedule", told)
    policy = groups.section("mp_policy")
    compute = policy.word("param_dtype", default="bfloat16", allowed=DTYPES)
    sums = policy.word("reduce_dtype", default="float32", allowed=DTYPES)
    stored = str(named.raw("torch_dtype") or "bfloat16").rpartition(".")[2]
    if stored not in DTYPES:
        reading.problem("model.torch_dtype", f"{shown(stored)} must be one of {', '.join(DTYPES)}")
    kept = groups.flag("reshard_after_forward", default=stages == 1)
    length = _length(top)
    repeats = _repeats(reading, groups)
    reading.stop_if_problems()
    assert found is not None
    model, sequence = found
    stored = DTYPES[stored]
    return reading.plan(
        model=model,
        workload=Workload(
            seq_length=length,
            micro_batch_size=micro,
            global_batch_size=batch,
            dtype=DTYPES[compute],
            dropout=sequence.dropout,
        ),
        parallel=reading.build(
            lambda: ParallelPlan(
                data_parallel_size=replicas,
                tensor_parallel_size=tensor,
                pipeline_parallel_size=stages,
                sequence_parallel=tensor > 1 and groups.flag("sequence_parallel", default=False),
                context_parallel_size=context,
                expert_parallel_size=experts,
                optimizer_shard_size=1 if alone else replicas // copies * context,
                optimizer_shard_level=1 if alone else 3 if kept else 2,
            )
        ),
        recompute=RecomputePlan(all_layers=repeats),
        optimizer=OptimizerSpec(
            name="AdamW",
            master_weights=stored == "float32" and DTYPES[compute] != "float32",
            gradient_dtype=DTYPES[sums],
            moment_dtype=stored if stored != "float16" else "float32",
        ),
        software=SoftwareSpec(
            framework="fsdp", overlap_dp=True, overlap_tp=groups.flag("enable_async_tensor_parallel", default=False)
        ),
        document=reading.annotated("nemo-automodel", parsed.values),
    )


def _strategy(groups: Section) -> str:
    word = groups.word("strategy", default="") or groups.word("_target_", default="fsdp2").rpartition(".")[2]
    return "ddp" if word.lower().startswith("ddp") else "fsdp2"


def _replicas(reading: Reading, groups: Section, one: int, together: int) -> int:
    """Replicas; where the file leaves their number to the launcher, those of 8 devices, or as many as hold all experts."""
    if not isinstance(groups.values.get("dp_size"), str) and groups.has("dp_size"):
        return groups.positive_int("dp_size", default=1)
    groups.asked("dp_size")
    replicas = math.ceil(max(1, USUAL_DEVICES // one) / together) * together
    told = "the file shares over all devices; 8 of them are taken, or the fewest with room for its groups"
    reading.default("data_parallel_size", f"{replicas}: {told}")
    return replicas


def _length(top: Section) -> int:
    """Tokens of a sequence: of a pack where samples are packed, else of the data set."""
    packed = top.section("packed_sequence").integer("packed_sequence_size", default=0)
    stated = packed or top.section("dataset").integer(*LENGTHS, default=0)
    if not stated:
        top.reading.default("seq_length", f"{USUAL_LENGTH}: the file does not say how long its samples are")
    return stated or USUAL_LENGTH


def _repeats(reading: Reading, groups: Section) -> bool:
    """Whether whole layers are computed again; parts of them are said not to be counted."""
    value = groups.raw("activation_checkpointing")
    if value == "selective":
        reading.default("recompute", "selective: which operators are kept is chosen one by one; nothing is counted as recomputed")
    elif value not in (None, True, False, "full"):
        reading.problem("distributed.activation_checkpointing", f"{shown(value)} must be True, False, full or selective")
    return value is True or value == "full"


def settings(plan: Plan) -> dict[tuple[str, ...], Any]:
    """What the plan says in the file's keys; the model is another file's."""
    work, parallel = plan.workload, plan.parallel
    shards = max(1, parallel.optimizer_shard_size // parallel.context_parallel_size)
    staged = parallel.pipeline_parallel_size > 1
    half = plan.optimizer.moment_dtype == "bfloat16"
    return {
        ("step_scheduler", "global_batch_size"): work.global_batch_size,
        ("step_scheduler", "local_batch_size"): work.micro_batch_size * (plan.num_micro_batches if staged else 1),
        ("model", "pretrained_model_name_or_path"): plan.model.name,
        ("model", "torch_dtype"): "bfloat16" if half else "float32",
        ("distributed", "strategy"): "fsdp2" if parallel.optimizer_shard_size > 1 else "ddp",
        ("distributed", "dp_size"): parallel.data_parallel_size,
        ("distributed", "dp_replicate_size"): parallel.data_parallel_size // shards if parallel.optimizer_shard_size > 1 else None,
        ("distributed", "tp_size"): parallel.tensor_parallel_size,
        ("distributed", "cp_size"): parallel.context_parallel_size,
        ("distributed", "pp_size"): parallel.pipeline_parallel_size,
        ("distributed", "ep_size"): parallel.expert_parallel_size,
        ("distributed", "sequence_parallel"): parallel.sequence_parallel,
        ("distributed", "activation_checkpointing"): plan.recompute.all_layers,
        ("distributed", "pipeline", "pp_microbatch_size"): work.micro_batch_size if staged else None,
        ("distributed", "mp_policy", "reduce_dtype"): plan.optimizer.gradient_dtype,
        ("dataset", "seq_length"): work.seq_length,
    }


def new(changes: Changes) -> str:
    """A new file of settings."""
    return new_file(HEADER, changes)


DIALECT = Dialect(
    name="nemo-automodel",
    title="NeMo Automodel YAML",
    looks_for="a section step_scheduler beside model and distributed",
    detect=detect,
    read=read,
    settings=settings,
    edit=edit,
    new=new,
    suffix=".yaml",
    parse=yaml.parse,
    sizes={
        "tensor": ("distributed.tp_size",),
        "pipeline": ("distributed.pp_size",),
        "context": ("distributed.cp_size",),
        "expert": ("distributed.ep_size",),
        "global_batch": ("step_scheduler.global_batch_size",),
        "batch": ("step_scheduler.local_batch_size",),
    },
)
