"""perfkit's own TOML: one table for each part of a plan, keys named like the fields of the specs.

`[model]` and `[hardware]` may hold only `name`, which takes the catalogue's entry, the former with `adapters` or
`trained_layers` of its own. Unknown tables and keys are errors. Sizes in bytes may be written as text ("64GiB").
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from types import NoneType
from typing import Any, TypeVar, cast, get_args, get_type_hints

from perfkit.config.dialects import toml
from perfkit.config.dialects._section import Reading, Section, shown
from perfkit.config.dialects._toml_splice import edit
from perfkit.config.dialects._toml_write import ORIGINS, PARTS, TRAINED, new, settings
from perfkit.config.dialects.dialect import Dialect, Document
from perfkit.config.dialects.memory_text import size_of
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.source import Source
from perfkit.core.spec.adapters import Adapters
from perfkit.core.spec.compressed import CompressedAttention
from perfkit.core.spec.hardware import HardwareSpec, Link, LinkKind
from perfkit.core.spec.memory_limit import MemoryLimit
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.optimizer import OptimizerSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.software import SoftwareSpec
from perfkit.core.spec.trained import TrainedLayers
from perfkit.core.spec.workload import Workload
from perfkit.core.units import parse_bytes

T = TypeVar("T")
HEADER = re.compile(r"^\s*\[(model|workload|parallel)\]", re.MULTILINE)


def detect(document: Document) -> bool:
    """Whether the text has a table of a plan."""
    return HEADER.search(document.text) is not None


def read(document: Document) -> Plan:
    """The plan of a perfkit TOML. Raises InputError with every problem, each with line, key and value."""
    parsed = toml.parse(document.text, document.name)
    values = parsed.values
    reading = Reading(document, lines=parsed.lines)
    top = Section(reading, "", values)
    top.only(PARTS)
    for name in ("model", "workload"):
        if name not in values:
            top.missing(name, f"a table [{name}]")
    parts: dict[str, Any] = {
        "model": _named(top.section("model"), ModelSpec, catalog.model) if "model" in values else None,
        "workload": _spec(top.section("workload"), Workload) if "workload" in values else None,
        "parallel": _spec(top.section("parallel"), ParallelPlan),
        "recompute": _spec(top.section("recompute"), RecomputePlan),
        "optimizer": _spec(top.section("optimizer"), OptimizerSpec),
        "hardware": _named(top.section("hardware"), HardwareSpec, catalog.hardware_named) if "hardware" in values else None,
        "memory_limit": _spec(top.section("memory_limit"), MemoryLimit) if "memory_limit" in values else None,
        "software": _spec(top.section("software"), SoftwareSpec),
    }
    reading.stop_if_problems()
    return reading.plan(**parts, document=reading.annotated("perfkit", values, ("",)))


def _named(section: Section, kind: type[T], lookup: Callable[[str], T]) -> T | None:
    """The catalogue's entry if the table has only a name, and what is trained beside it; else the spec of its keys."""
    name = section.raw("name")
    if set(section.values) - set(TRAINED) != {"name"} or (kind is not ModelSpec and len(section.values) > 1):
        return _spec(section, kind)
    if not isinstance(name, str):
        section.reading.problem(section.path("name"), f"{shown(name)} must be a name of the catalogue")
        return None
    try:
        found: Any = lookup(name)
    except InputError as error:
        for problem in error.problems:
            section.reading.problem(section.path("name"), problem)
        return None
    own = {name: _compound(section, name, section.values[name]) for name in TRAINED if name in section.values}
    return cast("T", section.reading.build(lambda: replace(found, **own)) if own else found)


def _spec(section: Section, kind: type[T]) -> T | None:
    """A spec of the keys of a table; None after a problem."""
    before = len(section.reading.problems)
    known = {field.name: field for field in fields(kind) if field.name not in ORIGINS}  # type: ignore[arg-type]
    section.only(known)
    for name, field in known.items():
        if field.default is MISSING and field.default_factory is MISSING and name not in section.values:
            section.missing(name, "a value")
    hints = get_type_hints(kind)
    values = {name: _value(section, name, hints[name]) for name in section.values if name in known}
    if kind is HardwareSpec:
        values["sources"] = {name: Source("specified", f"{section.reading.document.name}, [hardware] {name}") for name in values}
    if kind is MemoryLimit:
        values["source"] = f"{section.reading.document.name}, [memory_limit]"
    return section.reading.build(lambda: kind(**values)) if len(section.reading.problems) == before else None


