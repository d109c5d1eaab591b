"""Arguments of Hugging Face's Trainer in every form that they are written in: YAML, JSON, Python, or options of a launch script."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from perfkit.config.dialects import _json_object, _slurm, _trainer_python, args, yaml
from perfkit.config.dialects._args_edit import edit_script
from perfkit.config.dialects.dialect import Changes, Document, Parsed
from perfkit.config.dialects.splice import edit as edit_yaml
from perfkit.core.errors import InputError

NAMES = (
    "per_device_train_batch_size|per_gpu_train_batch_size|per_device_eval_batch_size|num_train_epochs|lr_scheduler_type"
    "|finetuning_type|cutoff_len"
)
"""Arguments that no other program has at its top level; the last two are LLaMA-Factory's."""
OPTION = re.compile(rf"(?<![\w-])--(?:{NAMES.replace('_', '[-_]')})(?![\w-])")
KEY = re.compile(rf"^(?:{NAMES})[ \t]*:", re.MULTILINE)
MEMBER = re.compile(rf"\"(?:{NAMES})\"\s*:")
KEYWORD = re.compile(rf"(?<!\w)(?:{NAMES}|bf16|fp16|output_dir|learning_rate|gradient_accumulation_steps)\s*=(?!=)")
PET = ("PET_NPROC_PER_NODE", "PET_NNODES")
"""By which torchrun is told what its options would."""
DEVICES = (
    "CUDA_VISIBLE_DEVICES",
    "ASCEND_RT_VISIBLE_DEVICES",
    "NPROC_PER_NODE",
    "NNODES",
    "WORLD_SIZE",
    *PET,
    _slurm.NODES,
    _slurm.DEVICES,
)
"""Variables of a script that say how many devices there are."""
LAUNCHED_WITH = (
    *DEVICES,
    *("nproc_per_node", "nnodes", "num_gpus", "num_nodes", "num_processes", "include"),
    *("config_file", "use_deepspeed", "use_fsdp", "mixed_precision", "deepspeed_config_file", "zero_stage"),
    *("offload_optimizer_device", "offload_param_device", "fsdp_sharding_strategy", "fsdp_offload_params"),
    *("fsdp_activation_checkpointing", "fsdp_reshard_after_forward"),
)
"""What a launch line says for a file of arguments, in torchrun's, DeepSpeed's and accelerate's words."""
LISTS = frozenset(
    {
        "lora_target_modules",
        "target_modules",
        "modules_to_save",
        "lora_modules_to_save",
        "freeze_parameters",
        "trainable_parameters",
    }
)
"""Options of a script that take all words up to the next one."""
SWITCHES = {"true": True, "false": False, "yes": True, "no": False}


def form_of(text: str) -> str:
    """The form that a text has arguments of a Trainer in: json, python, script or yaml; "" for a text without any."""
    if text.lstrip().startswith("{"):
        return "json" if MEMBER.search(text) else ""
    if KEYWORD.search(text) and _trainer_python.makes_arguments(text):
        return "python"
    if OPTION.search(text):
        return "script"
    return "yaml" if KEY.search(text) else ""


def parse(text: str, name: str, document: Document | None = None) -> Parsed:
    """Values and lines of the arguments; of a script, with what starts it and the variables that count devices."""
    match form_of(text):
        case "json":
            return _json_object.parse(text, name)
        case "python":
            return _trainer_python.parse(text)
        case "script":
            return _of_script(text, name, document)
    return yaml.parse(text, name)


def _of_script(text: str, name: str, document: Document | None) -> Parsed:
    found = args.parse(text, name, frozenset(), LISTS, document.path if document else None)
    values = {key: _switch(value) for key, value in found.values.items()}
    values |= {name: value for name, value in found.variables.items() if name in DEVICES and name not in values}
    return Parsed(values, found.lines, (*found.repeated, *found.absent))


def _switch(value: Any) -> Any:
    """A switch as a launch line writes it (`--bf16 True`), and the only word of an option that takes several."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return SWITCHES.get(value.lower(), value) if isinstance(value, str) else value


def edit(document: Document, changes: Changes) -> tuple[str, tuple[str, ...]]:
    """The text of a document with arguments changed or added; all else stays as it is."""
    match form_of(document.text):
        case "json":
            return _json_object.edit(document.text, changes)
        case "python":
            return _trainer_python.edit(document.text, document.name, changes)
        case "script":
            nested = [".".join(path) for path in changes if len(path) > 1]
            if nested:
                raise InputError(document.name, [f"{path}: stands in a file of its own; change it there" for path in nested])
            text, notes = edit_script(document.text, {path[0]: value for path, value in changes.items()}, (), LISTS, _lines)
            return text, tuple(notes)
    return edit_yaml(document, changes)


def _lines(text: str) -> Mapping[str, int]:
    return args.parse(text, "", frozenset(), LISTS).lines
