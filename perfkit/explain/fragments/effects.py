"""Effects: what each setting of a fragment decides: it is read, has no effect, decides what is not counted, or is not known.

The reader of its dialect is asked, with one setting after another put into a whole configuration: so a fragment hears what a whole
file would.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from perfkit.config.dialects import write_config
from perfkit.config.dialects.dialect import Document
from perfkit.config.dialects.key_effects import reason_of
from perfkit.config.dialects.registry import dialect_named
from perfkit.config.fragments.place import Path
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.workload import Workload
from perfkit.core.texts import say

MAX_SETTINGS = 100
"""Settings of which it is asked what they decide: a fragment is a piece."""


def effects(dialect: str, settings: Mapping[Path, Any]) -> Iterator[str]:
    """A sentence a setting: its value with what it decides or why it has no effect; of one that is not known, that it is not."""
    for path, value in list(settings.items())[:MAX_SETTINGS]:
        key = ".".join(path)
        decides = reason_of(dialect, key) or _decided(dialect, path, value)
        form = "{key} = {value}" if decides is None else "{key} = {value}: {meaning}"
        yield say(form, key=key, value=str(value), meaning=decides or "")


def option_lines(options: Mapping[str, Any]) -> list[str]:
    """The same of options of Megatron or MindSpeed, as they are written on a command line."""
    found: list[str] = []
    for name, value in list(options.items())[:MAX_SETTINGS]:
        decides = reason_of("megatron", name) or _decided("megatron", (name,), value)
        form = "--{key}: {value}" if decides is None else "--{key}: {value}; {meaning}"
        written = "on" if value is True else str(value)
        found.append(say(form, key=name.replace("_", "-"), value=written, meaning=decides or ""))
    return found


def _decided(dialect: str, path: Path, value: Any) -> str | None:
    """What a setting decides that is not counted; None for one that is read."""
    known, document, key = dialect_named(dialect), _whole(dialect), ".".join(path)
    try:
        text, _ = known.edit(document, {path: value})
        read = known.read(replace(document, text=text)).document
    except InputError as error:  # of one that contradicts the configuration around it, the reader asked
        return "not known to perfkit" if any(f"unknown key {path[-1]!r}" in problem for problem in error.problems) else None
    if not isinstance(read, Document):
        return None
    return dict(read.unread).get(key) or ("not known to perfkit" if key in read.unknown else None)


@cache
def _whole(dialect: str) -> Document:
    """A whole configuration in a dialect."""
    plan = Plan(model=catalog.models()["llama2-7b"], workload=Workload(seq_length=4096, micro_batch_size=1, global_batch_size=8))
    written = write_config(plan, dialect=dialect)
    return Document(name=written.name, text=written.text, dialect=dialect)
