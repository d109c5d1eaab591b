"""Arguments of Hugging Face's Trainer and TRL's SFT: `TrainingArguments(...)` in Python, a launch line's options, YAML or JSON.

Names and defaults are those of `huggingface/transformers src/transformers/training_args.py` and `huggingface/trl
trl/trainer/sft_config.py`. A script says in calls of its own which model it loads, and in which precision.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from perfkit.config.dialects import _trainer_text as forms
from perfkit.config.dialects._accelerate_launch import launched
from perfkit.config.dialects._adapters import Named
from perfkit.config.dialects._section import Reading, Section, shown
from perfkit.config.dialects._trained_layers import OF_SWIFT, of_swift
from perfkit.config.dialects._trainer_plan import DTYPES, LORA, USUAL_DEVICES, Job, length_of, plan_of
from perfkit.config.dialects._trainer_plan import settings as common
from perfkit.config.dialects._yaml_values import nested
from perfkit.config.dialects.dialect import Changes, Dialect, Document, Parsed
from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan

OTHERS = re.compile(
    r"(?:^|--|\")(?:finetuning[-_]type|cutoff[-_]len|num[-_]layers|hidden[-_]size|micro[-_]batch[-_]size)(?![\w-])", re.MULTILINE
)
"""Names of LLaMA-Factory and of Megatron, whose files have some of a Trainer's beside them."""
LENGTHS = ("max_length", "max_seq_length", "max_seq_len", "block_size", "model_max_length", "seq_length")
OF_TRL = "Config"
"""How the names of TRL's arguments end, which compute layers again, in bf16, unless they say otherwise."""
SWIFT = re.compile(r"\bswift\s+(?:sft|pt)\b")
"""ms-swift, whose defaults are its own: layers are computed again, adapters are trained, weights are loaded as they are stored."""
METHODS, SWITCHES = ("train_type", "tuner_type"), ("use_peft", "use_peft_lora", "use_lora", "lora")
"""Options of ms-swift, and of TRL and scripts like its own, that say that adapters are trained."""
MORE = (
    *("modules_to_save", "use_dora", "rank_pattern", "layers_to_transform", "layers_pattern", "exclude_modules"),
    *("target_parameters", "trainable_token_indices", "layer_replication", "use_qalora"),
)
"""Arguments of PEFT by which more is trained than adapters of one rank on the same matrices of all layers, or less."""
OF_PEFT = Named(
    ranks=("r",),
    targets=("target_modules",),
    beside=("lora_alpha", "lora_dropout", "use_rslora", "inference_mode", "init_lora_weights", "fan_in_fan_out"),
    others=("bias", *MORE),
    form="pattern",
)
OF_OPTIONS = Named(
    ranks=("lora_r", "lora_rank"),
    targets=("lora_target_modules", "target_modules"),
    beside=(*METHODS, *SWITCHES, "lora_alpha", "lora_dropout", "use_rslora", "lora_task_type"),
    others=("lora_modules_to_save", "adapters", "target_regex", "lora_bias", "trainable_parameters", *MORE),
)
USUAL_LENGTH = 1024
"""Of TRL's `max_length` and of the longest block of the library's own run_clm.py."""


def detect(document: Document) -> bool:
    """Whether the text makes arguments of a Trainer, or has their names, and none of a program that has others too."""
    text = document.text
    form = forms.form_of(text)
    return form == "python" or (bool(form) and OTHERS.search(text) is None)


def parse(text: str, name: str) -> Parsed:
    """Values and lines of the arguments."""
    return forms.parse(text, name)


def read(document: Document) -> Plan:
    """The plan of the arguments and of the model that they name. Raises InputError with every problem, with line, key and value."""
    reading, whole = Reading.of(document, forms.parse(document.text, document.name, document))
    options = launched(whole)
    options.asked("call")
    tuned, swift = str(options.values.get("call")).endswith(OF_TRL), SWIFT.search(document.text) is not None
    repeats = options.flag("gradient_checkpointing", default=tuned or swift)
    if options.values.get("use_gradient_checkpointing") in (True, "unsloth"):
        repeats = True
    elif repeats and not options.has("gradient_checkpointing"):
        reading.default("recompute", "all layers: gradient_checkpointing is on here unless it is switched off")
    if tuned and not options.has("bf16", "fp16"):
        reading.default("dtype", "bfloat16: bf16 is on here unless it is switched off")
    unsaid = swift and not options.has("train_type", "tuner_type")
    packed = options.flag("packing", default=options.has("block_size") != "")
    on_all = options.raw("nproc_per_node") in ("gpu", "auto") or options.has("deepspeed", "fsdp") != ""
    job = Job(
        dialect="huggingface-trainer",
        length=length_of(options, LENGTHS, USUAL_LENGTH, packed=packed),
        repeats=repeats,
        stored=_stored(options, "bfloat16" if swift else "float32"),
        dtype="bfloat16" if tuned or swift else "float32",
        devices=USUAL_DEVICES if on_all else 1,
        batch=1 if swift else 8,
        adapters=_adapters(options, swift=swift),
        method="train_type" if unsaid else "",
        frozen=of_swift if swift and [options.values.get(key) for key in METHODS if options.has(key)] == ["full"] else None,
        asked=(*METHODS, *OF_SWIFT),
    )
    return plan_of(options, job)


