"""Figure: a number that people see, with its unit, what kind of knowledge it is, where it comes from and what it was made of.

A bare number loses on its way to a page, table or file what it is worth. A figure keeps it: absent, no number and impossible are
three things, and none of them is 0. `computed` makes one figure from others, so that its origin names inputs that exist and no
others, and a rate of something unknown says which input it needs. A surface renders figures; it scales no number by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, Self

from perfkit.core.units import format_bytes, format_count, format_ns, format_ratio, format_si, significant

State = Literal["measured", "computed", "reported", "assumed", "absent", "not a number", "impossible"]
"""Reported: printed by a log or stated by somebody. Impossible: beyond what the quantity can be, such as a utilization over 1."""
KNOWN: tuple[State, ...] = ("measured", "computed", "reported", "assumed")

_SCALED: Mapping[str, Callable[[float, int], str]] = MappingProxyType(
    {
        "ns": format_ns,
        "bytes": format_bytes,
        "ratio": format_ratio,
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One number with all that is known of it.

    `value` is in `unit`, a base unit (ns, bytes, ratio, FLOP/s, tokens/s, ...); it is None if and only if the state is "absent",
    and not finite if and only if it is "not a number". `low` and `high` are bounds in the same unit. `source` says file and field,
    or the formula; of an absent figure it says what is missing. `inputs` are the names of the figures that the value was made of.
    A count, which has no `digits`, is shown in full.
    """

    name: str
    value: float | None
    unit: str
    state: State
    source: str
    inputs: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    digits: int | None = 3

    def __post_init__(self) -> None:
        is_number = self.value is not None and math.isfinite(self.value)
        right = {"absent": self.value is None, "not a number": self.value is not None and not is_number}.get(self.state, is_number)
        if not right:
            raise ValueError(f"{self.name}: a value of {self.value!r} cannot be {self.state}")

    @property
    def known(self) -> float | None:
        """The value if it may be used further: that of an impossible figure is shown, not built on."""
        return self.value if self.state in KNOWN else None

    def text(self, *, absent: str = "not measured") -> str:
        """The figure for people: significant digits, prefix and unit; in words what it is if it is no usable number."""
        if self.value is None:
            return absent
        if self.state == "not a number":
            return f"{self.value} ({self.state})"
        shown = self._number()
        return f"{shown} (impossible)" if self.state == "impossible" else shown

    def to_dict(self) -> dict[str, Any]:
        """The figure for JSON: nan and infinities are words, since JSON has no numbers for them."""
        value = str(self.value) if self.state == "not a number" else self.value
        found = {"value": value, "unit": self.unit, "state": self.state, "source": self.source}
        found |= {name: bound for name in ("low", "high") if (bound := getattr(self, name)) is not None}
        return found | ({"inputs": list(self.inputs)} if self.inputs else {})

    def within(self, low: float, high: float) -> Self:
        """The same figure, called impossible if it is not between two limits that nothing real passes."""
        if self.known is None or low <= self.known <= high:
            return self
        return replace(self, state="impossible")

    def _number(self) -> str:
        value = self.value
        assert value is not None
        if self.digits is None:
            return f"{format_count(int(value))} {self.unit}".rstrip()
        if show := _SCALED.get(self.unit):
            return show(value, self.digits)
        if "FLOP" in self.unit or self.unit.startswith("B/s"):
            return format_si(value, self.unit, self.digits)
        return f"{significant(value, self.digits)} {self.unit}".rstrip()


def figure(name: str, value: float | None, unit: str, state: State, source: str, **more: Any) -> Figure:
    """A figure of a value that may be missing or broken, which then is its state."""
    if value is None:
        state = "absent"
    elif not math.isfinite(value):
        state = "not a number"
    return Figure(name=name, value=value, unit=unit, state=state, source=source, **more)


def computed(name: str, unit: str, formula: str, function: Callable[..., float], **inputs: Figure) -> Figure:
    """`function` of figures, called with their values by keyword.

    Where one of them is not known, so is the result, and its source names them. It is assumed if an input is.
    """
    lacking = [given.name for given in inputs.values() if given.known is None]
    names = tuple(given.name for given in inputs.values())
    if lacking:
        return Figure(name=name, value=None, unit=unit, state="absent", source=f"needs {' and '.join(lacking)}", inputs=names)
    value = function(**{argument: given.value for argument, given in inputs.items()})
    state: State = "assumed" if any(given.state == "assumed" for given in inputs.values()) else "computed"
    return figure(name, value, unit, state, formula, inputs=names)


def first_known(*figures: Figure) -> Figure:
    """The first figure that is known, else the first one: the better way to a number before the other ways."""
    return next((found for found in figures if found.known is not None), figures[0])
