"""MindFormers YAML: keys, batch arithmetic and recompute lists as that program reads them.

Devices are data x model x pipeline x context parallel. The global batch depends on the parallel mode and on the pipeline
(`mindformers/trainer/base_trainer.py`): with stages micro_batch_num counts and gradient accumulation does not, without it is the
other way round; in data-parallel mode all devices are replicas. Sections that MindFormers checks itself refuse unknown keys here
too; elsewhere they are kept and listed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any

from perfkit.config.dialects import nemo_keys, yaml
from perfkit.config.dialects._adapters import Named, with_adapters
from perfkit.config.dialects._mindformers_class import counts_further_apart, names_class, with_class
from perfkit.config.dialects._mindformers_lists import layers_per_stage, recompute_plan
from perfkit.config.dialects._mindformers_model import read_model
from perfkit.config.dialects._mindformers_pretrained import with_pretrained
from perfkit.config.dialects._mindformers_settings import settings
from perfkit.config.dialects._mindformers_write import edit, new
from perfkit.config.dialects._section import Reading, Section, shown
from perfkit.config.dialects.dialect import Dialect, Document
from perfkit.config.dialects.memory_text import POOL_KEY, pool_limit
from perfkit.config.dialects.mindformers_keys import STRICT, strict_keys
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.optimizer import OptimizerSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan, uneven
from perfkit.core.spec.recompute import Counts, RecomputePlan
from perfkit.core.spec.software import SoftwareSpec
from perfkit.core.spec.workload import Workload

TOP_LEVEL = re.compile(r"^(parallel_config|recompute_config|runner_config|trainer|model|parallel|moe_config)\s*:", re.MULTILINE)
OTHER_FAMILY = re.compile(
    r"^(?:(?:model|dataset|training|accelerate|train)_config[ \t]*:"
    r"|(?:_target_|train|ddp|comm_overlap|mixed_precision|parallelism|system|exp_manager|step_scheduler|actor_rollout_ref)[ \t]*:"
    r"|parallel_config[ \t]*:.*?\b(?:tensor|pipeline)_model_parallel_size"
    r"|[ \t]+(?:fsdp_modules|fsdp_size|ep_fsdp_size|_component_)[ \t]*:)",
    re.MULTILINE | re.DOTALL,
)
MODES = {0: "data_parallel", 1: "semi_auto_parallel", 2: "auto_parallel", 3: "hybrid_parallel"}
HYBRID = ("hybird_cp", "hybrid_cp")
CONTEXT_ALGORITHMS = {"ulysses_cp": "ulysses"} | dict.fromkeys(HYBRID, "hybrid")
PLANNED_MODES = ("semi_auto_parallel", "auto_parallel")
SPLITS = ("data_parallel_size", "tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size")
DTYPES = ("float16", "bfloat16", "float32")
ADAPTERS = Named(
    ranks=("lora_rank",),
    targets=("target_modules",),
    beside=("pet_type", "lora_alpha", "lora_dropout"),
    others=("exclude_layers", "freeze_include", "freeze_exclude"),
    form="start",
)


def detect(document: Document) -> bool:
    """Whether the text has a top-level section of MindFormers, and none of the families that share some of their names."""
    others = (OTHER_FAMILY, nemo_keys.MARK)
    return TOP_LEVEL.search(document.text) is not None and not any(other.search(document.text) for other in others)


def read(document: Document) -> Plan:
    """The plan of a MindFormers YAML. Raises InputError with every problem, each with line, key and value."""
    parsed = yaml.parse(document.text, document.name)
    reading, top = Reading.of(document, parsed)
    for name in STRICT:
        top.section(name).only(strict_keys(name))
    pretrained = with_pretrained(top, top.section("model").section("model_config"))
    config = with_class(pretrained, top.word("pretrained_model_dir", default=""))
    model = _adapted(config, read_model(config, top.section("moe_config"), _names(top, config)))
    before = len(reading.problems)
    sizes: dict[str, Any] = _sizes(top)
    layers = _layers(config, model, sizes) if len(reading.problems) == before else ()
    sequence_parallel = _sequence_parallel(top, sizes["context_parallel_size"])
    workload = _workload(top, config, sizes)
    recompute = recompute_plan(top.section("recompute_config"), layers) if layers else None
    if recompute is not None:
        recompute = _swapped(top.section("swap_config"), layers, recompute)
    optimizer = _optimizer(top, config)
    memory_limit = pool_limit(reading, top.section(POOL_KEY[0]).raw(POOL_KEY[1]))
    software = _software(config)
    _remarks(top, config)
    reading.stop_if_problems()
    return reading.plan(
        model=model,
        workload=workload,
        parallel=reading.build(
            lambda: ParallelPlan(
                **sizes,
                **_context(top),
                **_sharing(top),
                sequence_parallel=sequence_parallel,
                layers_per_stage=uneven(layers),
            )
        ),
        recompute=recompute,
        optimizer=optimizer,
        memory_limit=memory_limit,
        software=software,
        document=reading.annotated("mindformers", parsed.values),
    )


def _adapted(config: Section, model: ModelSpec | None) -> ModelSpec | None:
    """The model with the adapters of `pet_config`, unless its products of queries, keys and values are one of another name."""
    pet = config.section("pet_config") if config.has("pet_config") else None
    if model is None or pet is None or pet.values.get("pet_type") != "lora" or config.values.get("qkv_concat") is True:
        return model
    return with_adapters(pet, model, ADAPTERS)


def _sizes(top: Section) -> dict[str, int]:
    """The parallel sizes as keyword arguments of ParallelPlan."""
    config, parallel = top.section("parallel_config"), top.section("parallel")
    sizes = {
        "data_parallel_size": config.positive_int("data_parallel", default=1),
        "tensor_parallel_size": config.positive_int("model_parallel", default=1),
        "pipeline_parallel_size": config.positive_int("pipeline_stage", default=1),
        "virtual_pipeline_parallel_size": _chunks(top),
        "context_parallel_size": config.positive_int("context_parallel", default=1),
        "expert_parallel_size": config.positive_int("expert_parallel", default=1),
        "micro_batch_interleave_size": top.positive_int("micro_batch_interleave_num", default=1),
    }
    mode = _mode(parallel)
    if not top.flag("use_parallel", default=False):
        top.reading.note("use_parallel is False: one device, the sizes in parallel_config have no effect")
        sizes = dict.fromkeys(sizes, 1)
    elif mode not in PLANNED_MODES:
        devices = math.prod(sizes[name] for name in SPLITS)
        top.reading.note(f"parallel_mode {mode}: all {devices} devices of parallel_config are taken as replicas")
        sizes = dict.fromkeys(sizes, 1) | {"data_parallel_size": devices}
    elif mode == "auto_parallel":
        top.reading.note(
            "parallel_mode auto_parallel: the program chooses itself how operators are split; the file's sizes are counted"
        )
    return sizes | {
        "optimizer_shard_size": _optimizer_shard(parallel, sizes["data_parallel_size"]),
        "expert_tensor_parallel_size": _expert_split(sizes),
    }


def _context(top: Section) -> dict[str, Any]:
    """How the sequence is split: ring attention, Ulysses, or the latter in groups (hybird_cp is how MindFormers spells it)."""
    config = top.section("parallel_config")
    word = config.word("context_parallel_algo", default="colossalai_cp")
    found: dict[str, Any] = {"context_parallel_algorithm": CONTEXT_ALGORITHMS.get(word, "ring")}
    inner, pieces = config.positive_int("ulysses_degree_in_cp", default=1), config.positive_int("seq_split_num", default=1)
    if word in HYBRID:
        found["ulysses_size"] = inner
    elif inner > 1:
        top.reading.note(f"ulysses_degree_in_cp = {inner} has no effect: context_parallel_algo is {word}")
    scheduler = top.section("parallel").section("pipeline_config").word("pipeline_scheduler", default="1f1b")
    if scheduler == "seqpipe":
        found["sequence_chunks"] = pieces
    elif pieces > 1:
        top.reading.note(f"seq_split_num = {pieces} has no effect: pipeline_scheduler is {scheduler}")
    return found


def _sharing(top: Section) -> dict[str, Any]:
    """What the optimizer's group shares; MindSpore's level1 shares weights and states, level2 gradients too."""
    word = top.section("parallel").section("parallel_optimizer_config").word("optimizer_level", default="level1")
    return {"optimizer_shard_level": {"level2": 2, "level3": 3}.get(word, 1)}


def _expert_split(sizes: Mapping[str, int]) -> int:
    """How far a single expert is split: experts take the replicas first, then the devices of the tensor group."""
    replicas = sizes["data_parallel_size"] * sizes["context_parallel_size"]
    devices = replicas * sizes["tensor_parallel_size"]
    borrowed = replicas % sizes["expert_parallel_size"] and devices % sizes["expert_parallel_size"] == 0
    return devices // sizes["expert_parallel_size"] if borrowed else 0


def _sequence_parallel(top: Section, context_parallel_size: int) -> bool:
    asked = top.section("parallel_config").flag("use_seq_parallel", default=False)
    if asked and context_parallel_size > 1:
        top.reading.note("use_seq_parallel has no effect with context_parallel")
    return asked and context_parallel_size == 1


def _workload(top: Section, config: Section, sizes: Mapping[str, int]) -> Workload | None:
    runner, dataset = top.section("runner_config"), top.section("train_dataset")
    batch = runner.positive_int("batch_size", default=0) or dataset.positive_int("batch_size", default=1)
    steps = runner.positive_int("gradient_accumulation_steps", default=1)
    micro_batches = top.section("parallel_config").positive_int("micro_batch_num", default=1)
    staged = sizes["pipeline_parallel_size"] != 1
    if staged and steps > 1:
        top.reading.note(f"gradient_accumulation_steps = {steps} has no effect with pipeline stages")
    if not staged and micro_batches > 1:
        top.reading.note(f"micro_batch_num = {micro_batches} has no effect without pipeline stages")
    if not top.section("parallel").flag("full_batch", default=True):
        top.reading.note("full_batch is False: MindFormers before 1.7 multiplies the batch by all devices instead of data_parallel")
    data = dataset.section("data_loader").section("config")
    stated = config.has("seq_length") and "seq_length" in top.section("model").section("model_config").values
    seq_length = data.positive_int("seq_length", default=0) or _handled_length(dataset.section("data_loader").raw("handler"))
    seq_length = config.positive_int("seq_length", default=0) if stated or not seq_length else seq_length
    if not seq_length:
        config.missing("seq_length", "a whole number of tokens")
        return None
    replicas = sizes["data_parallel_size"] * sizes["micro_batch_interleave_size"]
    return top.reading.build(
        lambda: Workload(
            seq_length=seq_length,
            micro_batch_size=batch,
            global_batch_size=batch * replicas * (micro_batches if staged else steps),
            dtype=config.word("compute_dtype", default="bfloat16", allowed=DTYPES),
            attention_kernel="flash" if config.flag("use_flash_attention", default=_newer(top, config)) else "unfused",
        )
    )


def _layers(config: Section, model: ModelSpec | None, sizes: Mapping[str, int]) -> Counts:
    """Layers of every chunk and stage; empty if the model could not be read."""
    stages, chunks = sizes["pipeline_parallel_size"], sizes["virtual_pipeline_parallel_size"]
    if model is None:
        return ()
    if stages * chunks > model.num_layers:
        config.reading.problem(
            "parallel_config.pipeline_stage", f"{stages} stages x {chunks} chunks for {model.num_layers} layers leave some empty"
        )
        return ()
    apart = model.num_mtp_layers if counts_further_apart(config.values) else 0
    rows = layers_per_stage(config, model.num_layers - apart, stages, chunks)
    return (
        *rows[:-1],
        (*rows[-1][:-1], rows[-1][-1] + apart),
    )  # those stay with the last layer (transformer/multi_token_prediction.py)


def _handled_length(handlers: Any) -> int:
    """The length to which a data set's last handler packs or cuts its samples; 0 where none says so."""
    found = [one.get("seq_length") for one in handlers if isinstance(one, Mapping)] if isinstance(handlers, list) else []
    return next(
        (length for length in reversed(found) if isinstance(length, int) and not isinstance(length, bool) and length > 0), 0
    )


