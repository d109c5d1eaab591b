"""Chrome events: one set of structs for every reader of Chrome trace JSON, each with the arguments that the reader uses.

Foreign values of any type are taken and judged later; times stay raw text, so that they are exact to the ns.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import msgspec

Used = TypeVar("Used")
"""What a reader uses of `args`."""


class Span(msgspec.Struct, Generic[Used], gc=False, tag_field="ph", tag="X"):
    """An event with a duration."""

    name: str | None = None
    cat: str | None = None
    ts: msgspec.Raw = msgspec.Raw()
    dur: msgspec.Raw = msgspec.Raw()
    pid: Any = None
    tid: Any = None
    args: Used | str | int | float | list[Any] | None = None


class Begin(Span[Used], gc=False, tag_field="ph", tag="B"):
    """The beginning of an event that nests on its thread."""


class End(Span[Used], gc=False, tag_field="ph", tag="E"):
    """Its end."""


class AsyncBegin(Span[Used], gc=False, tag_field="ph", tag="b"):
    """The beginning of an event that its category and id name."""

    id: Any = None


class AsyncEnd(Span[Used], gc=False, tag_field="ph", tag="e"):
    """Its end."""

    id: Any = None


class Name(msgspec.Struct, Generic[Used], gc=False, tag_field="ph", tag="M"):
    """An event that names a process or thread."""

    name: str | None = None
    pid: Any = None
    tid: Any = None
    args: Used | str | int | float | list[Any] | None = None


class FlowStart(msgspec.Struct, gc=False, tag_field="ph", tag="s"):
    """The beginning of a flow."""

    cat: str | None = None
    id: Any = None
    ts: msgspec.Raw = msgspec.Raw()
    pid: Any = None
    tid: Any = None


class FlowEnd(FlowStart, gc=False, tag_field="ph", tag="f"):
    """The end of a flow."""


def event_of(*used: Any) -> Any:
    """The type of an event of which only those `used` are read; all other phases of the format are known and skipped."""
    known = [getattr(kind, "__origin__", kind).__struct_config__.tag for kind in used]
    return functools.reduce(operator.or_, [*used, *_skipped(phase for phase in PHASES if phase not in known)])


PHASES = "XBEbeMCiInstfPNODSTpFRcvV(),"


def _skipped(phases: Iterable[str]) -> list[Any]:
    return [msgspec.defstruct(f"Skipped{ord(phase)}", [], tag_field="ph", tag=phase, gc=False) for phase in phases]
