"""Files of programs that have settings in a form that is not read: what each is, and what to open instead."""

from __future__ import annotations

import re

from perfkit.core.texts import say

SAVED = "Megatron-Bridge saves all settings of a run as run_config.yaml: open that"
OWN = "write the sizes of its model and job as a table of plans, or as perfkit's TOML"
PROGRAMS = (
    ("NeMo 2, saved by NeMo-Run", r"^[ \t]*_target_:\s*nemo\.(?:collections|lightning)\.", SAVED),
    ("NeMo 2, a recipe in Python", r"^[ \t]*(?:from|import)\s+(?:nemo\.(?:collections|lightning)|nemo_run)\b", SAVED),
    ("Megatron-Bridge, a recipe in Python", r"^[ \t]*(?:from|import)\s+megatron\.bridge\b", SAVED),
    ("a recipe of torchtune", r"^[ \t]*_component_:\s*torchtune\.", OWN),
    ("a configuration of verl", r"^actor_rollout_ref\s*:", OWN),
    ("a launch of OpenRLHF", r"\bopenrlhf\.cli\.", OWN),
    ("an adapter of PEFT", r"\"peft_type\"\s*:", "open the arguments of its training"),
)
"""Which program a text belongs to, a line by which it is known, and what to open instead."""


def unread_program(text: str) -> str:
    """Which program's file this is, that it is not read, and which file is; "" for a text that no such program has."""
    name, instead = next(((name, instead) for name, mark, instead in PROGRAMS if re.search(mark, text, re.MULTILINE)), ("", ""))
    return say("is {program}, of which no setting is read; {instead}", program=name, instead=instead) if name else ""