def _chunks(top: Section) -> int:
    interleaved = top.section("parallel").section("pipeline_config").flag("pipeline_interleave", default=False)
    chunks = top.section("model").section("model_config").positive_int("pp_interleave_num", default=1)
    if chunks > 1 and not interleaved:
        top.reading.note(f"pp_interleave_num = {chunks} has no effect while parallel.pipeline_config.pipeline_interleave is off")
    return chunks if interleaved else 1


def _optimizer_shard(parallel: Section, data_parallel_size: int) -> int:
    """Devices that share one optimizer state: the replicas, or the weight shard size if it divides them."""
    settings = parallel.section("parallel_optimizer_config")
    size = settings.integer("optimizer_weight_shard_size", default=-1, low=-1)
    if not parallel.flag("enable_parallel_optimizer", default=False):
        return 1
    if size < 1:
        return data_parallel_size
    if data_parallel_size % size:
        parallel.reading.note(f"optimizer_weight_shard_size = {size} does not divide data_parallel {data_parallel_size}: ignored")
        return data_parallel_size
    return size


def _optimizer(top: Section, config: Section) -> OptimizerSpec | None:
    usual = "float32" if _newer(top, config) else "float16"
    stored = config.word("param_init_type", "params_dtype", default=usual, allowed=DTYPES)
    return top.reading.build(
        lambda: OptimizerSpec(
            name=top.section("optimizer").word("type", default="AdamW"),
            master_weights=stored == "float32",
            gradient_dtype=stored,
        )
    )


