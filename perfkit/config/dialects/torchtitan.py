"""torchtitan TOML: a model of the catalogue by name and flavor, degrees of parallelism, and how activations are kept.

The file does not say how many devices there are: with `data_parallel_shard_degree = -1` the launcher's own default of 8 a job is
taken (`pytorch/torchtitan run_train.sh`), and said. Older releases have the degrees under [training] and [experimental].
"""

from __future__ import annotations

import re
from typing import Any

from perfkit.config.dialects import toml
from perfkit.config.dialects._section import Reading, Section
from perfkit.config.dialects._toml_splice import edit, key_text, value_text
from perfkit.config.dialects.dialect import Changes, Dialect, Document
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.optimizer import OptimizerSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan, even_layers
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.software import SoftwareSpec
from perfkit.core.spec.workload import Workload

FLAVOR = re.compile(r"^\s*flavor\s*=", re.MULTILINE)
TABLE = re.compile(r"^\s*\[(?:training|parallelism|experimental|job)\]", re.MULTILINE)
USUAL_DEVICES = 8
DTYPES = ("bfloat16", "float16", "float32")
WHERE = ("parallelism", "experimental", "training")
NAMES = {
    "llama3-8b": ("llama3", "8B"),
    "llama3-70b": ("llama3", "70B"),
    "llama3-405b": ("llama3", "405B"),
    "llama4-scout": ("llama4", "17bx16e"),
    "llama4-maverick": ("llama4", "17bx128e"),
    "qwen3-0.6b": ("qwen3", "0.6B"),
    "qwen3-1.7b": ("qwen3", "1.7B"),
    "qwen3-4b": ("qwen3", "4B"),
    "qwen3-8b": ("qwen3", "8B"),
    "qwen3-14b": ("qwen3", "14B"),
    "qwen3-32b": ("qwen3", "32B"),
    "qwen3-30b-a3b": ("qwen3", "30B-A3B"),
    "qwen3-235b-a22b": ("qwen3", "235B-A22B"),
    "deepseek-v2-lite": ("deepseek_v3", "16B"),
    "deepseek-v2": ("deepseek_v3", "236B"),
    "deepseek-v3": ("deepseek_v3", "671B"),
    "gpt-oss-20b": ("gpt_oss", "20B"),
    "gpt-oss-120b": ("gpt_oss", "120B"),
}
"""Models of the catalogue that torchtitan has, by its name and flavor."""
KERNELS = re.compile(r"_(?:flex|varlen)(?:_attn)?$")
"""What a flavor may end in: a kernel of attention, which changes no size."""
REPEATED_OPERATORS = (
    *(r"attention_norm\.norm", r"attention\.wk\.matmul", r"attention\.wo\.matmul", "add", r"ffn_norm\.norm"),
    *(r"feed_forward\.w3\.matmul", r"feed_forward\.w1\.activation\.silu", r"feed_forward\.mul"),
)
"""What selective recomputation by operator repeats of a layer: it keeps the layer's input, the output of attention and that of
every second product (queries, values, gate), in the order in which they run (torchtitan, `_save_list`).
"""
OPTIMIZERS = {"adamw": "AdamW", "adam": "Adam"}


def detect(document: Document) -> bool:
    """Whether the text names a flavor of a model and has a table of torchtitan."""
    return FLAVOR.search(document.text) is not None and TABLE.search(document.text) is not None


