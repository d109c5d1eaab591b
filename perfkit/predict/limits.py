"""Limits: what a plan may fill of a device as every calculation takes it, what lies outside of it, and what a plan leaves open."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np

from perfkit.config.dialects.memory_text import size_of
from perfkit.core.errors import InputError
from perfkit.core.plan_columns import Coded, PlanColumns, combined
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.core.spec.memory_limit import LimitedPart, MemoryLimit
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.software import OVERLAPS
from perfkit.core.spec.workload import FEW_BITS
from perfkit.core.texts import say
from perfkit.core.units import GIB
from perfkit.predict.cost.labels import Label, labels_of
from perfkit.predict.cost.releases import is_priced_as_stated, priced_release
from perfkit.predict.memory.settings import preset, settings_for

OPTION = "--memory-limit-gib"
UNKNOWN = "not known to perfkit; it may decide time or memory"
ADVISED_GIB = 58  # by the guides, on a device of 64
MOST_GIB = 2**30
"""Far above any device's memory."""
_LEADING = re.compile(r"\s*(\d+(?:\.\d*)?)")
_DEFAULTED = re.compile(r"([\w.]+) = ([^:,]+)[:,]?\s*(.*)")


@dataclass(frozen=True, slots=True)
class Assumed:
    """A field that a plan leaves open, the value that is taken for it, and why."""

    field: str
    value: Any
    why: str

    def to_dict(self) -> dict[str, Any]:
        """The entry of `estimate`'s JSON."""
        return {"field": self.field, "value": self.value, "why": self.why}


def with_limit(plan: Plan, limit_bytes: float | str | None, source: str = "memory_limit_bytes") -> Plan:
    """The plan under another limit than its own, None for its own, a text for a size as "58GB"; `source` says who asks for it.

    Under MindSpore the limit is that of the pool, as `max_device_memory` is, else that of everything on the device. Raises
    InputError for a number that can be no limit, or that the device does not have.
    """
    if limit_bytes is None:
        return plan
    most = plan.hardware.memory_bytes if plan.hardware else None
    near = "" if most is None else f"; at most {most / GIB:g} GiB"
    part: LimitedPart = "pool" if settings_for(plan).framework == "mindspore" else "device"
    return replace(plan, memory_limit=MemoryLimit(limit_bytes=asked_bytes(limit_bytes, source, near), part=part, source=source))


def asked_bytes(limit_bytes: object, source: str, near: str = "") -> int:
    """Bytes of a limit that somebody asks for, a number or a size as "58GB". Raises InputError for what can be no limit."""
    if isinstance(limit_bytes, str):
        try:
            return size_of(limit_bytes)
        except ValueError as error:
            raise InputError("memory limit", [f"{source}: {error}{near}"]) from error
    if isinstance(limit_bytes, bool) or not isinstance(limit_bytes, Real):
        raise InputError("memory limit", [f"{source} = {limit_bytes!r} must be a number of bytes or a size such as '58GB'{near}"])
    if not math.isfinite(limit_bytes) or limit_bytes < 1:
        raise InputError("memory limit", [f"{source}: a memory limit must be more than 0{near}"])
    return round(float(limit_bytes))


def option_limit(text: str | None, device: HardwareSpec | None = None) -> tuple[int | None, str]:
    """Bytes and source of the limit that the option `--memory-limit-gib` states; None where it was not given.

    Raises InputError, with the nearest limit that the device has, for what is no number of GiB above 0 or more than it has.
    """
    if text is None:
        return None, ""
    stated = 0.0
    try:
        gib = float(text)
    except ValueError:
        gib, stated = math.nan, float(leading[1]) if (leading := _LEADING.match(text)) else 0.0
    if not 0 < gib < MOST_GIB:
        most = device.memory_bytes / GIB if device else MOST_GIB
        near = f"{f' and at most {most:g}' if device else ''}; nearest is {min(stated or ADVISED_GIB, most):g}"
        raise InputError("memory limit", [f"{OPTION} = {text!r} must be a number of GiB above 0{near}"])
    source = f"{OPTION} {gib:g}"
    limit = MemoryLimit(limit_bytes=max(1, round(gib * GIB)), source=source)
    if device is not None and (problem := limit.problem(device.name, device.memory_bytes)):
        raise InputError("memory limit", [problem])
    return limit.limit_bytes, source