def _software(config: Section) -> SoftwareSpec:
    """Fine-grained copies hide collectives of tensor parallelism; what else runs side by side is for the graph compiler to say."""
    copies = config.positive_int("fine_grain_interleave", default=1)
    return SoftwareSpec(framework="mindspore", overlap_tp=True if copies > 1 else None)


def _newer(top: Section, config: Section) -> bool:
    """Whether the models since 1.6 are built, whose defaults differ (`mindformers/parallel_core/transformer_config.py`)."""
    return names_class(config.values) or not top.flag("use_legacy", default=True)


def _swapped(config: Section, layers: Counts, recompute: RecomputePlan) -> RecomputePlan:
    """The plan with the layers that wait on the host (`layer_swap` has their numbers); what is recomputed is not kept to wait."""
    entries, sizes = config.raw("layer_swap"), [count for row in layers for count in row]
    if not config.flag("swap", default=False) or not isinstance(entries, list | Mapping):
        return recompute
    chosen: set[int] = set()
    for entry in [entries] if isinstance(entries, Mapping) else entries:
        named = entry.get("layers") if isinstance(entry, Mapping) else None
        numbers: list[Any] = [*range(sum(sizes))] if named is True else named if isinstance(named, list) else [named]
        if not all(isinstance(one, int) and not isinstance(one, bool) and 0 <= one < sum(sizes) for one in numbers):
            config.reading.problem(config.path("layer_swap"), f"{shown(named)} must be numbers of layers, 0 to {sum(sizes) - 1}")
            return recompute
        chosen.update(numbers)
    full = sizes if recompute.all_layers else [count for row in recompute.full_layers for count in row] or [0] * len(sizes)
    placed = zip(accumulate(sizes), sizes, full, strict=True)
    counts = [min(sum(end - size <= one < end for one in chosen), size - again) for end, size, again in placed]
    width = len(layers[0])
    swapped = tuple(tuple(counts[at : at + width]) for at in range(0, len(counts), width))
    return replace(recompute, swapped_layers=swapped) if any(counts) else recompute


