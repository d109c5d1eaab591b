"""LLaMA-Factory's training files, YAML or JSON, and the same arguments on a launch line: a model by name, method, batches, sharing.

Names and defaults are those of `hiyouga/LLaMA-Factory src/llamafactory/hparams` (`model_args.py`, `data_args.py`,
`finetuning_args.py`) and, for the Trainer's, of transformers. Layers are computed again unless `disable_gradient_checkpointing`
says otherwise; trained weights are kept in 32 bits unless `pure_bf16` does (`model/adapter.py`), frozen ones as layers compute.
"""

from __future__ import annotations

import difflib
import re
from typing import Any

from perfkit.config.dialects import _trainer_text as forms
from perfkit.config.dialects._accelerate_launch import launched
from perfkit.config.dialects._adapters import Named, modules_of
from perfkit.config.dialects._section import Reading, Section, shown
from perfkit.config.dialects._trained_layers import extra_modules, layer_modules, of_llama_factory
from perfkit.config.dialects._trainer_plan import Job, length_of, plan_of
from perfkit.config.dialects._trainer_plan import settings as common
from perfkit.config.dialects._yaml_values import new_file
from perfkit.config.dialects.dialect import Changes, Dialect, Document, Parsed
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.texts import say

OWN = re.compile(
    r"(?:^|--|\")(?:finetuning[-_]type|cutoff[-_]len|disable[-_]gradient[-_]checkpointing|lora[-_]target|pure[-_]bf16)"
    r"(?![\w-])",
    re.MULTILINE,
)
"""Names that only this program has; at the margin, in an object, or as an option."""
METHODS = ("full", "lora", "freeze", "oft")
STAGES = ("pt", "sft", "rm", "ppo", "dpo", "kto")
USUAL_LENGTH = 2048
OF_FREEZE = ("freeze_trainable_layers", "freeze_trainable_modules", "freeze_extra_modules")
OF_LORA = ("lora_rank", "lora_target", "additional_target", "use_dora")
"""Keys that only one method looks at."""
ADAPTERS = Named(
    ranks=("lora_rank",),
    targets=("lora_target",),
    rank=8,
    target="all",
    beside=("finetuning_type", *OF_FREEZE),
    others=("additional_target", "use_dora", "adapter_name_or_path", "use_llama_pro", "freeze_language_model"),
)
"""Adapters, with the program's own rank and targets."""
HEADER = "# Settings of a step; data, template, checkpoints and learning rate are still to be added.\n"


def detect(document: Document) -> bool:
    """Whether the text has arguments that only this program has."""
    return forms.form_of(document.text) in ("yaml", "json", "script") and OWN.search(document.text) is not None


def parse(text: str, name: str) -> Parsed:
    """Values and lines of the arguments."""
    return forms.parse(text, name)


def read(document: Document) -> Plan:
    """The plan of the file and of the model that it names. Raises InputError with every problem, each with line, key and value."""
    reading, whole = Reading.of(document, forms.parse(document.text, document.name, document))
    options = launched(whole)
    method, stage = _chosen(options, "finetuning_type", METHODS), _chosen(options, "stage", STAGES) or "sft"
    off = options.flag("disable_gradient_checkpointing", default=False)
    again = options.flag("gradient_checkpointing", default=False)
    if options.values.get("gradient_checkpointing") is False and not off:
        reading.note(say("gradient_checkpointing: False switches nothing off here; disable_gradient_checkpointing: True does"))
    packed = options.flag("packing", default=stage == "pt") or options.flag("neat_packing", default=False)
    blocks = options.flag("use_badam", default=False)
    pure = options.flag("pure_bf16", default=False) or blocks
    if method == "full":
        options.asked(*OF_LORA, *OF_FREEZE)
    reading.used -= {"use_badam", "neat_packing"}  # they decide more than is counted, so that they are named too
    job = Job(
        dialect="llama-factory",
        length=length_of(options, ("cutoff_len",), USUAL_LENGTH, packed=packed),
        repeats=again or not off,
        stored="bfloat16" if pure else "float32",
        dtype="bfloat16" if blocks else "float32",
        adapters=ADAPTERS if method in ("", "lora") else None,
        method="" if method else "finetuning_type",
        frozen_as_layers=True,
        frozen=of_llama_factory if method == "freeze" else None,
        asked=("finetuning_type", *OF_FREEZE, *OF_LORA),
    )
    return plan_of(options, job)


def _chosen(options: Section, key: str, allowed: tuple[str, ...]) -> str:
    """A word out of those that the program knows, which stays to be named; "" where the file has none."""
    value = options.values.get(key)
    if value is not None and value not in allowed:
        near = difflib.get_close_matches(str(value), allowed, n=1, cutoff=0)[0]
        options.reading.problem(key, f"{shown(value)} must be one of {', '.join(allowed)}; nearest is {near}")
    return "" if value is None else str(value)


def settings(plan: Plan) -> dict[tuple[str, ...], Any]:
    """What the plan says in the file's keys; the number of devices is what starts it."""
    apart = not plan.optimizer.master_weights and plan.optimizer.parameter_dtype == "bfloat16"
    flash = plan.workload.attention_kernel == "flash"
    return {
        **common(plan),
        **_method(plan),
        ("cutoff_len",): plan.workload.seq_length,
        ("disable_gradient_checkpointing",): not _repeats(plan),
        **({("pure_bf16",): True} if apart else {}),
        **({("flash_attn",): "disabled"} if not flash else {}),
        **({("fp8",): True} if plan.workload.dtype == "float8" else {}),
    }


def _method(plan: Plan) -> dict[tuple[str, ...], Any]:
    """What is trained; rank and targets have no place where all weights are."""
    adapters, trained = plan.model.adapters, plan.model.trained_layers
    if trained:
        stated: dict[str, Any] = {
            "finetuning_type": "freeze",
            "freeze_trainable_layers": trained.last or -trained.first,
            "freeze_trainable_modules": ",".join(layer_modules(trained)),
            "freeze_extra_modules": ",".join(extra_modules(trained, tied=plan.model.tied_embeddings)) or None,
        }
    elif adapters:
        stated = {"finetuning_type": "lora", "lora_rank": adapters.rank, "lora_target": ",".join(modules_of(adapters))}
    else:
        stated = {"finetuning_type": "full"}
    return {(key,): value for key, value in stated.items()}


def _repeats(plan: Plan) -> bool:
    """Whether layers are computed again: all, or the first ones, which are trained, and none of those behind."""
    trained = plan.model.trained_layers
    of_first = trained is not None and trained.first > 0 and plan.recompute == RecomputePlan(full_layers=((trained.first,),))
    return plan.recompute.all_layers or of_first


def new(changes: Changes) -> str:
    """A new file of settings."""
    return new_file(HEADER, changes)


DIALECT = Dialect(
    name="llama-factory",
    title="LLaMA-Factory YAML",
    looks_for="finetuning_type or cutoff_len at the top level",
    detect=detect,
    read=read,
    settings=settings,
    edit=forms.edit,
    new=new,
    suffix=".yaml",
    parse=parse,
    sizes={
        "batch": ("per_device_train_batch_size",),
        "seq_length": ("cutoff_len",),
    },
    launched_with=forms.LAUNCHED_WITH,
)
