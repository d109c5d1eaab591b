"""Files of programs that have settings in a form that is not read: what each is, and what to open instead."""

from __future__ import annotations

import re

from perfkit.core.texts import say

SAVED = "Megatron-Bridge saves all settings of a run as run_config.yaml: open that"
PROGRAMS = (
    ("NeMo 2, saved by NeMo-Run", r"^\s*_target_:\s*nemo\.(?:collections|lightning)\."),
    ("NeMo 2, a recipe in Python", r"^\s*(?:from|import)\s+(?:nemo\.(?:collections|lightning)|nemo_run)\b"),
    ("Megatron-Bridge, a recipe in Python", r"^\s*(?:from|import)\s+megatron\.bridge\b"),
)
"""Which program a text belongs to, and a line by which it is known."""


def unread_program(text: str) -> str:
    """Which program's file this is, that it is not read, and which file is; "" for a text that no such program has."""
    name = next((name for name, mark in PROGRAMS if re.search(mark, text, re.MULTILINE)), "")
    return say("this is {program}, of which no setting is read; {instead}", program=name, instead=SAVED) if name else ""
