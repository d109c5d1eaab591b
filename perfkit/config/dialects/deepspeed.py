"""DeepSpeed's JSON: batches, what ZeRO shares, precision, groups; the model is that of a Hugging Face config.json beside it.

Keys and defaults are those of https://www.deepspeed.ai/docs/config-json/; comments are read over, as the program's Hjson does. Of
the three batch sizes each follows from the others and the replicas; "auto" stands for what the training script fills in.
Which activations are computed again is said by the script alone.
"""

from __future__ import annotations

import re
from typing import Any

from perfkit.config.dialects import _json_object
from perfkit.config.dialects._deepspeed_engine import ACCUMULATED, OPTIMIZERS, engine_of, experts_of, summed_in
from perfkit.config.dialects._model_beside import model_beside
from perfkit.config.dialects._section import Reading, Section
from perfkit.config.dialects.dialect import Changes, Dialect, Document, Parsed
from perfkit.core.spec.checks import nearest_multiples
from perfkit.core.spec.optimizer import OptimizerSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.software import SoftwareSpec
from perfkit.core.spec.workload import Workload

MARKS = re.compile(
    r"\"(?:zero_optimization|train_micro_batch_size_per_gpu|gradient_accumulation_steps|zero_allow_untested_optimizer)\"\s*:"
)
BATCHES = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def detect(document: Document) -> bool:
    """Whether the text is a JSON object with a setting that only DeepSpeed has."""
    text = document.text
    return MARKS.search(text) is not None and _json_object.plain(text).lstrip().startswith("{")


def parse(text: str, name: str) -> Parsed:
    """Values and lines of the settings."""
    return _json_object.parse(_json_object.plain(text), name)


def read(document: Document) -> Plan:
    """The plan of the file and of the model beside it. Raises InputError with every problem, each with line, key and value."""
    parsed = parse(document.text, document.name)
    reading, top = Reading.of(document, parsed)
    of_model = model_beside(reading, "model")
    replicas, micro, steps = _batches(top, experts_of(top))
    engine = engine_of(top)
    dtype = engine.dtype or (of_model[1].dtype if of_model else "bfloat16")
    if not engine.dtype:
        reading.default("dtype", f"{dtype}: that of the model; the file leaves it to the training script")
    kind = engine.optimizer or "AdamW"
    reading.default("recompute", "none: the training script says whether activations are computed again, not this file")
    reading.stop_if_problems()
    assert of_model is not None
    model, sequence = of_model
    reading.default("seq_length", f"{sequence.seq_length}: the training script says how long sequences are, not this file")
    return reading.plan(
        model=model,
        workload=Workload(
            seq_length=sequence.seq_length,
            micro_batch_size=micro,
            global_batch_size=micro * steps * replicas,
            dtype=dtype,
            dropout=sequence.dropout,
        ),
        parallel=reading.build(
            lambda: ParallelPlan(
                data_parallel_size=replicas,
                tensor_parallel_size=engine.tensor,
                pipeline_parallel_size=engine.stages,
                context_parallel_size=engine.context,
                expert_parallel_size=engine.experts,
                context_parallel_algorithm="ulysses" if engine.context > 1 else "ring",
                optimizer_shard_size=replicas * engine.context if engine.stage else 1,
                optimizer_shard_level=max(1, engine.stage),
            )
        ),
        optimizer=reading.build(
            lambda: OptimizerSpec(
                name=OPTIMIZERS.get(kind.lower(), kind),
                master_weights=dtype != "float32",
                gradient_dtype=engine.gradient_dtype(dtype),
            )
        ),
        software=SoftwareSpec(framework="deepspeed", overlap_dp=engine.overlap),
        document=reading.annotated("deepspeed", parsed.values),
    )


def _batches(top: Section, experts: int) -> tuple[int, int, int]:
    """Replicas, micro batch and accumulation steps; of the sizes that are stated each follows from the others.

    Where the file does not say how many devices there are, there are as many as share the `experts`.
    """
    whole, micro, steps = (top.positive_int(name, default=0) for name in BATCHES)
    if not micro:
        micro = 1
        top.reading.default("micro_batch_size", "1: the file leaves it to the training script")
    if not steps:
        steps = 1
        top.reading.default("gradient_accumulation_steps", "1: the file leaves it to the training script")
    if not whole:
        top.reading.default("data_parallel_size", f"{experts}: the file does not say how many devices are used")
        return experts, micro, steps
    replicas, rest = divmod(whole, micro * steps)
    if rest:
        near = nearest_multiples(whole, micro * steps)
        top.reading.problem(
            BATCHES[0], f"{whole} is no multiple of micro batch x accumulation steps = {micro * steps}; nearest is {near}"
        )
    top.reading.default("data_parallel_size", f"{max(1, replicas)}: {BATCHES[0]} over micro batch x accumulation steps")
    return max(1, replicas), micro, steps


def settings(plan: Plan) -> dict[tuple[str, ...], Any]:
    """What the plan says in the file's keys; the model is another file's."""
    work, parallel = plan.workload, plan.parallel
    shared = parallel.optimizer_shard_size > 1
    values: dict[tuple[str, ...], Any] = {
        ("train_batch_size",): work.global_batch_size,
        ("train_micro_batch_size_per_gpu",): work.micro_batch_size,
        ("gradient_accumulation_steps",): plan.num_micro_batches,
        ("zero_optimization", "stage"): parallel.optimizer_shard_level if shared else 0,
        ("zero_optimization", "overlap_comm"): bool(plan.software.overlap_dp),
        ("bf16", "enabled"): work.dtype == "bfloat16",
        ("fp16", "enabled"): work.dtype == "float16",
    }
    optional = {
        ("expert_parallel", "autoep_size"): parallel.expert_parallel_size,
        ("tensor_parallel", "autotp_size"): parallel.tensor_parallel_size,
        ("pipeline", "stages"): parallel.pipeline_parallel_size,
        ("sequence_parallel_size",): parallel.context_parallel_size,
    }
    if parallel.expert_parallel_size > 1:
        values["expert_parallel", "enabled"] = True
    words = {dtype: word for word, dtype in ACCUMULATED.items()}
    sums = plan.optimizer.gradient_dtype
    if sums in words and sums != summed_in(work.dtype, shared=shared):
        values["data_types", "grad_accum_dtype"] = words[sums]
    return values | {path: size for path, size in optional.items() if size > 1}


def edit(document: Document, changes: Changes) -> tuple[str, tuple[str, ...]]:
    """The file with values changed, indented as it was found."""
    return _json_object.edit(document.text, changes)


def new(changes: Changes) -> str:
    """A new file of settings."""
    return _json_object.new(changes)


DIALECT = Dialect(
    name="deepspeed",
    title="DeepSpeed JSON",
    looks_for="a JSON object with zero_optimization or train_micro_batch_size_per_gpu",
    detect=detect,
    read=read,
    settings=settings,
    edit=edit,
    new=new,
    suffix=".json",
    parse=parse,
    yields=True,
    sizes={
        "batch": ("train_micro_batch_size_per_gpu",),
        "global_batch": ("train_batch_size",),
        "pipeline": ("pipeline.stages",),
        "tensor": ("tensor_parallel.autotp_size",),
        "expert": ("expert_parallel.autoep_size",),
    },
)
