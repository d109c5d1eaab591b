"""DeepSpeed's JSON: batches, what ZeRO shares, precision, groups; the model is that of a Hugging Face config.json beside it.

Keys and defaults are those of https://www.deepspeed.ai/docs/config-json/; comments are read over, as the program's Hjson does. Of
the three batch sizes each follows from the others and the replicas; "auto" stands for what the training script fills in.
Which activations are computed again is said by the script alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from perfkit.config.dialects import _json_object
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
PRECISIONS = {"fp8": "float8", "bf16": "bfloat16", "fp16": "float16"}
ACCUMULATED = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW", "muon": "Muon", "lion": "Lion", "sgd": "SGD"}

COMPRESSING = frozenset({"onebitadam", "onebitlamb", "zerooneadam"})
"""Optimizers that send fewer bits."""


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
    spread = top.section("expert_parallel")
    experts = spread.positive_int("autoep_size", default=1) if spread.flag("enabled", default=False) else 1
    replicas, micro, steps = _batches(top, experts)
    tensor = top.section("tensor_parallel").positive_int("autotp_size", default=1)
    stages = top.section("pipeline").positive_int("stages", default=1)
    context = top.positive_int("sequence_parallel_size", default=1)
    zero = top.section("zero_optimization")
    stage = zero.integer("stage", default=0)
    if stage > 3:
        reading.problem(zero.path("stage"), f"{stage} must be 0, 1, 2 or 3")
    overlap = zero.flag("overlap_comm", default=stage == 3)
    dtype = _dtype(top, of_model[1].dtype if of_model else "bfloat16")
    sums = top.section("data_types").word("grad_accum_dtype", default="", allowed=ACCUMULATED)
    kind = top.section("optimizer").word("type", default="AdamW")
    if kind.lower() in COMPRESSING:
        reading.default("communication", f"full: {kind} sends one bit of a gradient after its first steps, which is not counted")
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
                tensor_parallel_size=tensor,
                pipeline_parallel_size=stages,
                context_parallel_size=context,
                expert_parallel_size=experts,
                context_parallel_algorithm="ulysses" if context > 1 else "ring",
                optimizer_shard_size=replicas * context if stage else 1,
                optimizer_shard_level=max(1, stage),
            )
        ),
        optimizer=reading.build(
            lambda: OptimizerSpec(
                name=OPTIMIZERS.get(kind.lower(), kind),
                master_weights=dtype != "float32",
                gradient_dtype=ACCUMULATED.get(sums) or _summed_in(dtype, shared=stage > 0),
            )
        ),
        software=SoftwareSpec(framework="deepspeed", overlap_dp=overlap),
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


def _dtype(top: Section, of_model: str) -> str:
    """The precision that is on; where the script decides it, that of the model's file."""
    given = {name: top.section(name) for name in PRECISIONS if top.has(name)}
    enabled = [name for name, section in given.items() if section.has("enabled") and section.flag("enabled", default=False)]
    if {"bf16", "fp16"} <= {*enabled}:
        top.reading.problem("fp16.enabled", "fp16 and bf16 are both enabled, which DeepSpeed refuses; keep one")
    if enabled:
        return PRECISIONS[enabled[0]]
    if any(section.values.get("enabled") == "auto" for section in given.values()):
        top.reading.default("dtype", f"{of_model}: that of the model; the file leaves it to the training script")
        return of_model
    return "float32"


def _summed_in(dtype: str, *, shared: bool) -> str:
    """The precision that gradients are summed in unless the file says it (`get_data_types` in deepspeed/runtime/engine.py)."""
    if dtype == "bfloat16" and not shared:
        return "float32"
    return "bfloat16" if dtype == "float8" else dtype


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
    if sums in words and sums != _summed_in(work.dtype, shared=shared):
        values["data_types", "grad_accum_dtype"] = words[sums]
    return values | {path: size for path, size in optional.items() if size > 1}


def edit(document: Document, changes: Changes) -> tuple[str, tuple[str, ...]]:
    """The file with values changed, indented as it was found."""
    text = _json_object.plain(document.text)
    values = json.loads(text)
    indent = re.search(r"\n([ \t]+)\"", document.text)
    layout: dict[str, Any] = {"indent": indent[1] if indent else None, "ensure_ascii": False}
    tail = document.text[len(document.text.rstrip()) :]
    same = json.dumps(values, **layout) == document.text.strip()
    notes = ("the JSON is laid out anew" + ("" if text == document.text else ", without its comments"),)
    return json.dumps(_changed(values, changes), **layout) + tail, () if same else notes


def new(changes: Changes) -> str:
    """A new file of settings."""
    return json.dumps(_changed({}, changes), indent=2) + "\n"


def _changed(values: Mapping[str, Any], changes: Changes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(values))
    for path, value in changes.items():
        place = found
        for key in path[:-1]:
            if not isinstance(place.get(key), dict):
                place[key] = {}
            place = place[key]
        if value is None:
            place.pop(path[-1], None)
        else:
            place[path[-1]] = value
    return found


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
