"""MindSpeed-LLM's YAML for `train_fsdp2.py`: sections model, data, parallel and training; the model is a Hugging Face folder.

Keys and defaults are those of `mindspeed_llm/fsdp2` and its examples. Without `fsdp_size` parameters are shared over all devices
that the launcher starts.
"""

from __future__ import annotations

import re
from typing import Any

from perfkit.config.dialects import yaml
from perfkit.config.dialects._model_beside import model_beside
from perfkit.config.dialects._section import Reading, Section
from perfkit.config.dialects._yaml_values import new_file
from perfkit.config.dialects.dialect import Changes, Dialect, Document
from perfkit.config.dialects.splice import edit
from perfkit.core.spec.optimizer import OptimizerSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.software import SoftwareSpec
from perfkit.core.spec.workload import Workload

SECTION = re.compile(r"^parallel[ \t]*:", re.MULTILINE)
SHARING = re.compile(r"^[ \t]+(?:fsdp_modules|fsdp_size|ep_fsdp_size)[ \t]*:", re.MULTILINE)
USUAL_DEVICES = 8
WHOLE_LAYERS = re.compile(r"(?:layers|blocks|h)\.(?:\{\*\}|\*)(?:\.layer)?$")
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
CONTEXT_ALGORITHMS = {"ulysses": "ulysses", "ring": "ring"}
HEADER = "# Settings of a step; data, checkpoints and learning rate are still to be added.\n"


def detect(document: Document) -> bool:
    """Whether the text has a section of the groups that share parameters."""
    return SECTION.search(document.text) is not None and SHARING.search(document.text) is not None


def read(document: Document) -> Plan:
    """The plan of the file and of the model that it names. Raises InputError with every problem, each with line, key and value."""
    parsed = yaml.parse(document.text, document.name)
    reading, top = Reading.of(document, parsed)
    named, data, parallel, training = (top.section(name) for name in ("model", "data", "parallel", "training"))
    found = model_beside(reading, "model.model_name_or_path", named.word("model_name_or_path", default=""))
    tensor, context = parallel.positive_int("tp_size", default=1), parallel.positive_int("cp_size", default=1)
    shards = parallel.positive_int("fsdp_size", default=0)
    if not shards:
        shards = max(1, USUAL_DEVICES // (tensor * context))
        reading.default("data_parallel_size", f"{shards}: the file shares over all devices; 8 of them are taken")
    experts = parallel.positive_int("ep_size", default=1)
    algorithm = parallel.word("cp_type", default="ulysses", allowed=CONTEXT_ALGORITHMS)
    micro = training.positive_int("per_device_train_batch_size", default=1)
    steps = training.positive_int("gradient_accumulation_steps", default=1)
    length = data.positive_int("cutoff_len", default=4096)
    repeats = _repeats(parallel)
    compute = parallel.word("param_dtype", default="bf16", allowed=DTYPES)
    sums = parallel.word("reduce_dtype", default="fp32", allowed=DTYPES)
    reading.stop_if_problems()
    assert found is not None
    model, sequence = found
    return reading.plan(
        model=model,
        workload=Workload(
            seq_length=length,
            micro_batch_size=micro,
            global_batch_size=micro * steps * shards,
            dtype=DTYPES[compute],
            dropout=sequence.dropout,
        ),
        parallel=reading.build(
            lambda: ParallelPlan(
                data_parallel_size=shards,
                tensor_parallel_size=tensor,
                sequence_parallel=tensor > 1,
                context_parallel_size=context,
                context_parallel_algorithm="ulysses" if context > 1 and algorithm == "ulysses" else "ring",
                expert_parallel_size=experts,
                optimizer_shard_size=shards * context,
                optimizer_shard_level=3,
            )
        ),
        recompute=RecomputePlan(all_layers=repeats),
        optimizer=OptimizerSpec(name="AdamW", gradient_dtype=DTYPES[sums]),
        software=SoftwareSpec(framework="fsdp", overlap_dp=True),
        document=reading.annotated("mindspeed-fsdp2", parsed.values),
    )


def _repeats(parallel: Section) -> bool:
    """Whether whole layers are computed again; parts of them are said not to be counted."""
    if not parallel.flag("recompute", default=False):
        return False
    modules = parallel.raw("recompute_modules")
    parts = [str(one) for one in modules if not WHOLE_LAYERS.search(str(one))] if isinstance(modules, list) else []
    whole = not parts or len(parts) < len(modules)
    if parts:
        counted = "all layers" if whole else "none"
        parallel.reading.default(
            "recompute", f"{counted}: of parallel.recompute_modules whole layers are counted alone, not {', '.join(parts)}"
        )
    return whole


def settings(plan: Plan) -> dict[tuple[str, ...], Any]:
    """What the plan says in the file's keys; the model is another file's."""
    work, parallel = plan.workload, plan.parallel
    dtypes = {dtype: word for word, dtype in DTYPES.items()}
    return {
        ("data", "cutoff_len"): work.seq_length,
        ("parallel", "fsdp_size"): parallel.data_parallel_size,
        ("parallel", "tp_size"): parallel.tensor_parallel_size,
        ("parallel", "ep_size"): parallel.expert_parallel_size,
        ("parallel", "cp_size"): parallel.context_parallel_size,
        ("parallel", "recompute"): plan.recompute.all_layers,
        ("training", "per_device_train_batch_size"): work.micro_batch_size,
        ("training", "gradient_accumulation_steps"): plan.num_micro_batches,
        ("parallel", "reduce_dtype"): dtypes.get(plan.optimizer.gradient_dtype, "fp32"),
    }


def new(changes: Changes) -> str:
    """A new file of settings."""
    return new_file(HEADER, changes)


DIALECT = Dialect(
    name="mindspeed-fsdp2",
    title="MindSpeed-LLM FSDP2 YAML",
    looks_for="a section parallel with fsdp_modules or fsdp_size",
    detect=detect,
    read=read,
    settings=settings,
    edit=edit,
    new=new,
    suffix=".yaml",
    parse=yaml.parse,
    sizes={
        "tensor": ("parallel.tp_size",),
        "context": ("parallel.cp_size",),
        "expert": ("parallel.ep_size",),
        "batch": ("training.per_device_train_batch_size",),
        "seq_length": ("data.cutoff_len",),
    },
)
