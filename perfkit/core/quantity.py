"""Quantity: what the values under a name are, by the unit with which the name ends, and how people see them.

Names carry their unit (`duration_ns`, `peak_bytes`, `overlap_ratio`), on columns of frames as on keys of JSON. Here, and nowhere
else, stands what each unit is called on screen, which prefixes it takes and how many digits it is shown with; tables of pages,
their files, terminal, log and report ask. So one quantity has one unit and one number of digits wherever it stands.

A cell is one of four things, and they stay apart: a number, 0 among them; no number (`nan`, from a computation that failed); an
infinity; or nothing, which was not measured. pandas has nan for what is missing in a column of floats; numbers and both are held by
a column of objects or of type "Float64".
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from perfkit.core.units import NS_PER_S, format_bytes, format_count, format_ns, format_ratio, format_si, percents, significant

if TYPE_CHECKING:
    import pandas as pd

NOT_MEASURED = "–"
LARGEST_SIZE = 10_000
"""From here on a size in a column is read more easily in the next larger unit: of memory it is the large parts that are asked for.
Times keep the unit of their median, since what is short and frequent counts."""
Prefixes = tuple[tuple[float, str], ...]

_TIME: Prefixes = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns"))
_SIZE: Prefixes = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
_SI: Prefixes = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


@dataclass(frozen=True, slots=True)
class Quantity:
    """The values under a name: `write` gives one with its unit, a column is shown in one of `prefixes`."""

    prefixes: Prefixes
    write: Callable[[float, int], str]
    digits: int = 3


def _si(unit: str) -> Quantity:
    return Quantity(tuple((size, f"{prefix}{unit}") for size, prefix in _SI), lambda value, digits: format_si(value, unit, digits))


def _plain(unit: str, digits: int = 4) -> Quantity:
    return Quantity(((1, unit),), lambda value, digits: f"{significant(value, digits)} {unit}", digits)


_SECONDS: Prefixes = tuple((size / NS_PER_S, unit) for size, unit in _TIME)
_BY_UNIT: Mapping[str, Quantity] = MappingProxyType(
    {
        "ns": Quantity(_TIME, format_ns),
        "step_time_ns": Quantity(_TIME, format_ns, 4),
        "s": Quantity(_SECONDS, lambda value, digits: format_ns(value * NS_PER_S, digits)),
        "step_time_s": Quantity(_SECONDS, lambda value, digits: format_ns(value * NS_PER_S, digits), 4),
        "bytes": Quantity(_SIZE, format_bytes),
        "bytes_per_s": _si("B/s"),
        "flops": _si("FLOP"),
        "flops_per_s": _si("FLOP/s"),
        "flops_per_s_per_device": _si("FLOP/s/device"),
        "ratio": Quantity(((0.01, "%"),), format_ratio),
        "linearity": Quantity(((0.01, "%"),), format_ratio, 4),
        "linearity_ratio": Quantity(((0.01, "%"),), format_ratio, 4),
        "share": Quantity(((0.01, "%"),), format_ratio),
        "mfu": Quantity(((0.01, "%"),), format_ratio, 4),
        "hfu": Quantity(((0.01, "%"),), format_ratio, 4),
        "tokens_per_s": _plain("tokens/s"),
        "tokens_per_s_per_device": _plain("tokens/s/device"),
        "samples_per_s_per_device": _plain("samples/s/device"),
    }
)
"""Shown with 4 digits: what goals are set in and rounds are judged by, whose changes are a few in a thousand."""
_MOMENTS = frozenset({"time_ns", "start_ns", "end_ns", "latest_start_ns"})
"""Points of time are counted from an epoch, and in full: no prefix suits them."""
_LOOKED_AT: Mapping[str, int] = MappingProxyType({"goal": 4, "moment": 6, "loss": 6})
"""In charts, without a unit of their own: the metric of a goal, points of time and losses, of which more digits are looked at."""
_FACTORS = frozenset({"over_stage", "over_all"})
"""Over a median that most values are near to: three decimals, so that ranks of one stage can be told apart."""
_CALLED: Mapping[str, str] = MappingProxyType(
    {
        "ns": "time",
        "s": "time",
        "bytes": "size",
        "bytes_per_s": "rate",
        "flops": "FLOPs",
        "flops_per_s": "rate",
        "flops_per_s_per_device": "rate",
        "mfu": "MFU",
        "hfu": "HFU",
        "tokens_per_s": "throughput",
        "tokens_per_s_per_device": "throughput",
        "samples_per_s_per_device": "throughput",
        "against_stage_ratio": "computing, against the stage's median",
        "bound_ns": "bound in the mean step",
        "caused_ns": "others waited for it",
        "exchanged_ratio": "exchanged over the mean",
        "fastest_ratio": "fastest in draws",
        "full_ratio": "share of full",
        "high_step_time_s": "80 % to",
        "low_step_time_s": "80 % from",
        "gain_ratio": "gain over its parent",
        "gain_without_ratio": "kernels faster without it",
        "linearity": "linearity",
        "matmul_ratio": "matmul over the mean",
        "inside_ns": "in the range",
        "largest_interval_ns": "largest mean interval",
        "max_ns": "longest",
        "median_s": "median time",
        "min_ns": "shortest",
        "overlapped_ns": "hidden communication",
        "pipeline_stage": "stage",
        "tokens_ratio": "tokens over the mean",
        "untold_communication_share": "communication not all members of which were read",
        "wait_ratio": "share of waiting",
    }
)
"""What a name is called that is nothing but its unit, or whose words say too little beside a number."""
NAMES = frozenset(
    [
        "name",
        "names",
        "operator",
        "operators",
        "op",
        "kernel",
        "kernels",
        "path",
        "file",
        "place",
        "scope",
        "module",
        "function",
        "key",
        "shape",
        "shapes",
    ]
)
"""Under which stands what somebody else has named: no language has other words for it."""
_CHANGE = re.compile(r"(?:^|_)(?:change|delta)(?:_|$)")
"""In names of what is longer or shorter, more or less than something else."""
_LONGEST_FIRST = sorted(_BY_UNIT, key=len, reverse=True)
_OF_WHAT = re.compile(r"(?:^|_)(share|bytes)_(?:of|in|a)_[a-z_]+$")
"""What a share is of or lies in, or for each of what so many bytes are, may follow the unit: `share_of_step`, `bytes_a_step`."""


def quantity(name: str) -> Quantity | None:
    """What the values under a name are; None for a count, an identity or a text."""
    unit = unit_of(name)
    return None if unit is None else _BY_UNIT[unit]


def units() -> frozenset[str]:
    """Every unit with prefix in which people see a number."""
    return frozenset(unit for known in _BY_UNIT.values() for _, unit in known.prefixes)


def unit_of(name: str) -> str | None:
    """The longest known unit with which a name ends, or that which stands before what it is of, as it stands in it."""
    if name in _MOMENTS:
        return None
    ends = next((unit for unit in _LONGEST_FIRST if name == unit or name.endswith(f"_{unit}")), None)
    within = _OF_WHAT.search(name)
    return ends or (within[1] if within else None)


def label(name: str) -> str:
    """Words for a name, the unit beside them left out: "duration_ns" is "duration", "mfu" is "MFU"."""
    if name in _CALLED:
        return _CALLED[name]
    unit = unit_of(name) or ""
    words = name if unit == "share" else name.removesuffix(unit.removeprefix("step_time_").removeprefix("linearity_"))
    named = f" {unit.upper()}" if unit in ("mfu", "hfu") else ""
    return words.replace("_", " ").strip() + named


def text(name: str, value: Any, *, absent: str = NOT_MEASURED) -> str:
    """One value under a name, with its own prefix and unit; a count that became a float is told as the count that it is."""
    found = quantity(name)
    if found is None and isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return format_count(int(value))
    if found is None or isinstance(value, bool | str) or value is None:
        return cell(value, absent=absent)
    return found.write(value, found.digits)


def spelled(name: str, *, signed: bool = False) -> str:
    """The format in which Vega writes what is under a name, in the prefix drawn: digits as everywhere, shares in percent."""
    found, sign = quantity(name), "+" if signed else ""
    if name == "count":
        return f"{sign},"
    kept = _LOOKED_AT.get(name, 4 if name in _FACTORS else 3) if found is None else found.digits
    return f"{sign},.{kept}{'p' if found is not None and found.prefixes[-1][1] == '%' else 'r'}"


def listed(values: Mapping[str, Any], in_language: Callable[[str], str] = str) -> str:
    """Numbers by name in one line, each in words with its unit; `in_language` turns the words into those of a reader."""
    absent = in_language("not known")
    return ", ".join(f"{in_language(label(name))} {text(name, value, absent=absent)}" for name, value in values.items())


def column(name: str, values: Sequence[Any]) -> tuple[str, float, int]:
    """Of a column: the unit in which it is shown, how much of the value's own unit one of it is, and the digits of its cells.

    One prefix serves the whole column, so that its cells can be compared; it is that of the median, of sizes a larger one where the
    largest would be `LARGEST_SIZE` and more, and of mere zeros the second largest (ms, GiB). Shares become percent.
    """
    found = quantity(name)
    if found is None:
        return "", 1, 4 if name in _FACTORS else 3
    known = [abs(value) for value in values if isinstance(value, int | float) and value and math.isfinite(value)]
    typical = statistics.median(known) if known else found.prefixes[:2][-1][0]
    if found.prefixes is _SIZE:  # the largest of them would be `LARGEST_SIZE` of the next smaller unit
        typical = max(typical, 1024 * max(known, default=0) / LARGEST_SIZE)
    size, unit = next(((size, unit) for size, unit in found.prefixes if typical >= size), found.prefixes[-1])
    return unit, size, found.digits


def with_sign(name: str, value: Any, written: str) -> str:
    """What is `written` for a value, with its sign where the name says that it is a change: a plus, or a true minus."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not value or not _CHANGE.search(name):
        return written
    return written.replace("-", "−", 1) if value < 0 else re.sub(r"(?=\d)", "+", written, count=1)