def _value(section: Section, name: str, hint: Any) -> Any:
    """The value of a key in the type of its field; a problem is noted where it does not fit."""
    value = section.values[name]
    hint = get_args(hint)[0] if NoneType in get_args(hint) else hint  # of what may be left out
    if name.endswith(("memory_bytes", "limit_bytes")) and isinstance(value, str):
        try:
            return size_of(value) if name == "limit_bytes" else parse_bytes(value)
        except ValueError as error:
            section.reading.problem(section.path(name), str(error))
            return 0
    if hint is int:
        return section.integer(name, default=0) if not name.endswith("_bytes") else _whole(section, name)
    if hint is bool:
        return section.flag(name, default=False)
    if hint is float:
        return section.number(name, default=1.0)
    if hint is str or (getattr(hint, "__args__", None) and all(isinstance(word, str) for word in hint.__args__)):
        return section.word(name, default="")
    return _compound(section, name, value)


def _whole(section: Section, name: str) -> int:
    value = section.values[name]
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        section.reading.problem(section.path(name), f"{shown(value)} must be a whole number of bytes")
        return 0
    return value


def _compound(section: Section, name: str, value: Any) -> Any:
    if name == "compressed":
        return _spec(section.section(name), CompressedAttention)
    if name == "adapters":
        return _spec(section.section(name), Adapters)
    if name == "trained_layers":
        return _trained_layers(section, name)
    if name == "targets":
        return _words(section, name, value)
    if name == "links":
        return _links(section.section(name))
    if name == "peak_flops_per_s":
        table = section.section(name)
        return {str(dtype): table.number(str(dtype), default=1.0) for dtype in table.values}
    if name == "operators":
        table = section.section(name)
        return {str(pattern): _counts(table, str(pattern), counts) for pattern, counts in table.values.items()}
    return _counts(section, name, value)


def _trained_layers(section: Section, name: str) -> TrainedLayers | None:
    """The layers that a text says; None after a problem."""
    before, word = len(section.reading.problems), section.word(name, default="")
    if len(section.reading.problems) > before:
        return None
    try:
        return TrainedLayers.of(word)
    except InputError as error:
        for problem in error.problems:
            section.reading.problem(section.path(name), problem)
        return None


def _words(section: Section, name: str, value: Any) -> tuple[str, ...]:
    """A list of texts."""
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return tuple(value)
    section.reading.problem(section.path(name), f"{shown(value)} must be a list of texts")
    return ()


def _links(section: Section) -> dict[str, Link]:
    links = {}
    for key in section.values:
        link = section.section(str(key))
        link.only(("bytes_per_s", "topology", "kind"))
        if not link.has("bytes_per_s"):
            link.missing("bytes_per_s", "a rate")
        links[str(key)] = Link(
            name=str(key),
            bytes_per_s=link.number("bytes_per_s", default=1.0),
            topology=link.word("topology", default=""),
            kind=cast(LinkKind, link.word("kind", default="", allowed=get_args(LinkKind))),
        )
    return links


def _counts(section: Section, name: str, value: Any) -> tuple[tuple[int, ...], ...]:
    """Rows of whole numbers, one a virtual chunk."""
    rows: list[Any] = value if isinstance(value, list) else [None]
    if not all(isinstance(row, list) and all(isinstance(item, int) and not isinstance(item, bool) for item in row) for row in rows):
        section.reading.problem(
            section.path(name), f"{shown(value)} must be a list of rows of whole numbers, one row a virtual chunk"
        )
        return ()
    return tuple(tuple(row) for row in rows)


DIALECT = Dialect(
    name="perfkit",
    title="perfkit TOML",
    looks_for="tables such as [model], [workload], [parallel]",
    detect=detect,
    read=read,
    settings=settings,
    edit=edit,
    new=new,
    suffix=".toml",
    parse=toml.parse,
    yields=True,
)
