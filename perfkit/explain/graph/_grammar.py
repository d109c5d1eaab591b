"""The lines of a graph file: what each kind holds, as pure functions of the line's text.

An operator takes up to four kinds of lines: itself with its attributes, its types, its scope, and the lines of user code it comes
from. Every version of the compiler prints them a little differently; see docs/graphs.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from perfkit.core.texts import say
from perfkit.explain.graph._text import ValueType, attributes, closing, split_top, types
from perfkit.explain.graph.model import Parameter

WORLD_GROUPS = ("hccl_world_group", "nccl_world_group")
ATTRIBUTES = {"primitive_attrs": "primitive_attrs", "cnode_attrs": "cnode_attrs", "cnode_primal_attrs": "primal_attrs"}

_NODE = re.compile(r"^%(\d{1,9})\((.{0,2000}?)\)+ = (.+)$", re.DOTALL)
_CALLEE = re.compile(r"^(?:call )?(@[^\s(]{1,500}|%\d+(?=\[)|[^\s(]{1,500})")
_LABEL = re.compile(r"\s*(?:([A-Za-z_ ]{1,40}):\s*)?([{(])")
_PARAMETER = re.compile(r"^%(para\d+_[^:<]*?)\s*:\s*(<.*)$")
_SUBGRAPH = re.compile(r"^subgraph @(\S+?)(?: parent: \[subgraph @[^\]]*\])?\((.*)\)\s*\{?\s*$")
_DAMAGE = re.compile(r"\b[1l]64\(|\bin strategy\b|\brank ids\b|\bunique id\b")


_MISREAD = re.compile(r"%(?=[\dOolI]*\d)\d*[OolI][\dOolI]*(?![\w.])")
"""The number of an operator in which a letter stands for a digit, as recognised characters have it: %10l, %l00."""
_DIGITS = str.maketrans("OolI", "0011")


class NodeLine(NamedTuple):
    """An operator's own line: the fields of a `Node`, whether it is whole, and what had to be repaired."""

    fields: dict[str, Any]
    whole: bool
    repairs: tuple[str, ...]


def node_line(text: str) -> NodeLine | None:
    """Read `%35(name) = AllReduce(%34) {instance name: ...} primitive_attrs: {...} ...`; None if it is no such line."""
    misread = dict.fromkeys(_MISREAD.findall(text))
    for number in misread:
        text = re.sub(re.escape(number) + r"(?![\w.])", number.translate(_DIGITS), text)
    found = _NODE.match(text)
    callee = _CALLEE.match(found[3]) if found else None
    if found is None or callee is None:
        return None
    body, start = found[3], callee.end()
    if body[start : start + 1] == "[":  # a call of a value: %5[@FuncUnion(@a, @b)]()
        start = closing(body, start)
    start = body.find("(", start) if start > 0 else -1
    if start < 0:
        return None
    end = closing(body, start)
    arguments = split_top(body[start + 1 : end - 1 if end > 0 else None])
    fields = {
        "id": int(found[1]),
        "name": found[2],
        "op": sys.intern(callee[1].removeprefix("PrimFunc_").removeprefix("S_Prim_")),
        "arguments": tuple(map(sys.intern, arguments)),
    }
    if end < 0:
        return NodeLine(fields, False, ())
    repairs: list[str] = [say("{text} is read as {read}", text=repr(one), read=repr(one.translate(_DIGITS))) for one in misread]
    return NodeLine(fields, _blocks(fields, repairs, body, end), tuple(repairs))


def _blocks(fields: dict[str, Any], repairs: list[str], text: str, place: int) -> bool:
    """Read the braces behind the arguments into `fields`; False if one is not closed."""
    while found := _LABEL.match(text, place):
        start = found.start(2)
        end = closing(text, start)
        inner = text[start + 1 : end - 1 if end > 0 else None]
        label = (found[1] or "").strip().replace(" ", "_")
        if not label and inner.startswith(("instance name:", "instance_name:")):
            fields["instance_name"] = inner.partition(":")[2].strip()
        elif label in ATTRIBUTES or not label:
            _merge(fields, ATTRIBUTES.get(label, "primitive_attrs"), inner, repairs)
        if end < 0:
            return False
        place = end
    return True


def merge_strategy(fields: dict[str, Any], text: str) -> str | None:
    """Add the strategy that old versions print in front of the types; gives the rest of the line, None if it is damaged."""
    end = closing(text, 0)
    if end < 0 or "strategy" not in text[:40]:
        return None
    _merge(fields, "primitive_attrs", text[1 : end - 1], [])
    return text[end:].strip()


def _merge(fields: dict[str, Any], name: str, text: str, repairs: list[str]) -> None:
    attrs, damage = _unique(text) if name == "primal_attrs" else _shared(text)
    known = fields.get(name)
    fields[name] = {**attrs, **known} if known else attrs
    repairs.extend(damage)


def _unique(text: str) -> tuple[Mapping[str, str], tuple[str, ...]]:
    attrs = {sys.intern(key): found for key, found in attributes(text).items()}
    return attrs, _repairs(text, attrs)


_shared = lru_cache(maxsize=8192)(_unique)  # most operators have the attributes of another one


def _repairs(text: str, attrs: Mapping[str, str]) -> tuple[str, ...]:
    found: list[str] = [
        say("{text} was read as what it must have been", text=repr(damage)) for damage in dict.fromkeys(_DAMAGE.findall(text))
    ]
    group = attrs.get("group", "").strip('"')
    near = (len(group) == len(world) and sum(map(str.__ne__, group, world)) == 1 for world in WORLD_GROUPS)
    if group not in WORLD_GROUPS and any(near):
        found.append(say("group {group} differs by one letter from the world group", group=repr(group)))
    return tuple(found)


@lru_cache(maxsize=16384)
def types_line(text: str) -> tuple[tuple[ValueType, ...], tuple[ValueType, ...]] | str | None:
    """Types of arguments and results of `: (...) -> (...)`; the text of a scope that stands there instead; None if cut off."""
    start = text.find("(")
    end = closing(text, start) if start >= 0 else -1
    if end < 0:
        return None
    arrow = text.find("->", end)
    if arrow < 0 and "/" in text and "<" not in text:
        return text[start:]
    results = text[arrow + 2 :].strip() if arrow > 0 else ""
    return types(text[start:end]), types(results) if results and closing(results, 0) > 0 else ()


def parameter_line(text: str, line: int) -> Parameter | None:
    """Read `%para3_name: <type> : [dims]` or `: has_default`."""
    found = _PARAMETER.match(text)
    if found is None:
        return None
    end = closing(found[2], 0)
    kind = types(f"({found[2][:end]})")[0] if end > 0 else ValueType()
    weight = "has_default" in found[2][max(end, 0) :] or "is_parameter" in found[2]
    return Parameter(found[1], kind, weight, line)


def subgraph_line(text: str) -> tuple[str, list[str]] | None:
    """The name and the parameters of `subgraph @name(%para4_x, ...) {`."""
    found = _SUBGRAPH.match(text)
    return (found[1], split_top(found[2])) if found else None