def _adapters(options: Section, *, swift: bool) -> Named | None:
    """Where adapters are stated, if it is these that are trained: in the call of PEFT, or in options that switch them on."""
    if options.has(LORA):
        return OF_PEFT
    methods = [options.values[key] for key in METHODS if options.has(key)]
    switched = any(options.values.get(key) is True for key in SWITCHES)
    if methods == ["full"]:
        options.asked(*OF_OPTIONS.ranks, *OF_OPTIONS.targets, *OF_OPTIONS.beside, "lora_modules_to_save", "lora_bias", *MORE)
    if "lora" not in methods and not switched and (methods or not swift):
        return None
    return replace(OF_OPTIONS, rank=8, target="all-linear") if swift else OF_OPTIONS


def _stored(options: Section, usual: str) -> str:
    """The precision in which the script loads the weights, which each copy keeps."""
    keys = ("torch_dtype", "dtype")
    word = next((str(options.values[key]) for key in keys if options.values.get(key) is not None), "")
    options.asked(*keys)
    kind = word.rpartition(".")[2]
    if word == "auto":
        options.reading.default("parameter_dtype", "bfloat16: that of the model's files (auto), as most are published in")
        return "bfloat16"
    if not word or word.startswith("$"):
        options.reading.default("parameter_dtype", f"{usual}: the file does not say in which precision the model is loaded")
        return usual
    if kind not in DTYPES:
        options.reading.problem(options.has(*keys), f"{shown(word)} must be one of auto, {', '.join(DTYPES)}")
    return DTYPES.get(kind, "float32")


def settings(plan: Plan) -> dict[tuple[str, ...], Any]:
    """What the plan says in the arguments; the length of samples by the name that the plan's own file has for it."""
    values = getattr(plan.document, "values", None)
    own = values if isinstance(values, dict) else {}
    length = next((key for key in LENGTHS if key in own), LENGTHS[0])
    return {
        **common(plan),
        (length,): plan.workload.seq_length,
        ("gradient_checkpointing",): plan.recompute.all_layers,
        **({("attn_implementation",): "eager"} if plan.workload.attention_kernel != "flash" else {}),
    }


def edit(document: Document, changes: Changes) -> tuple[str, tuple[str, ...]]:
    """The text with arguments changed where they stand. Raises InputError for what its call does not take."""
    if forms.form_of(document.text) == "python":
        values = forms.parse(document.text, document.name).values
        own = [path[0] for path in changes if path[0] in LENGTHS and path[0] not in values]
        if own and not str(values.get("call")).endswith(OF_TRL):
            called = values.get("call")
            raise InputError(
                document.name, [f"{name}: {called} has no such argument; change it where samples or model are made" for name in own]
            )
    return forms.edit(document, changes)


def new(changes: Changes) -> str:
    """A new piece of Python that makes the arguments."""
    stated = {path: value for path, value in changes.items() if value is not None}
    model, kernel = stated.pop(("model_name_or_path",), ""), stated.pop(("attn_implementation",), None)
    loaded = [repr(model), *([f"attn_implementation={kernel!r}"] if kernel else [])]
    words = "".join(f"    {key}={value!r},\n" for key, value in nested(stated).items())
    return (
        "from transformers import AutoModelForCausalLM\nfrom trl import SFTConfig\n\n"
        f"model = AutoModelForCausalLM.from_pretrained({', '.join(loaded)})\n"
        f"training_args = SFTConfig(\n{words})\n"
    )


DIALECT = Dialect(
    name="huggingface-trainer",
    title="Hugging Face Trainer arguments",
    looks_for="TrainingArguments(...) or SFTConfig(...) in Python, or arguments such as per_device_train_batch_size",
    detect=detect,
    read=read,
    settings=settings,
    edit=edit,
    new=new,
    suffix=".py",
    parse=parse,
    sizes={
        "batch": ("per_device_train_batch_size",),
        "seq_length": ("max_length", "max_seq_length", "block_size", "model_max_length"),
    },
    launched_with=forms.LAUNCHED_WITH,
)