def _remarks(top: Section, config: Section) -> None:
    """Notes on settings that change what the figures mean."""
    reading = top.reading
    if top.section("swap_config").flag("swap", default=False):
        reading.note("swap_config is on: recompute lists then hold layer indices, which are read as counts here")
    if top.word("run_mode", default="train").startswith("predict"):
        reading.note("run_mode is predict: this is no training configuration, its parallel sizes are for inference")


def _names(top: Section, config: Section) -> list[str]:
    names = [
        top.section("trainer").word("model_name", default=""),
        config.word("checkpoint_name_or_path", default=""),
        top.word("pretrained_model_dir", default="").rstrip("/").rpartition("/")[2],
    ]
    return [name for name in names if name]


def _mode(parallel: Section) -> str:
    value = parallel.raw("parallel_mode")
    if isinstance(value, int) and not isinstance(value, bool):
        if value not in MODES:
            parallel.reading.problem(parallel.path("parallel_mode"), f"{value} must be one of 0, 1, 2, 3")
        return MODES.get(value, "semi_auto_parallel")
    return parallel.word("parallel_mode", default="semi_auto_parallel", allowed=(*MODES.values(), "stand_alone"))


SIZES_BY_KEY = {
    "data": ("parallel_config.data_parallel",),
    "tensor": ("parallel_config.model_parallel",),
    "pipeline": ("parallel_config.pipeline_stage",),
    "context": ("parallel_config.context_parallel",),
    "expert": ("parallel_config.expert_parallel",),
    "ulysses": ("parallel_config.ulysses_degree_in_cp",),
    "micro_batches": ("parallel_config.micro_batch_num",),
    "virtual": ("model.model_config.pp_interleave_num",),
    "interleave": ("micro_batch_interleave_num",),
    "batch": ("runner_config.batch_size", "train_dataset.batch_size"),
    "accumulation": ("runner_config.gradient_accumulation_steps",),
    "seq_length": ("model.model_config.seq_length", "train_dataset.data_loader.config.seq_length"),
    "hidden": ("model.model_config.hidden_size",),
    "layers": ("model.model_config.num_layers", "model.model_config.num_hidden_layers"),
    "heads": ("model.model_config.num_heads", "model.model_config.num_attention_heads"),
    "kv_heads": ("model.model_config.n_kv_heads", "model.model_config.num_key_value_heads"),
    "ffn": ("model.model_config.intermediate_size", "model.model_config.ffn_hidden_size"),
    "vocab": ("model.model_config.vocab_size",),
    "zero_shard": ("parallel.parallel_optimizer_config.optimizer_weight_shard_size",),
    "sequence_parallel": ("parallel_config.use_seq_parallel",),
    "optimizer_parallel": ("parallel.enable_parallel_optimizer",),
    "parallel": ("use_parallel",),
    "interleaved": ("parallel.pipeline_config.pipeline_interleave",),
}
"""Where this dialect states what checks compare, by the names of `perfkit.config.lint.facts`."""

DIALECT = Dialect(
    name="mindformers",
    title="MindFormers YAML",
    looks_for="top-level sections such as model, parallel_config, runner_config",
    detect=detect,
    read=read,
    parse=yaml.parse,
    sizes=SIZES_BY_KEY,
    settings=settings,
    edit=edit,
    new=new,
    suffix=".yaml",
)
