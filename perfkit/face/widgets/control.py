"""Controls: what a visitor can change in a panel's state, each with label, unit, limits and the configuration key it stands for.

A control is bound to a path of the state. Values from the page are coerced and clamped here, and the visitor is told; the page
never decides what is valid.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import Any, Literal

from perfkit.core.errors import InputError, Problems
from perfkit.core.roots import is_allowed
from perfkit.core.texts import say, t, told
from perfkit.core.units import format_entry, rounded
from perfkit.face.widgets._files import list_folder
from perfkit.face.widgets._upload import offer
from perfkit.face.widgets.page_state import several

Option = tuple[str, Any] | tuple[str, Any, str] | str | int | float
"""A value to choose: itself, or (label, value), or (label, value, group)."""
Options = Sequence[Option] | Callable[[Any], Sequence[Option]]
Accepted = tuple[Any, str]
"""The value that is used, and what to tell the visitor about it ("" if it is what was asked for)."""

_MAX_POSITIONS = 400

SHORT = re.compile(r"\b(mfu|hfu)\b", re.IGNORECASE)
"""Short names that are written in capitals."""


@dataclass(frozen=True, slots=True)
class Slider:
    """A number between `low` and `high`, moved or typed. `scale="log"` spaces the positions evenly by ratio.

    `values` lists the allowed values where they are few, for example the divisors of a size. Whole numbers unless `step` or a
    limit is a fraction.
    """

    path: str
    _: KW_ONLY
    low: float
    high: float
    label: str = ""
    unit: str = ""
    step: float = 1
    scale: Literal["linear", "log"] = "linear"
    values: Sequence[float] | Callable[[Any], Sequence[float]] | None = None
    key: str = ""
    help: str = ""
    visible: Callable[[Any], bool] | None = None

    def describe(self, state: Any) -> dict[str, Any]:
        """What the page needs beside label and value."""
        allowed = self._allowed(state)
        low, high = (min(allowed), max(allowed)) if allowed else (self.low, self.high)
        return {"kind": "slider", "low": low, "high": high, "step": self.step, "values": allowed or self._positions()}

    def accept(self, value: Any, state: Any) -> Accepted:
        """The nearest allowed number."""
        number = _number(self, value)
        if allowed := self._allowed(state):
            nearest = min(allowed, key=lambda candidate: abs(candidate - number))
            moved = say("set to {value}, the nearest of {allowed}", value=format_entry(nearest), allowed=_list(allowed))
            return nearest, "" if nearest == number else moved
        return _clamp(number, self.low, self.high, whole=_whole(self.low, self.high, self.step), unit=self.unit)

    def further(self, before: float | None, state: Any) -> float | None:
        """The value as far beyond that of `state` as it is from `before`; None where there is none."""
        now = state[self.path]
        if before is None or now is None:
            return None
        values = self._allowed(state) or self._positions()
        if values is None:
            return beyond if self.low <= (beyond := now + now - before) <= self.high else None
        if before not in values or now not in values:
            return None
        at = 2 * values.index(now) - values.index(before)
        return values[at] if 0 <= at < len(values) else None

    def _allowed(self, state: Any) -> list[float] | None:
        return list(self.values(state)) if callable(self.values) else list(self.values) if self.values is not None else None

    def _positions(self) -> list[float] | None:
        if self.scale == "linear":
            return None
        return _evenly_by_ratio(self.low, self.high, whole=_whole(self.low, self.high, self.step))


@dataclass(frozen=True, slots=True)
class Number:
    """A typed number, clamped to `low` .. `high`; the visitor is told when it was.

    A field with `empty` may be left empty: the state then holds that value, which no visitor would type, and `placeholder` says
    what stands in its place. An emptied field without it is refused.
    """

    path: str
    _: KW_ONLY
    low: float = -math.inf
    high: float = math.inf
    label: str = ""
    unit: str = ""
    step: float | None = None
    empty: float | None = None
    placeholder: str = ""
    key: str = ""
    help: str = ""
    visible: Callable[[Any], bool] | None = None

    def describe(self, _state: Any) -> dict[str, Any]:
        """What the page needs beside label and value."""
        low, high = (limit if math.isfinite(limit) else None for limit in (self.low, self.high))
        return {
            "kind": "number",
            "low": low,
            "high": high,
            "step": self.step,
            "empty": self.empty,
            "placeholder": t(self.placeholder),
        }

    def accept(self, value: Any, _state: Any) -> Accepted:
        """The number within the limits, or the one that stands for an empty field."""
        if self.empty is not None and value in (None, "", self.empty):
            return self.empty, ""
        whole = self.step is not None and float(self.step).is_integer()
        return _clamp(_number(self, value), self.low, self.high, whole=whole, unit=self.unit)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of `options`, or several with `multiple`; options may depend on the state. `buttons` shows all of them side by side."""

    path: str
    _: KW_ONLY
    options: Options
    label: str = ""
    unit: str = ""
    multiple: bool = False
    buttons: bool = False
    key: str = ""
    help: str = ""
    visible: Callable[[Any], bool] | None = None

    def describe(self, state: Any) -> dict[str, Any]:
        """What the page needs beside label and value."""
        options = [
            {"label": label, "value": list(value) if isinstance(value, tuple) else value, "group": group}
            for label, value, group in option_list(self.options, state)
        ]
        return {"kind": "choice", "options": options, "multiple": self.multiple, "buttons": self.buttons}

    def accept(self, value: Any, state: Any) -> Accepted:
        """The value itself if it is an option, else the first option."""
        allowed = [option for _, option, _ in option_list(self.options, state)]
        if self.multiple:
            asked = [_same(allowed, item) for item in (several(value) if isinstance(value, str) else value or ())]
            kept = tuple(allowed[index] for index in asked if index is not None)
            lost = sum(index is None for index in asked)
            return kept, say("{lost} of the chosen values no longer exist", lost=str(lost)) if lost else ""
        index = _same(allowed, value)
        if index is not None:
            return allowed[index], ""
        if not allowed:
            return None, ""
        nothing_to_tell = value in (None, "") or allowed[0] == ""  # nothing is chosen then, which the control says itself
        instead = say("{asked} is not available here; {shown} is shown", asked=str(value), shown=str(allowed[0]))
        return allowed[0], "" if nothing_to_tell else instead