def limit_of(plan: Plan) -> MemoryLimit:
    """The limit that counts for a plan, in bytes. Raises InputError if neither a limit nor a device is stated."""
    if (usable := plan.usable_memory) is None:
        raise InputError("memory limit", ["neither a limit nor a device is stated; name one of them"])
    return usable


def outside_pool_bytes(plan: Plan) -> int:
    """Bytes that lie outside of the pool and so do not count against its limit: contexts, buffers of collectives, the driver."""
    limit = plan.usable_memory
    if limit is None or limit.part != "pool":
        return 0
    return preset(settings_for(plan).framework, plan.hardware.name if plan.hardware else "").context_bytes


def assumed(plan: Plan) -> tuple[Assumed, ...]:
    """What the plan does not state and a prediction takes for it."""
    return (*_from_document(plan), *_not_counted(plan), *_unstated(plan), *_of_device(plan))


def _from_document(plan: Plan) -> Iterator[Assumed]:
    """What the reader of the configuration filled in."""
    for text in getattr(plan.document, "defaulted", ()):
        if found := _DEFAULTED.fullmatch(text):
            value = int(found[2]) if found[2].isdigit() else found[2]
            yield Assumed(found[1], value, found[3] or "the file does not state it")


def not_counted(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Keys of the configuration that no prediction counts, with what they decide, or that this is not known."""
    unread, unknown = (getattr(plan.document, name, ()) for name in ("unread", "unknown"))
    return (*unread, *((key, UNKNOWN) for key in unknown))


def _not_counted(plan: Plan) -> Iterator[Assumed]:
    for key, decides in not_counted(plan):
        yield Assumed(key, None, decides if decides == UNKNOWN else f"not counted; {decides}")


def _unstated(plan: Plan) -> Iterator[Assumed]:
    software, limit = plan.software, plan.usable_memory
    if plan.memory_limit is None and limit is not None:
        yield Assumed("memory_limit_bytes", limit.limit_bytes, say("no limit is stated; the device has as much"))
    overlaps = (getattr(software, name) for name in OVERLAPS)
    label = Label("", settings_for(plan).framework, plan.workload.dtype, "", *overlaps)
    experts = float(plan.model.num_experts)
    yield from _of_program(label, software.framework, software.release, plan.optimizer.parameter_dtype, experts)


def _of_program(label: Label, framework: str, release: str, parameter_dtype: str, experts: float) -> Iterator[Assumed]:
    """What a plan with this label does not state of its program and its weights."""
    if not framework:
        yield Assumed("framework", label.stack, say("the program that is usual on the device"))
    if label.stack == "mindspore" and not is_priced_as_stated(release):
        yield Assumed("release", priced_release(release), _why_release(release))
    for name in OVERLAPS:
        if getattr(label, name) is None and (experts or name != "overlap_ep"):
            yield Assumed(name, None, say("not stated; what is usual for this program is hidden"))
    if not parameter_dtype:
        few = label.precision in FEW_BITS
        in_16_bits, as_computed = (
            "weights are held in 16 bits beside products of fewer",
            "weights are held as layers compute with them",
        )
        why = say(in_16_bits if few else as_computed)
        yield Assumed("parameter_dtype", "bfloat16" if few else label.precision, why)


def assumed_of_programs(plans: PlanColumns) -> Coded[str]:
    """In short words what every plan does not state of its program and its weights, "" if that is nothing."""
    experts = Coded(np.where(plans.num_experts > 0, 1, 0), (0.0, 1.0))
    found = combined(labels_of(plans), plans.framework, plans.release, plans.parameter_dtype, experts)
    return Coded(found.codes, tuple("; ".join(map(_short, _of_program(*values))) for values in found.values))


def _short(one: Assumed) -> str:
    return f"{one.field} = {'as usual' if one.value is None else one.value}"


def _why_release(release: str) -> str:
    if not release:
        return say("no release is stated; time is that of this one")
    return say("nothing was measured under release {release} of MindFormers; time is that of this one", release=repr(release))


def _of_device(plan: Plan) -> Iterator[Assumed]:
    """Figures of the device that nobody publishes."""
    for name, source in (plan.hardware.sources if plan.hardware else {}).items():
        if source.kind == "assumed":
            yield Assumed(f"hardware.{name}", None, source.note or source.where)
