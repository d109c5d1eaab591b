"""What `accelerate launch` says for a Trainer, in its own file (`--config_file`) or in options: processes, sharing, precision.

Names are those of `huggingface/accelerate src/accelerate/commands/launch.py` and of the files that `accelerate config` writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from perfkit.config.dialects import yaml
from perfkit.config.dialects._section import Section
from perfkit.config.dialects._trainer_sharing import file_beside
from perfkit.core.errors import InputError
from perfkit.core.texts import say

STRATEGIES = {"1": "full_shard", "2": "shard_grad_op", "3": "no_shard", "4": "hybrid_shard", "5": "hybrid_shard_zero2"}
"""Strategies of FSDP by the numbers that older files have."""
PRECISIONS = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}
KINDS = {"use_deepspeed": "DEEPSPEED", "use_fsdp": "FSDP"}
OF_ENGINE = ("zero_stage", "offload_optimizer_device", "offload_param_device", "deepspeed_config_file")
GROUPS = "parallelism_config_"
OF_FSDP = ("fsdp_sharding_strategy", "fsdp_offload_params", "fsdp_activation_checkpointing", "fsdp_reshard_after_forward")
SIZES = ("tp_size", "cp_size", "sp_size", "dp_shard_size", "dp_replicate_size")
"""Of groups of devices (`parallelism_config`), behind the group's own name."""
READ = {
    "": ("num_processes", "mixed_precision", "distributed_type", "fsdp_config", "deepspeed_config", "parallelism_config"),
    "fsdp_config": OF_FSDP,
    "deepspeed_config": OF_ENGINE,
    "parallelism_config": tuple(f"{GROUPS}{name}" for name in (*SIZES, "cp_backend", "sp_backend")),
}
"""Keys of a file that are read, by the group in which they stand."""


def launched(options: Section) -> Section:
    """The arguments with what `accelerate launch` says beside them; what the arguments state themselves stays."""
    named, reading = options.values.get("config_file"), options.reading
    stated = {key: value for key, value in options.values.items() if key.startswith(("fsdp_", "zero_", "offload_", GROUPS))}
    stated |= {key: options.values[key] for key in ("mixed_precision", "deepspeed_config_file") if key in options.values}
    kind = next((kind for flag, kind in KINDS.items() if options.values.get(flag) is True), "")
    file = file_beside(reading.document, str(named)) if named is not None else None
    given: dict[str, Any] = {"distributed_type": kind} if kind else {}
    if file is not None:
        try:
            given = {**yaml.parse(file.text, file.name).values, **given}
        except InputError as error:
            reading.problem("config_file", f"{file.name}: {error.problems[0]}")
        reading.note(say("{name} says how many processes there are and what they share", name=file.name))
        options.asked("config_file")
    if not given and "mixed_precision" not in stated and not any(key.startswith(GROUPS) for key in stated):
        return options
    options.asked(*KINDS, *stated, *SIZES, "use_parallelism_config")
    found = _as_arguments(given, stated)
    if any(options.values.get(key) is True for key in ("bf16", "fp16")):  # the Trainer tells accelerate, not the other way round
        found = {key: value for key, value in found.items() if key not in PRECISIONS}
    return replace(options, values={**found, **options.values})


def _as_arguments(given: Mapping[str, Any], stated: Mapping[str, Any]) -> dict[str, Any]:
    """The file's values, and the options that win over them, by the names of a Trainer."""
    found = {"num_processes": given["num_processes"]} if isinstance(given.get("num_processes"), int) else {}
    found |= _groups({**_section(given, "parallelism_config"), **stated})
    if others := {
        group: kept for group, read in READ.items() if (kept := _others(_section(given, group) if group else given, read))
    }:
        found["accelerate"] = {**others.pop("", {}), **others}  # what is not read is named by what it decides
    precision = str(stated.get("mixed_precision", given.get("mixed_precision", "")))
    if precision in PRECISIONS:
        found[PRECISIONS[precision]] = True
    match str(given.get("distributed_type", "")).upper():
        case "DEEPSPEED":
            found |= _engine({**_section(given, "deepspeed_config"), **stated})
        case "FSDP":
            found |= _fsdp({**_section(given, "fsdp_config"), **stated})
    return found


def _section(given: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = given.get(key)
    return value if isinstance(value, Mapping) else {}


def _others(given: Mapping[str, Any], read: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key not in read}


def _groups(given: Mapping[str, Any]) -> dict[str, Any]:
    """How devices are grouped: sequences are shared by exchanging heads under DeepSpeed, else around a ring."""
    sizes = {name: size for name in SIZES if isinstance(size := given.get(f"{GROUPS}{name}"), int) and size > 1}
    if "sp_size" in sizes or given.get(f"{GROUPS}cp_backend") == "deepspeed":
        return {**sizes, "sequence_parallel_mode": "ulysses"}
    return {**sizes, "sequence_parallel_mode": "ring"} if "cp_size" in sizes else sizes


def _engine(given: Mapping[str, Any]) -> dict[str, Any]:
    if file := given.get("deepspeed_config_file"):
        return {"deepspeed": file}
    zero: dict[str, Any] = {"stage": given.get("zero_stage", 2)}
    for part in ("optimizer", "param"):
        if (device := given.get(f"offload_{part}_device", "none")) != "none":
            zero[f"offload_{part}"] = {"device": device}
    auto = {"enabled": "auto"}
    return {"deepspeed": {"zero_optimization": zero, "bf16": auto, "fp16": dict(auto)}}


def _fsdp(given: Mapping[str, Any]) -> dict[str, Any]:
    strategy = str(given.get("fsdp_sharding_strategy", "1")).lower()
    words = [STRATEGIES.get(strategy, strategy), *(["offload"] if given.get("fsdp_offload_params") is True else [])]
    kept = {key: given[key] for key in OF_FSDP[2:] if isinstance(given.get(key), bool)}
    return {"fsdp": words, "fsdp_config": kept}