def read(document: Document) -> Plan:
    """The plan of the file. Raises InputError with every problem, each with line, key and value."""
    parsed = toml.parse(document.text, document.name)
    reading, top = Reading.of(document, parsed)
    model = _model(top)
    sizes, shards = _sizes(top)
    replicas = sizes["data_parallel_size"]
    level, training = _level(top), top.section("training")
    micro = training.positive_int("local_batch_size", "batch_size", default=8)
    stages = sizes["pipeline_parallel_size"]
    micro_batch = _section_of(top, "pipeline_parallel_microbatch_size").positive_int("pipeline_parallel_microbatch_size", default=1)
    batch = training.integer("global_batch_size", default=-1, low=-1)
    recompute = _recompute(top, model, stages)
    eight = _eight_bit(top)
    reading.stop_if_problems()
    half = training.word("mixed_precision_param", default="bfloat16", allowed=DTYPES)
    stored = training.word("dtype", default="float32", allowed=DTYPES)
    return reading.plan(
        model=model,
        workload=reading.build(
            lambda: Workload(
                seq_length=training.positive_int("seq_len", default=2048),
                micro_batch_size=min(micro_batch, micro) if stages > 1 else micro,
                global_batch_size=batch if batch > 0 else micro * replicas,
                dtype="float8" if eight else half,
            )
        ),
        parallel=reading.build(lambda: ParallelPlan(**sizes, optimizer_shard_size=shards, optimizer_shard_level=level)),
        recompute=recompute,
        optimizer=reading.build(
            lambda: OptimizerSpec(
                name=OPTIMIZERS.get(top.section("optimizer").word("name", default="AdamW").lower(), "AdamW"),
                master_weights=stored == "float32",
                gradient_dtype=training.word("mixed_precision_reduce", default="float32", allowed=DTYPES),
                moment_dtype=stored if stored != "float16" else "float32",
            )
        ),
        software=SoftwareSpec(
            framework="fsdp",
            overlap_dp=True,
            overlap_tp=top.section("parallelism").flag("enable_async_tensor_parallel", default=False),
        ),
        document=reading.annotated("torchtitan", parsed.values),
    )


def _model(top: Section) -> ModelSpec | None:
    section = top.section("model")
    name, flavor = section.word("name", default=""), section.word("flavor", default="")
    entry = next((one for one, names in NAMES.items() if names == (name, KERNELS.sub("", flavor))), f"{name}-{flavor}".lower())
    if found := catalog.find_model(entry):
        return found
    section.reading.problem(
        section.path("flavor"), f"{name} {flavor} is no model of the catalogue: its sizes are in torchtitan's code"
    )
    return None


def _section_of(top: Section, key: str) -> Section:
    """The table that has a key, the newest place first."""
    sections = [top.section(name) for name in WHERE]
    return next((section for section in sections if section.has(key)), sections[0])


def _degree(top: Section, key: str, default: int = 1) -> int:
    return _section_of(top, key).integer(key, default=default, low=-1)


