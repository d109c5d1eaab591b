"""MindFormers facts: the settings that a MindFormers log states before its first step.

Source: `base_trainer.py` and `config.py` of MindFormers v0.3 to v1.7. The log writes the product of the batch size with the names
of its factors, in two orders: `global_batch_size = batch_size * data_parallel = 8 * 1 = 8` (old) and `... = 8 = 8 * 1` (new).
"""

from __future__ import annotations

import re

from perfkit.record.formats.logs._log import Log

NAMES = {
    "batch_size": "micro_batch_size",
    "batch_size_per_card": "micro_batch_size",
    "data_parallel": "data_parallel_size",
    "model_parallel": "tensor_parallel_size",
    "pipeline_stage": "pipeline_parallel_size",
    "context_parallel": "context_parallel_size",
    "expert_parallel": "expert_parallel_size",
    "micro_batch_num": "num_micro_batches",
    "micro_batch_interleave_num": "micro_batch_interleave_size",
    "device_num": "num_devices",
    "seq_length": "seq_length",
    "hidden_size": "hidden_size",
    "num_layers": "num_layers",
    "num_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "vocab_size": "vocab_size",
}

_PRODUCT = re.compile(r"(global_batch_size|per_batch_size) = ([a-z_]+(?: \* [a-z_]+)*)((?:\s*=\s*\d{1,15}(?: \* \d{1,15})*)+)")
_STAGES = re.compile(r"pipeline_stages? ?[=:] ?(\d{1,9})")
_ENTRY = re.compile(r"['\"](\w+)['\"]: (\d{1,15})(?=\s*[,}\n]|\s*$)")
_DUMPED = frozenset(NAMES) - {"batch_size", "micro_batch_num"}


def find_facts(text: str, where: str, log: Log) -> None:
    """Add the settings that one line states to the facts of `log`; `where` is its file and line number."""
    if found := _PRODUCT.search(text):
        _add_product(found, where, log)
    if found := _STAGES.search(text):
        log.state("pipeline_parallel_size", int(found[1]), f"{where}, pipeline_stages")
    for name, value in _ENTRY.findall(text):
        if name in _DUMPED:
            log.state(NAMES[name], int(value), f"{where}, {name}")


def _add_product(found: re.Match[str], where: str, log: Log) -> None:
    name, factors = found[1], found[2].split(" * ")
    sides = [[int(number) for number in side.split("*")] for side in found[3].split("=")[1:]]
    products = [side[0] for side in sides if len(side) == 1]
    values = next((side for side in sides if len(side) == len(factors) > 1), [])
    if name == "global_batch_size" and products:
        log.state(name, products[0], f"{where}, {name}")
    for factor, value in zip(factors, values, strict=False):
        if factor in NAMES:
            log.state(NAMES[factor], value, f"{where}, {factor}")
