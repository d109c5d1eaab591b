"""MindSpeed-Core-MS and PyNative-style YAML: Megatron's sizes in sections, lists of layers and recomputation.

The file does not say how many devices there are: `parallel_config.data_parallel_size` counts if it is given, else one replica is
assumed and noted. The global batch is replicas x batch_size x micro_batch_num; a global batch that is given sets the latter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from perfkit.config.dialects import yaml
from perfkit.config.dialects._mindspeed_keys import flat, is_nested, nested_names
from perfkit.config.dialects._mindspeed_model import read_model
from perfkit.config.dialects._mindspeed_stages import num_chunks, recompute_plan, stage_layers
from perfkit.config.dialects._mindspeed_write import edit, new, settings
from perfkit.config.dialects._section import Reading, Section
from perfkit.config.dialects.dialect import Dialect, Document
from perfkit.core.spec.optimizer import OptimizerSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan, uneven
from perfkit.core.spec.software import SoftwareSpec
from perfkit.core.spec.workload import Workload

SECTIONS = re.compile(r"^(?:model_config|dataset_config|training_config|accelerate_config|train_config)[ \t]*:", re.MULTILINE)
SIZES = re.compile(r"^parallel_config[ \t]*:.*?\b(?:tensor|pipeline)_model_parallel_size[ \t]*:", re.MULTILINE | re.DOTALL)
DTYPES = ("float16", "bfloat16", "float32")
CONTEXT_ALGORITHMS = {"ulysses_cp_algo": "ulysses", "megatron_cp_algo": "ring", "hybrid_cp_algo": "hybrid"}


def detect(document: Document) -> bool:
    """Whether the text has sections that only this family has."""
    text = document.text
    return not text.lstrip().startswith(("{", "[")) and (SECTIONS.search(text) is not None or SIZES.search(text) is not None)


def read(document: Document) -> Plan:
    """The plan of the YAML, in either form. Raises InputError with every problem, each with line, key and value."""
    parsed = yaml.parse(document.text, document.name)
    values, lines = flat(parsed.values, parsed.lines) if is_nested(parsed.values) else (parsed.values, parsed.lines)
    reading = Reading(document, lines=lines, notes=list(parsed.duplicates))
    top = Section(reading, "", values)
    config, parallel, training = (top.section(name) for name in ("model_config", "parallel_config", "training_config"))
    model = read_model(config, top.section("moe_config"))
    sizes = _sizes(parallel)
    stages, layers = sizes["pipeline_parallel_size"], None
    if model:
        chunks = num_chunks(parallel, model.num_layers, stages)
        sizes["virtual_pipeline_parallel_size"] = chunks
        layers = stage_layers(parallel, model.num_layers, stages, chunks)
    workload = _workload(top, sizes["data_parallel_size"])
    flash = workload is not None and workload.attention_kernel == "flash"
    recompute = recompute_plan(parallel, layers, flash=flash) if layers else None
    sharing, context = _sharing(parallel, training, sizes), _context(parallel)
    sequence_parallel = parallel.flag("sequence_parallel", "use_sequence_parallel", default=False)
    optimizer = _optimizer(top, config, training)
    software = _software(parallel, training, sizes)
    reading.stop_if_problems()
    return reading.plan(
        model=model,
        workload=workload,
        parallel=ParallelPlan(**sizes, **sharing, **context, sequence_parallel=sequence_parallel, layers_per_stage=uneven(layers)),
        recompute=recompute,
        optimizer=optimizer,
        software=software,
        document=reading.annotated("mindspeed-core", parsed.values, nested_names(reading.used)),
    )


def _sizes(parallel: Section) -> dict[str, Any]:
    if not parallel.has("data_parallel_size"):
        parallel.reading.default("data_parallel_size", "1: the file does not say how many devices are used")
    return {
        "data_parallel_size": parallel.positive_int("data_parallel_size", default=1),
        "tensor_parallel_size": parallel.positive_int("tensor_model_parallel_size", default=1),
        "pipeline_parallel_size": parallel.positive_int("pipeline_model_parallel_size", default=1),
        "context_parallel_size": parallel.positive_int("context_parallel_size", default=1),
        "expert_parallel_size": parallel.positive_int("expert_model_parallel_size", default=1),
        "expert_tensor_parallel_size": parallel.integer("expert_tensor_parallel_size", default=0),
    }


def _sharing(parallel: Section, training: Section, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Who shares the optimizer: all replicas, or groups of zero_shard_size of them; zero_level says what they share."""
    replicas = sizes["data_parallel_size"]
    level = parallel.word("zero_level", default="", allowed=("", "z1", "z2", "z3"))
    size = parallel.integer("zero_shard_size", default=0)
    distributed = training.flag("use_distributed_optimizer", default=False)
    if size and not (1 < size <= replicas and replicas % size == 0):
        parallel.reading.problem(
            parallel.path("zero_shard_size"), f"{size} must be more than 1, at most data_parallel_size {replicas}, and divide it"
        )
    if level and distributed:
        parallel.reading.note("zero_level and use_distributed_optimizer are both set; zero_level is taken")
    if level or size:
        return {"optimizer_shard_size": size or replicas, "optimizer_shard_level": int(level[1:] or 1)}
    return {"optimizer_shard_size": replicas * sizes["context_parallel_size"] if distributed else 1}


