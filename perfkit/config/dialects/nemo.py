"""NeMo's YAML (1.x and its launcher's): devices of a trainer, a model in names near Megatron's, references to one another.

Files of NeMo 2 are Python; what they start with saves Megatron-Bridge's groups (`megatron_bridge.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from perfkit.config.dialects import yaml
from perfkit.config.dialects._interpolated import resolved
from perfkit.config.dialects._megatron_plan import plan_of
from perfkit.config.dialects._nemo_settings import settings
from perfkit.config.dialects._section import Reading, Section
from perfkit.config.dialects._yaml_values import new_file
from perfkit.config.dialects.dialect import Changes, Dialect, Document
from perfkit.config.dialects.nemo_keys import MARK, read_names, stated, wide_weights
from perfkit.config.dialects.splice import edit, value_at
from perfkit.core.spec.plan import Plan

MODEL = re.compile(r"^model[ \t]*:", re.MULTILINE)
LAUNCHER = "training"
"""The group in which the launcher has all of a file; references may begin with it."""
HEADER = "# Settings of a step; data, learning rate, checkpoints and logging are still to be added.\n"
OTHER = {
    "encoder": "an encoder beside its decoder",
    "bert_binary_head": "an encoder",
    "retro": "retrieved text beside its own",
    "hyena": "layers that are no attention",
    "hybrid_override_pattern": "state-space layers",
    "mamba_ssm_ngroups": "state-space layers",
    "mm_cfg": "an encoder of pictures",
    "vision": "an encoder of pictures",
}
"""Groups and keys of models that are no decoder of attention layers alone."""


def detect(document: Document) -> bool:
    """Whether the text has a group for the model with a key that only this program calls so."""
    return MODEL.search(document.text) is not None and MARK.search(document.text) is not None


def read(document: Document) -> Plan:
    """The plan of the groups. Raises InputError with every problem, each with line, key and value."""
    parsed = yaml.parse(document.text, document.name)
    values = resolved(parsed.values, LAUNCHER)
    options, names = stated(values)
    lines = {option: parsed.lines[name] for option, name in names.items() if name in parsed.lines}
    reading = Reading(document, lines=lines, names=names, notes=list(parsed.duplicates))
    _refuse_others(reading, values, options)
    if options.get("nproc_per_node") in (-1, "auto"):
        del options["nproc_per_node"]  # all that there are
        options.pop("nnodes", None)
    plan = plan_of(Section(reading, "", options), {}, lambda: reading.annotated("nemo", values, read_names()))
    if plan.workload.dtype != "float32" and wide_weights(values):
        wide = replace(plan.optimizer, master_weights=False, parameter_dtype="float32")
        return replace(plan, optimizer=wide)
    return plan


def _refuse_others(reading: Reading, values: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Note as a problem what nothing counts, or that the sizes are elsewhere, and stop there."""
    for key, what in OTHER.items():
        if value_at(values, ("model", key)) not in (None, False):
            reading.problem(f"model.{key}", f"the model has {what}, which nothing here counts yet")
    start = next((place for place in (("model", "restore_from_path"), ("restore_from_path",)) if value_at(values, place)), None)
    if start is not None and "hidden_size" not in options:
        reading.problem(".".join(start), "the sizes of the model are in this checkpoint, in its model_config.yaml: open that")
    reading.stop_if_problems()


def new(changes: Changes) -> str:
    """A new file of settings."""
    return new_file(HEADER, changes)


def _below(*names: str) -> tuple[str, ...]:
    return tuple(f"model.{name}" for name in names)


DIALECT = Dialect(
    name="nemo",
    title="NeMo YAML",
    looks_for="a group model with megatron_amp_O2, mcore_gpt, encoder_seq_length or activations_checkpoint_method",
    detect=detect,
    read=read,
    settings=settings,
    edit=edit,
    new=new,
    suffix=".yaml",
    parse=yaml.parse,
    sizes={
        "tensor": _below("tensor_model_parallel_size"),
        "pipeline": _below("pipeline_model_parallel_size"),
        "context": _below("context_parallel_size"),
        "expert": _below("expert_model_parallel_size"),
        "virtual": _below("virtual_pipeline_model_parallel_size"),
        "batch": _below("micro_batch_size"),
        "global_batch": _below("global_batch_size"),
        "seq_length": _below("data.seq_length", "encoder_seq_length"),
        "hidden": _below("hidden_size"),
        "layers": _below("num_layers"),
        "heads": _below("num_attention_heads"),
        "kv_heads": _below("num_query_groups"),
        "ffn": _below("ffn_hidden_size"),
        "sequence_parallel": _below("sequence_parallel"),
    },
)
