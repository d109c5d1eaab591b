"""MindFormers YAML for its trainer for PyNative (since 2.0): sections training, parallelism, recompute and model.

Keys and defaults are those of `mindformers/pynative/config/config.py`. The file does not say how many devices there are: with
`data_parallel_shard: -1` the launcher's usual 8 are taken, or as many as the experts need, and said.
"""

from __future__ import annotations

import re
from typing import Any

from perfkit.config.dialects import yaml
from perfkit.config.dialects._mindformers_class import with_class
from perfkit.config.dialects._mindformers_model import read_model
from perfkit.config.dialects._section import Reading, Section, shown
from perfkit.config.dialects._yaml_values import block, nested
from perfkit.config.dialects.dialect import Changes, Dialect, Document
from perfkit.config.dialects.splice import edit
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.optimizer import OptimizerSpec
from perfkit.core.spec.parallel import ContextAlgorithm, ParallelPlan
from perfkit.core.spec.plan import Plan, even_layers, uneven
from perfkit.core.spec.recompute import Counts, RecomputePlan
from perfkit.core.spec.software import SoftwareSpec
from perfkit.core.spec.workload import Workload

SECTION = re.compile(r"^parallelism[ \t]*:", re.MULTILINE)
OWN = re.compile(r"^[ \t]+(?:data_parallel_shard|tensor_parallel|local_batch_size)[ \t]*:", re.MULTILINE)
USUAL_DEVICES = 8
DTYPES = {
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "float16": "float16",
    "fp16": "float16",
    "float32": "float32",
    "fp32": "float32",
}
METHODS: dict[str, ContextAlgorithm] = {"colossal": "ring", "ulysses": "ulysses", "hybrid": "hybrid"}
RANGE = re.compile(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*")
HEADER = "# Settings of a step; the model, data, checkpoints and learning rate are still to be added.\n"


def detect(document: Document) -> bool:
    """Whether the text has the section parallelism, with a key of this trainer."""
    return SECTION.search(document.text) is not None and OWN.search(document.text) is not None


def read(document: Document) -> Plan:
    """The plan of the file. Raises InputError with every problem, each with line, key and value."""
    parsed = yaml.parse(document.text, document.name)
    reading, top = Reading.of(document, parsed)
    config, training, parallel = with_class(top.section("model")), top.section("training"), top.section("parallelism")
    model = read_model(config, Section(reading, "moe_config", {}), [])
    sizes = _sizes(parallel)
    layers = _layers(parallel, model, sizes) if model else None
    recompute = _recompute(top.section("recompute"), layers) if layers else None
    micro = training.positive_int("local_batch_size", default=1)
    data = top.section("train_dataset").section("dataloader").section("config")
    length = config.positive_int("seq_length", default=4096)
    stored = DTYPES[config.word("params_dtype", default="float32", allowed=DTYPES)]
    reading.stop_if_problems()
    return reading.plan(
        model=model,
        workload=reading.build(
            lambda: Workload(
                seq_length=data.positive_int("seq_length", default=0) or length,
                micro_batch_size=micro,
                global_batch_size=training.positive_int("global_batch_size", default=1),
                dtype=DTYPES[config.word("compute_dtype", default="bfloat16", allowed=DTYPES)],
                attention_kernel="flash" if config.flag("use_flash_attention", default=True) else "unfused",
            )
        ),
        parallel=reading.build(
            lambda: ParallelPlan(**sizes, optimizer_shard_level=_level(parallel), layers_per_stage=uneven(layers))
        ),
        recompute=recompute,
        optimizer=reading.build(lambda: _optimizer(top.section("optimizer"), stored)),
        software=SoftwareSpec(framework="mindspore", overlap_dp=True),
        document=reading.annotated("mindformers-pynative", parsed.values),
    )


def _sizes(parallel: Section) -> dict[str, Any]:
    tensor, stages, context, experts = (
        parallel.positive_int(f"{name}_parallel", default=1) for name in ("tensor", "pipeline", "context", "expert")
    )
    shards = parallel.integer("data_parallel_shard", default=-1, low=-1)
    if shards < 1:
        shards = max(USUAL_DEVICES // (tensor * stages * context), -(-experts // (tensor * context)), 1)
        parallel.reading.default("data_parallel_size", f"{shards}: the file shares over all devices, and does not say how many")
    method = METHODS[parallel.word("context_parallel_method", default="colossal", allowed=METHODS)]
    return {
        "data_parallel_size": shards,
        "tensor_parallel_size": tensor,
        "pipeline_parallel_size": stages,
        "virtual_pipeline_parallel_size": parallel.positive_int("pipeline_parallel_interleave_num", default=1),
        "context_parallel_size": context,
        "context_parallel_algorithm": method,
        "ulysses_size": parallel.positive_int("ulysses_degree_in_cp", default=1) if method == "hybrid" else 0,
        "expert_parallel_size": experts,
        "expert_tensor_parallel_size": 1 if experts > 1 and tensor > 1 else 0,
        "sequence_parallel": parallel.flag("sequence_parallel", default=False) and tensor > 1,
        "optimizer_shard_size": shards * context,
    }


def _level(parallel: Section) -> int:
    """Parameters are shared too; where they are not freed after the forward pass they stay, as with a pipeline by default."""
    policy = parallel.word("reshard_after_forward_policy", default="default", allowed=("always", "never", "default"))
    stages = parallel.positive_int("pipeline_parallel", default=1)
    return 2 if policy == "never" or (policy == "default" and stages > 1) else 3


def _optimizer(section: Section, stored: str) -> OptimizerSpec:
    """Weights of 16 bit have a master copy of 32 bit (`mindformers/pynative/optimizer`); Muon keeps one moment of a matrix."""
    name = section.word("type", default="AdamW")
    return OptimizerSpec(name=name, gradient_dtype=stored, matrix_state_bytes_per_parameter=4 if name.lower() == "muon" else -1)


def _layers(parallel: Section, model: ModelSpec, sizes: dict[str, Any]) -> Counts:
    """Layers of every chunk and stage; those that predict further tokens come after the others."""
    stages, chunks = sizes["pipeline_parallel_size"], sizes["virtual_pipeline_parallel_size"]
    key, own = "pipeline_parallel_layers_per_stage", model.num_layers - model.num_mtp_layers
    stated = parallel.raw(key)
    if stated is None:
        if own % (stages * chunks):
            parallel.reading.problem(
                parallel.path(key), f"is auto, and {own} layers are not divisible by {stages} stages x {chunks} chunks; list them"
            )
        rows = even_layers(own, stages, chunks)
    else:
        columns = [_ranges(cell) for cell in stated] if isinstance(stated, list) else []
        if len(columns) != stages or any(len(column) != chunks for column in columns) or sum(map(sum, columns)) != own:
            parallel.reading.problem(
                parallel.path(key), f"{shown(stated)} must give each of {stages} stages {chunks} ranges, together {own} layers"
            )
            return even_layers(model.num_layers, stages, chunks)
        rows = tuple(zip(*columns, strict=True))
    return (*rows[:-1], (*rows[-1][:-1], rows[-1][-1] + model.num_mtp_layers))


def _ranges(cell: Any) -> list[int]:
    """How many layers "0-3, 8-11" names a range; both ends count, and what is no range holds none."""
    found = (RANGE.fullmatch(part) for part in str(cell).split(","))
    return [max(0, int(one[2] or one[1]) - int(one[1]) + 1) if one else 0 for one in found]


def _recompute(section: Section, layers: Counts) -> RecomputePlan | None:
    mode = section.word("mode", default="None", allowed=("None", "full", "select"))
    section.raw("full_recompute_layer")
    if mode == "select":
        section.reading.default("recompute", "select: which modules of a layer are repeated is not counted as recomputed")
    if mode != "full":
        return RecomputePlan()
    chosen = section.values.get("full_recompute_layer")
    if chosen is None:
        return RecomputePlan(all_layers=True)
    numbers = {number for cell in (chosen if isinstance(chosen, list) else [chosen]) for number in _numbers(cell)}
    place, rows = 0, []
    for row in layers:
        counts = []
        for count in row:
            counts.append(len(numbers & set(range(place, place + count))))
            place += count
        rows.append(tuple(counts))
    return RecomputePlan(full_layers=tuple(rows))


def _numbers(cell: Any) -> range:
    found = RANGE.fullmatch(str(cell))
    return range(int(found[1]), min(int(found[2] or found[1]), 10**4) + 1) if found else range(0)


def settings(plan: Plan) -> dict[tuple[str, ...], Any]:
    """What the plan says in the file's keys; the model's section stays as it is."""
    work, parallel = plan.workload, plan.parallel
    methods = {algorithm: word for word, algorithm in METHODS.items()}
    return {
        ("training", "local_batch_size"): work.micro_batch_size,
        ("training", "global_batch_size"): work.global_batch_size,
        ("parallelism", "data_parallel_shard"): parallel.data_parallel_size,
        ("parallelism", "tensor_parallel"): parallel.tensor_parallel_size,
        ("parallelism", "sequence_parallel"): parallel.sequence_parallel,
        ("parallelism", "pipeline_parallel"): parallel.pipeline_parallel_size,
        ("parallelism", "pipeline_parallel_interleave_num"): parallel.virtual_pipeline_parallel_size,
        ("parallelism", "context_parallel"): parallel.context_parallel_size,
        ("parallelism", "context_parallel_method"): methods[parallel.context_parallel_algorithm],
        ("parallelism", "expert_parallel"): parallel.expert_parallel_size,
        ("parallelism", "reshard_after_forward_policy"): "always" if parallel.optimizer_shard_level == 3 else "never",
        ("recompute", "mode"): "full" if plan.recompute.all_layers or plan.recompute.full_layers else "None",
    }


def new(changes: Changes) -> str:
    """A new file of settings."""
    return HEADER + block(nested(changes))


DIALECT = Dialect(
    name="mindformers-pynative",
    title="MindFormers YAML for PyNative",
    looks_for="a section parallelism with data_parallel_shard, tensor_parallel",
    detect=detect,
    read=read,
    settings=settings,
    edit=edit,
    new=new,
    suffix=".yaml",
    parse=yaml.parse,
    sizes={
        "tensor": ("parallelism.tensor_parallel",),
        "pipeline": ("parallelism.pipeline_parallel",),
        "context": ("parallelism.context_parallel",),
        "expert": ("parallelism.expert_parallel",),
        "batch": ("training.local_batch_size",),
        "virtual": ("parallelism.pipeline_parallel_interleave_num",),
        "seq_length": ("train_dataset.dataloader.config.seq_length", "model.seq_length"),
        "hidden": ("model.hidden_size",),
        "layers": ("model.num_hidden_layers",),
        "heads": ("model.num_attention_heads",),
        "vocab": ("model.vocab_size",),
    },
)