def _sizes(top: Section) -> tuple[dict[str, Any], int]:
    """Sizes of the groups, and over how many replicas the parameters are shared."""
    tensor, stages, context = (_degree(top, f"{name}_parallel_degree") for name in ("tensor", "pipeline", "context"))
    copies, shards = _degree(top, "data_parallel_replicate_degree"), _degree(top, "data_parallel_shard_degree", -1)
    if shards < 1:
        one = max(1, tensor * stages * context * copies)
        shards = max(1, USUAL_DEVICES // one)
        top.reading.default(
            "data_parallel_size", f"{copies * shards}: the file shares over all devices; the launcher's usual 8 are taken"
        )
    experts, inner = _degree(top, "expert_parallel_degree"), _degree(top, "expert_tensor_parallel_degree")
    sizes = {
        "data_parallel_size": copies * shards,
        "tensor_parallel_size": tensor,
        "pipeline_parallel_size": stages,
        "context_parallel_size": context,
        "sequence_parallel": tensor > 1,  # Norms are split with their inputs (torchtitan, apply_tp).
        "expert_parallel_size": experts,
        "expert_tensor_parallel_size": inner if experts > 1 else 0,
    }
    return sizes, shards * context  # One group of both shares the parameters.


def _level(top: Section) -> int:
    """With resharding parameters are shared too; without it they stay after the forward pass. A pipeline keeps them by default."""
    word = _section_of(top, "fsdp_reshard_after_forward").word("fsdp_reshard_after_forward", default="default")
    stages = _degree(top, "pipeline_parallel_degree")
    return 2 if word == "never" or (word == "default" and stages > 1) else 3


def _recompute(top: Section, model: ModelSpec | None, stages: int) -> RecomputePlan | None:
    section = top.section("activation_checkpoint")
    mode = section.word("mode", default="selective", allowed=("none", "selective", "full", "memory_budget"))
    option = str(section.raw("selective_ac_option") or "2")
    if mode == "full":
        return RecomputePlan(all_layers=True)
    if mode == "selective" and option.isdigit() and int(option) and model is not None:
        chosen = model.num_layers // int(option)
        each, rest = divmod(chosen, max(1, stages))
        rows = (tuple(each + (stage < rest) for stage in range(stages)),)
        return RecomputePlan(full_layers=rows)
    if mode == "selective" and option == "op" and model is not None and not model.num_experts:
        return RecomputePlan(operators=dict.fromkeys(REPEATED_OPERATORS, even_layers(model.num_layers, stages, 1)))
    if mode != "none":
        text = f"{mode}, {option}: which operators are kept is chosen one by one; nothing is counted as recomputed"
        top.reading.default("recompute", text)
    return RecomputePlan()


def _eight_bit(top: Section) -> bool:
    """Whether products are in 8 bit: by converters of the model, or in newer releases by [quantize]."""
    converters = top.section("model").raw("converters", "print_after_conversion")
    words = [str(word) for word in converters] if isinstance(converters, list) else []
    return any("float8" in word or "mx" in word for word in words)


def settings(plan: Plan) -> dict[tuple[str, ...], Any]:
    """What the plan says in the file's keys. Raises InputError for a model that torchtitan has no name for."""
    parallel, work = plan.parallel, plan.workload
    shards = max(1, parallel.optimizer_shard_size // parallel.context_parallel_size)
    found = next((names for entry, names in NAMES.items() if catalog.model(entry) == plan.model), None)
    if found is None:
        raise InputError("torchtitan", [f"it names its models, and {plan.model.name or 'this one'} is none of {', '.join(NAMES)}"])
    by_operator = set(REPEATED_OPERATORS) == set(plan.recompute.operators)
    chosen: dict[tuple[str, ...], Any] = {("activation_checkpoint", "selective_ac_option"): "op"} if by_operator else {}
    return chosen | {
        ("model", "name"): found[0],
        ("model", "flavor"): found[1],
        ("training", "local_batch_size"): work.global_batch_size // parallel.data_parallel_size,
        ("training", "seq_len"): work.seq_length,
        ("parallelism", "data_parallel_replicate_degree"): parallel.data_parallel_size // shards,
        ("parallelism", "data_parallel_shard_degree"): shards,
        ("parallelism", "tensor_parallel_degree"): parallel.tensor_parallel_size,
        ("parallelism", "pipeline_parallel_degree"): parallel.pipeline_parallel_size,
        ("parallelism", "context_parallel_degree"): parallel.context_parallel_size,
        ("parallelism", "expert_parallel_degree"): parallel.expert_parallel_size,
        ("activation_checkpoint", "mode"): "full" if plan.recompute.all_layers else "selective" if by_operator else "none",
    }


def new(changes: Changes) -> str:
    """A new file of settings."""
    tables: dict[str, list[str]] = {}
    for (table, key), value in changes.items():
        tables.setdefault(table, []).append(f"{key_text(key)} = {value_text(value)}\n")
    return "\n".join(f"[{table}]\n{''.join(rows)}" for table, rows in tables.items())


DIALECT = Dialect(
    name="torchtitan",
    title="torchtitan TOML",
    looks_for="a TOML with a flavor of a model and tables such as [training], [parallelism]",
    detect=detect,
    read=read,
    settings=settings,
    edit=edit,
    new=new,
    suffix=".toml",
    parse=toml.parse,
)
