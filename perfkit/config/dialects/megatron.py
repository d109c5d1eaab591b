"""Megatron-LM and MindSpeed arguments: a launch script, a flat list of arguments, JSON, or groups of YAML (FlagScale)."""

from __future__ import annotations

import re

from perfkit.config.dialects import neox_keys
from perfkit.config.dialects._megatron_plan import plan_of
from perfkit.config.dialects._megatron_settings import settings
from perfkit.config.dialects._megatron_write import edit, new
from perfkit.config.dialects._script_beside import script_beside
from perfkit.config.dialects._section import Reading, Section
from perfkit.config.dialects.args import in_groups, parse
from perfkit.config.dialects.dialect import Dialect, Document, Parsed
from perfkit.config.dialects.megatron_options import FLAGS, LISTS
from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan

OPTION = re.compile(r"(?:--|\")(?:num[-_]layers|hidden[-_]size|tensor[-_]model[-_]parallel[-_]size|micro[-_]batch[-_]size)\b")
SCRIPT = re.compile(r"\S+\.(?:sh|sbatch|slurm)\b")
MOST_NAMED = 20
LIBRARY = re.compile(r"\"(?:model_type|architectures|transformers_version)\"\s*:")
"""Names that only a Hugging Face config.json has, whose sizes are called as the options are."""


def detect(document: Document) -> bool:
    """Whether the text, or a script that it names, has one of Megatron's size options, or it holds them in groups of YAML."""
    text = document.text
    if in_groups(text) or _names_options(document):
        return True
    return OPTION.search(text) is not None and LIBRARY.search(text) is None and neox_keys.MARK.search(text) is None


def _names_options(document: Document) -> bool:
    """Whether the text is a script that names another one beside it, which has the options."""
    if document.path is None or not document.text.startswith("#!"):
        return False
    named = [found[0] for found, _ in zip(SCRIPT.finditer(document.text), range(MOST_NAMED), strict=False)]
    files = {file for name in named if (file := script_beside(document.path, name)) and file.name != document.path.name}
    return any(OPTION.search(file.read_text(encoding="utf-8", errors="replace")) for file in files)


def read(document: Document) -> Plan:
    """The plan of Megatron arguments. Raises InputError with every problem, each with line, option and value."""
    arguments = parse(document.text, document.name, FLAGS, LISTS, document.path)
    reading = Reading(document, lines=arguments.lines, notes=[*arguments.repeated, *arguments.absent])
    options = Section(reading, "", arguments.values)
    try:
        return plan_of(options, arguments.variables, lambda: reading.annotated("megatron", arguments.values))
    except InputError as error:  # what is missing may stand where the file does not say whether it counts
        raise InputError(error.subject, [*error.problems, *arguments.absent]) from None


def _parsed(text: str, name: str) -> Parsed:
    found = parse(text, name, FLAGS, LISTS)
    return Parsed(found.values, found.lines, tuple(found.repeated))


SIZES_BY_KEY = {
    "tensor": ("tensor_model_parallel_size",),
    "pipeline": ("pipeline_model_parallel_size",),
    "context": ("context_parallel_size",),
    "expert": ("expert_model_parallel_size",),
    "batch": ("micro_batch_size",),
    "global_batch": ("global_batch_size",),
    "virtual": ("num_virtual_stages_per_pipeline_rank",),
    "seq_length": ("seq_length",),
    "hidden": ("hidden_size",),
    "layers": ("num_layers",),
    "heads": ("num_attention_heads",),
    "kv_heads": ("num_query_groups",),
    "ffn": ("ffn_hidden_size",),
    "sequence_parallel": ("sequence_parallel",),
    "optimizer_parallel": ("use_distributed_optimizer",),
}
"""Where this dialect states what checks compare, by the names of `perfkit.config.lint.facts`."""

DIALECT = Dialect(
    name="megatron",
    title="Megatron arguments",
    looks_for="options such as --num-layers, --hidden-size, --micro-batch-size",
    detect=detect,
    read=read,
    parse=_parsed,
    sizes=SIZES_BY_KEY,
    settings=settings,
    edit=edit,
    new=new,
    suffix=".sh",
)
