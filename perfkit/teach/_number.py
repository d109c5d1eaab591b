"""Number: what a student typed, as a number; or a friendly sentence that says what stands in the way.

Taken are `2.5e3`, `2,500`, `2 500`, `40%`, full-width digits, and the unit of the question behind the number. A decimal comma or
another unit is not guessed at: the sentence asks for what is meant, and costs nothing.
"""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import dataclass

MAX_SHOWN = 40
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.IGNORECASE)
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(?:([,'_ ])\d{3})(?:\1\d{3})*(?![\d,'_])")
_DECIMAL_COMMA = re.compile(r"([+-]?\d+),(\d+)")


@dataclass(frozen=True, slots=True)
class Typed:
    """A number, or None and the `problem` in words; `percent` if a % sign stood behind it."""

    value: float | None
    problem: str = ""
    percent: bool = False


def read_number(text: str, unit: str) -> Typed:
    """The number in `text`; a % sign divides by 100 unless the question asks for percent."""
    plain = unicodedata.normalize("NFKC", text).replace("−", "-").replace("’", "'").strip()
    if not plain:
        return Typed(None, "Nothing is typed yet. Type a number, for example 2500 or 2.5e3.")
    grouped = _GROUPED.match(plain)
    joined = re.sub(r"[,'_ ]", "", grouped[0]) + plain[grouped.end() :] if grouped else plain
    found = _NUMBER.match(joined)
    if not found:
        return Typed(None, f"{_shown(plain)} is no number. Type digits, for example 2500, 2,500 or 2.5e3.")
    rest = joined[found.end() :].strip()
    if comma := _DECIMAL_COMMA.match(joined):
        return Typed(
            None, f"Is {_shown(comma[0])} meant as {comma[1]}.{comma[2]}? Write decimals with a point, thousands as 2,500."
        )
    value = float(found[0])
    if not math.isfinite(value):
        return Typed(None, f"{_shown(plain)} is too large to be meant. Type a number, for example 2.5e3.")
    return _with_unit(value, rest, unit)


def _with_unit(value: float, rest: str, unit: str) -> Typed:
    percent = unit.startswith("%")
    if not rest or _same_unit(rest, unit):
        return Typed(value, percent=rest.startswith("%") and percent)
    if rest.startswith("%") and len(rest) == 1:
        return Typed(value / 100, percent=True)
    asked = "a plain ratio, without unit" if unit == "1" else unit
    return Typed(None, f"You wrote {_shown(rest)} behind the number; asked is {asked}. Convert it, then type the number alone.")


def _same_unit(typed: str, unit: str) -> bool:
    """Whether the typed unit is that of the question or the beginning of it, as in MiB for MiB/layer."""
    mine, asked = (re.sub(r"[\s.\-_]", "", name).lower() for name in (typed, unit))
    if mine.rstrip("s") == asked.rstrip("s"):
        return True
    parts = re.split(r"[\s/(]", unit.lower())
    return mine == parts[0] or mine.rstrip("s") == parts[0].rstrip("s")


def _shown(text: str) -> str:
    return f"'{text[:MAX_SHOWN]}…'" if len(text) > MAX_SHOWN else f"'{text}'"