@dataclass(frozen=True, slots=True)
class Text:
    """A line of text, taken when the visitor presses Enter or leaves the field."""

    path: str
    _: KW_ONLY
    label: str = ""
    unit: str = ""
    placeholder: str = ""
    max_length: int = 4_000
    key: str = ""
    help: str = ""
    visible: Callable[[Any], bool] | None = None

    def describe(self, _state: Any) -> dict[str, Any]:
        """What the page needs beside label and value."""
        return {"kind": "text", "placeholder": t(self.placeholder)}

    def accept(self, value: Any, _state: Any) -> Accepted:
        """The text, cut to `max_length` characters."""
        text = str(value)
        cut = say("cut to {most} characters", most=str(self.max_length))
        return text[: self.max_length], cut if len(text) > self.max_length else ""


@dataclass(frozen=True, slots=True)
class Toggle:
    """On or off."""

    path: str
    _: KW_ONLY
    label: str = ""
    unit: str = ""
    key: str = ""
    help: str = ""
    visible: Callable[[Any], bool] | None = None

    def describe(self, _state: Any) -> dict[str, Any]:
        """What the page needs beside label and value."""
        return {"kind": "toggle"}

    def accept(self, value: Any, _state: Any) -> Accepted:
        """The truth of the value."""
        return bool(value) and value != str(False), ""  # as an address has it


@dataclass(frozen=True, slots=True)
class PathPicker:
    """A file or folder: ready to use (`options`: samples, runs of the project), typed, browsed to, or sent by the visitor."""

    path: str
    _: KW_ONLY
    options: Options = ()
    label: str = ""
    unit: str = ""
    prompt: str = "Choose…"
    placeholder: str = "path of a folder or file on this machine"
    key: str = ""
    help: str = ""
    visible: Callable[[Any], bool] | None = None

    def describe(self, state: Any) -> dict[str, Any]:
        """What the page needs beside label and value."""
        options = [
            {"label": label, "value": str(value), "group": group} for label, value, group in option_list(self.options, state)
        ]
        return {"kind": "path", "options": options, "prompt": t(self.prompt), "placeholder": t(self.placeholder), "upload": offer()}

    def accept(self, value: Any, state: Any) -> Accepted:
        """The path as text; whether it can be read is for `compute` to say. One outside of the allowed folders is an InputError."""
        path = "" if value is None else str(value).strip()
        if path and not is_allowed(path) and path not in {str(option) for _, option, _ in option_list(self.options, state)}:
            raise InputError(
                self.label or words(self.path), ["is outside of the folders that this server opens (PERFKIT_ROOTS names others)"]
            )
        return path, ""

    def browse(self, folder: str) -> dict[str, Any]:
        """What is in `folder`, for the page."""
        return list_folder(folder)


