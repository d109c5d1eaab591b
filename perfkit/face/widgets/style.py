"""Style: the one way in which text from files reaches a page, and how table columns are named, scaled and written.

Widgets of perfkit put text into the page as text, never as markup. `escape` is for the few places that must build HTML.
"""

from __future__ import annotations

import html
import statistics
from collections.abc import Sequence
from typing import Any

from perfkit.core.units import THIN_SPACE, significant

_TIME = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))
_SIZE = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
_SI = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_SUFFIXES = {
    "_ns": ("time", _TIME),
    "_bytes": ("size", _SIZE),
    "_bytes_per_s": ("rate", tuple((size, f"{prefix}B/s") for size, prefix in _SI)),
    "_flops_per_s": ("rate", tuple((size, f"{prefix}FLOP/s") for size, prefix in _SI)),
}
NOT_MEASURED = "–"


def escape(text: object) -> str:
    """`text` for use inside HTML, in element content or a quoted attribute."""
    return html.escape(str(text), quote=True)


def column_label(name: str) -> str:
    """Words for a column named as in the package: "duration_ns" is "duration"; the unit is shown beside it."""
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        name = name.removesuffix(suffix)
    return name.removesuffix("_ratio").replace("_", " ").strip() or name


def column_scale(name: str, values: Sequence[Any]) -> tuple[str, float]:
    """The unit in which a column is shown, by the name's unit suffix, and how much of the value's own unit one of it is.

    One prefix serves the whole column, so that its cells can be compared; it is that of the median. Shares become percent.
    """
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        if name.endswith(suffix):
            size, unit = _prefix(_SUFFIXES[suffix][1], values)
            return unit, size
    return ("%", 0.01) if name.endswith("_ratio") or name in {"share", "share_of_step"} else ("", 1)


def _prefix(scale: Sequence[tuple[float, str]], values: Sequence[Any]) -> tuple[float, str]:
    known = [abs(value) for value in values if isinstance(value, int | float) and value]
    typical = statistics.median(known) if known else 1
    return next(((size, unit) for size, unit in scale if typical >= size), scale[-1])


def write_cell(value: Any) -> str:
    """A cell as text: whole numbers in full, others with 3 significant digits, what is missing as not measured."""
    if value is None:
        return NOT_MEASURED
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace(",", THIN_SPACE)
    return significant(value) if isinstance(value, float) else str(value)
