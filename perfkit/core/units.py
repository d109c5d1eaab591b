"""Units: constants, exact parsing and the formatting of quantities for people.

The only module that knows what 1e9 or 2**30 means. Times inside perfkit are int64 nanoseconds, sizes int bytes, rates float
per second. Text for people has 3 significant digits, a unit with its SI or binary prefix, and never a bare number. Surfaces write
numbers with the functions of this module and no others.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
KIB, MIB, GIB = 2**10, 2**20, 2**30
GIGA = 1e9
TERA = 1e12

MAX_EXPONENT = 24  # 10**24 s is older than the universe; larger exponents only fill memory

THIN_SPACE = "\u2009"
LEAST_PERCENT = 0.001
"""A share is told from here on; with its zeros in full, a smaller one is no number that people read."""

_SI = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_BINARY = ((2.0**50, "Pi"), (2.0**40, "Ti"), (2.0**30, "Gi"), (2.0**20, "Mi"), (2.0**10, "Ki"), (1.0, ""))
_TIME = ((NS_PER_S, "s"), (NS_PER_MS, "ms"), (NS_PER_US, "µs"), (1, "ns"))
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([KMGTP]?)(i?)B?\s*$", re.IGNORECASE)


def decimal_to_ns(text: str, ns_per_unit: int) -> int:
    """Exact nanoseconds of a decimal text in a unit of `ns_per_unit` ns, rounded half to even.

    Raises ValueError for text that is no finite number. Floats are never involved: 19-digit epoch times lose 0.25 us in float64.
    """
    try:
        value = Decimal(text.strip())
    except InvalidOperation as error:
        raise ValueError(f"{text!r} is not a number") from error
    return whole(value, ns_per_unit)


def whole(value: Decimal, per_unit: int) -> int:
    """A decimal number in units of `per_unit` as a whole number, rounded half to even; ValueError as in `decimal_to_ns`."""
    if not value.is_finite() or value.adjusted() > MAX_EXPONENT:
        raise ValueError(f"'{value}' is not a finite number of a sensible size")
    return int((value * per_unit).to_integral_value())


def parse_bytes(text: str) -> int:
    """Bytes of a text such as "58GB", "4GiB" or "512 MiB"; K, M, G, T and P are powers of 1024.

    MindFormers writes "58GB" and its log shows 59392M for it, so a plain B is read as the binary unit (erratum X27).
    """
    match = _SIZE.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size; write for example '58GiB'")
    prefix = match[2].upper()
    power = 0 if not prefix else "KMGTP".index(prefix) + 1
    return int(Decimal(match[1]) * 1024**power)


def significant(value: float, digits: int = 3) -> str:
    """`value` with `digits` significant digits, no exponent, thousands split by thin spaces."""
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    kept = rounded(value, digits)
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(kept))))
    return f"{kept:,.{decimals}f}".replace(",", THIN_SPACE)


def rounded(value: float, digits: int = 3) -> float:
    """`value` rounded to `digits` significant digits, as a number."""
    return float(f"{value:.{digits - 1}e}")


def format_count(value: int) -> str:
    """A whole number in full, thousands split by thin spaces."""
    return f"{value:,}".replace(",", THIN_SPACE)


def format_entry(value: float) -> str:
    """A number as somebody types it into a field: `format_entry(58.0)` is '58', `format_entry(0.25)` is '0.25'."""
    return str(int(value)) if math.isfinite(value) and value == int(value) else f"{value:.12g}"


def format_ns(ns: float | None, digits: int = 3) -> str:
    """A duration in s, ms, µs or ns: `format_ns(136_581_000)` is '137 ms'."""
    if ns is None:
        return "not measured"
    for size, unit in _TIME:
        if _reaches(ns, size, digits) or size == 1:
            return f"{significant(ns / size, digits)} {unit}"
    raise AssertionError("unreachable: the last unit is 1 ns")


def format_si(value: float | None, unit: str, digits: int = 3) -> str:
    """A count or rate with an SI prefix: `format_si(2.16e14, 'FLOP/s')` is '216 TFLOP/s'."""
    return _prefixed(value, unit, _SI, digits)


def format_bytes(value: float | None, digits: int = 3) -> str:
    """A size with a binary prefix: `format_bytes(59392 * MIB)` is '58.0 GiB'."""
    return _prefixed(value, "B", _BINARY, digits)


def percents(value: float, digits: int = 3) -> str:
    """A number of percents, without their sign: `percents(57.54)` is '57.5', `percents(1.49e-5)` '< 0.001'."""
    if 0 < abs(value) < LEAST_PERCENT:
        return f"< {LEAST_PERCENT}" if value > 0 else f"> -{LEAST_PERCENT}"
    return significant(value, digits)


def format_ratio(value: float | None, digits: int = 3) -> str:
    """A ratio as percent: `format_ratio(0.5754)` is '57.5 %'."""
    return "not measured" if value is None else f"{percents(value * 100, digits)} %"


def format_change(ratio: float | None, digits: int = 3) -> str:
    """A relative change as percent with its sign: `format_change(-0.1427)` is '-14.3 %'; none is '0 %'."""
    text = format_ratio(ratio, digits)
    if not ratio or ratio < 0:
        return text
    return f"< +{text[2:]}" if text.startswith("<") else f"+{text}"


def _prefixed(value: float | None, unit: str, scale: tuple[tuple[float, str], ...], digits: int) -> str:
    if value is None:
        return "not measured"
    for size, prefix in scale:
        if _reaches(value, size, digits) or size == 1.0:
            return f"{significant(value / size, digits)} {prefix}{unit}"
    raise AssertionError("unreachable: the last prefix is 1")


def _reaches(value: float, size: float, digits: int) -> bool:
    """Whether `value` shows as at least 1 in a unit of `size` once it is rounded: 999.9 µs is 1.00 ms."""
    return math.isfinite(value) and abs(value) / size >= 1 - 0.5 * 10.0**-digits