def scaled(value: Any, size: float) -> Any:
    """A value in units of `size`; what is no number stays as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return value * round(1 / size) if size < 1 else value / size


def cells(series: pd.Series[Any]) -> list[Any]:
    """The values of a column as plain Python ones, None where there is none: nan in columns of floats, texts or categories.

    Counts of which one is absent are floats in pandas; they are counts again.
    """
    own = series.tolist()
    absent_is_nan = str(series.dtype).startswith(("float", "category")) or any(isinstance(value, str) for value in own)
    found = [_plain_value(value, absent_is_nan=absent_is_nan) for value in own]
    known = [value for value in found if value is not None]
    counted = len(known) < len(found) and quantity(str(series.name)) is None
    if counted and all(isinstance(value, float) and value.is_integer() and abs(value) < 2**53 for value in known):
        return [None if value is None else int(value) for value in found]
    return found


def _plain_value(value: Any, *, absent_is_nan: bool) -> Any:
    value = value.item() if hasattr(value, "item") else value
    if (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (absent_is_nan and isinstance(value, float) and math.isnan(value))
    ):
        return None
    if isinstance(value, str | int | float | bool):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def word(value: Any) -> Any:
    """A value for a file or a page: nan and infinities are words, since JSON has no numbers for them; None stays None."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def cell(value: Any, digits: int = 3, *, unit: str = "", absent: str = NOT_MEASURED) -> str:
    """A value beside the `unit` of its column: whole numbers in full, others with `digits` digits, nan and infinities as such."""
    if value is None:
        return absent
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return format_count(value)
    if isinstance(value, float):
        return percents(value, digits) if unit == "%" else significant(value, digits)
    return str(value)