Control = Slider | Number | Choice | Text | Toggle | PathPicker


def describe(control: Control, state: Any, value: Any, note: str) -> dict[str, Any]:
    """All that the page needs to draw `control`."""
    hidden = control.visible is not None and not control.visible(state)
    return {
        **control.describe(state),
        "name": control.path,
        "label": t(control.label or words(control.path)),
        "unit": t(control.unit),
        "hint": _hint(control),
        "value": list(value) if isinstance(value, tuple) else value,
        "note": told(note),
        "hidden": hidden,
    }


def refusals(controls: Sequence[Control], values: Mapping[str, Any], state: Any) -> list[str]:
    """What stands against the `values` of controls, by path; empty if all are accepted."""
    problems = Problems()
    for control in controls:
        if control.path in values:
            with problems.of(t(control.label or words(control.path))):
                control.accept(values[control.path], state)
    return problems


def settling(controls: Sequence[Control], state: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str, str]]:
    """The state with one control after another settled on what its options allow now, its path, and what to tell of it."""
    for control in controls:
        if isinstance(control, Choice) or (isinstance(control, Slider) and callable(control.values)):
            value, note = control.accept(state[control.path], state)
            state = {**state, control.path: value}
            yield state, control.path, note


@cache
def _evenly_by_ratio(low: float, high: float, *, whole: bool) -> list[float]:
    """The positions of a logarithmic slider."""
    ratio = math.log(high / low) / (_MAX_POSITIONS - 1)
    exact = (low * math.exp(ratio * position) for position in range(_MAX_POSITIONS))
    exact_enough = (round(value) if whole else rounded(value) for value in exact)
    return sorted({low, *exact_enough, high})


def option_list(options: Options, state: Any) -> list[tuple[str, Any, str]]:
    """Options as (label, value, group)."""
    given: Iterable[Option] = options(state) if callable(options) else options
    return [
        (_words(option[0]), option[1], told(option[2]) if len(option) == 3 else "")
        if isinstance(option, tuple)
        else (_words(option), option, "")
        for option in given
    ]


def _words(label: Any) -> str:
    """A label as the visitor reads it; one that was said knows its form."""
    return told(label if isinstance(label, str) else str(label))


def _hint(control: Control) -> str:
    key = f"{t('Configuration key')}: {control.key}" if control.key else ""
    return ". ".join(part for part in (t(control.help.rstrip(".")), key) if part)


def words(path: str) -> str:
    """A path as words: "pipeline_parallel_size" is "Pipeline parallel size"."""
    return SHORT.sub(lambda found: found[0].upper(), path.replace("_", " ").capitalize())


def _same(options: Sequence[Any], value: Any) -> int | None:
    # JSON turns tuples into lists; ids in the address are text.
    for index, option in enumerate(options):
        if option == value or (isinstance(option, tuple) and isinstance(value, list) and list(option) == value):
            return index
    return next((index for index, option in enumerate(options) if isinstance(value, str) and str(option) == value), None)


def _number(control: Slider | Number, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        said = "is empty; it needs a number" if value in (None, "") else say("{value} is no finite number", value=repr(value))
        raise InputError(t(control.label or words(control.path)), [said])
    return number


def _clamp(number: float, low: float, high: float, *, whole: bool, unit: str) -> Accepted:
    kept = min(max(number, low), high)
    accepted: float = round(kept) if whole else kept
    if accepted == number:
        return accepted, ""
    value = f"{format_entry(accepted)} {t(unit)}".rstrip()
    return accepted, say("set to {value}; {low} to {high} is allowed", value=value, low=_limit(low), high=_limit(high))


def _limit(value: float) -> str:
    return "any" if not math.isfinite(value) else format_entry(value)


def _whole(*numbers: float) -> bool:
    return all(float(number).is_integer() for number in numbers)


def _list(values: Sequence[float]) -> str:
    shown = ", ".join(format_entry(value) for value in values[:12])
    return shown if len(values) <= 12 else f"{shown}, …"