def _context(parallel: Section) -> dict[str, Any]:
    word = parallel.word("context_parallel_algo", default="ulysses_cp_algo", allowed=tuple(CONTEXT_ALGORITHMS))
    inner = parallel.integer("ulysses_degree_in_cp", default=0)
    found: dict[str, Any] = {"context_parallel_algorithm": CONTEXT_ALGORITHMS[word]}
    return found | ({"ulysses_size": inner} if word == "hybrid_cp_algo" else {})


def _workload(top: Section, data_parallel_size: int) -> Workload | None:
    config, dataset, training = (top.section(name) for name in ("model_config", "dataset_config", "training_config"))
    if not config.has("seq_length") and config.has("max_position_embeddings"):
        top.reading.default("seq_length", "max_position_embeddings")
    elif not config.has("seq_length"):
        config.missing("seq_length", "a whole number of tokens")
        return None
    seq_length = config.positive_int("seq_length", "max_position_embeddings", default=1)
    batch = dataset.positive_int("batch_size", "micro_batch_size", default=1)
    micro_batches = dataset.positive_int("micro_batch_num", default=1)
    given = training.integer("global_batch_size", default=0) or dataset.integer("global_batch_size", default=0)
    if given and dataset.has("micro_batch_num") and given != batch * data_parallel_size * micro_batches:
        top.reading.note(f"micro_batch_num = {micro_batches} has no effect: the global batch of {given} sets it")
    rates = [config.raw(key) for key in ("attention_dropout_rate", "hidden_dropout_rate")]
    return top.reading.build(
        lambda: Workload(
            seq_length=seq_length,
            micro_batch_size=batch,
            global_batch_size=given or batch * data_parallel_size * micro_batches,
            dtype=_compute_dtype(config, training),
            attention_kernel="flash" if config.flag("use_flash_attention", default=False) else "unfused",
            dropout=any(rate not in (None, 0, 0.0) for rate in rates),
        )
    )


def _compute_dtype(config: Section, training: Section) -> str:
    """The flags of the training section win over the model's own word."""
    word = config.word("compute_dtype", default="float16", allowed=DTYPES)
    halves = [name for flag, name in (("bf16", "bfloat16"), ("fp16", "float16")) if training.flag(flag, default=False)]
    if len(halves) > 1:
        training.reading.problem(training.path("fp16"), "fp16 and bf16 cannot both be set")
    return halves[0] if halves else word


def _optimizer(top: Section, config: Section, training: Section) -> OptimizerSpec | None:
    """A copy of the weights in 32 bit stays where they are stored so, or where training in half precision is asked for."""
    stored = config.word("params_dtype", default="float32", allowed=DTYPES)
    half = training.flag("bf16", default=False) or training.flag("fp16", default=False)
    full = training.flag("accumulate_allreduce_grads_in_fp32", default=False)
    return top.reading.build(
        lambda: OptimizerSpec(
            name=top.section("optimizer_config").word("optimizer_type", default="AdamWeightDecay"),
            master_weights=stored == "float32" or half,
            gradient_dtype="float32" if full else stored,
        )
    )


def _software(parallel: Section, training: Section, sizes: Mapping[str, int]) -> SoftwareSpec:
    """Transfers run beside computing between interleaved stages only, gradients where it is asked for."""
    interleaved = sizes.get("virtual_pipeline_parallel_size", 1) > 1
    return SoftwareSpec(
        framework="mindspore",
        overlap_dp=training.flag("overlap_grad_reduce", default=False),
        overlap_pp=parallel.flag("overlap_p2p_comm", default=True) and interleaved,
    )


SIZES_BY_KEY = {
    "data": ("parallel_config.data_parallel_size", "parallel_config.data_parallel"),
    "tensor": ("parallel_config.tensor_model_parallel_size",),
    "pipeline": ("parallel_config.pipeline_model_parallel_size",),
    "context": ("parallel_config.context_parallel_size",),
    "expert": ("parallel_config.expert_model_parallel_size",),
    "virtual": ("parallel_config.virtual_pipeline_model_parallel_size",),
    "micro_batches": ("dataset_config.micro_batch_num",),
    "batch": ("dataset_config.batch_size",),
    "seq_length": ("model_config.seq_length",),
    "hidden": ("model_config.hidden_size",),
    "layers": ("model_config.num_layers",),
    "heads": ("model_config.num_attention_heads", "model_config.num_heads"),
    "kv_heads": ("model_config.num_query_groups", "model_config.n_kv_heads"),
    "ffn": ("model_config.ffn_hidden_size",),
    "vocab": ("model_config.vocab_size",),
    "zero_shard": ("parallel_config.zero_shard_size",),
    "sequence_parallel": ("parallel_config.sequence_parallel",),
    "optimizer_parallel": ("training_config.use_distributed_optimizer",),
}
"""Where this dialect states what checks compare, by the names of `perfkit.config.lint.facts`."""

DIALECT = Dialect(
    name="mindspeed-core",
    title="MindSpeed-Core-MS YAML",
    looks_for="sections such as model_config, parallel_config with tensor_model_parallel_size, accelerate_config",
    detect=detect,
    read=read,
    parse=yaml.parse,
    sizes=SIZES_BY_KEY,
    settings=settings,
    edit=edit,
    new=new,
    suffix=".yaml",
)
