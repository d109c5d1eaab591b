"""Display: how a run, a breakdown and a finding show themselves in a notebook and on a terminal.

Text comes from recordings and configurations, so that everything is escaped here, and nothing but tables is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

from perfkit.core.units import format_bytes, format_ns, format_ratio, format_si

Row = Sequence[str]
MAX_ROWS = 40
"""Rows of a table; the rest is counted."""

_FORMATS: Mapping[str, Callable[[float], str]] = {
    "ns": format_ns,
    "s": lambda amount: format_ns(amount * 1e9),
    "bytes": format_bytes,
}


def amount_text(amount: float, unit: str) -> str:
    """An amount with its unit: times and bytes scaled to be read."""
    show = _FORMATS.get(unit)
    return show(amount) if show is not None else format_si(amount, unit)


def breakdown_rows(parts: Mapping[str, float], unmeasured: Iterable[str], unit: str) -> list[Row]:
    """One row a part: path, amount, share of the total; parts that were not told apart say so."""
    total = sum(parts.values())
    rows: list[Row] = [
        (path, amount_text(amount, unit), format_ratio(amount / total if total else 0.0)) for path, amount in parts.items()
    ]
    return rows + [(path, "not measured", "") for path in sorted(unmeasured)]


def text_table(title: str, rows: Sequence[Row]) -> str:
    """`title`, and the rows in columns below it; amounts and shares (three columns) to the right, words (two) to the left."""
    shown = rows[:MAX_ROWS]
    widths = [max(len(row[index]) for row in shown) for index in range(len(shown[0]))] if shown else []
    side = "<" if len(widths) == 2 else ">"
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(f"{cell:{side}{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))])
        for row in shown
    ]
    return "\n".join([title, *(f"  {line}".rstrip() for line in lines), *_rest(rows)])


def html_table(title: str, rows: Sequence[Row]) -> str:
    """The same as a table; every text is escaped."""
    cells = [
        f'<tr><th style="text-align:left">{escape(row[0])}</th>'
        + "".join(f'<td style="text-align:right">{escape(cell)}</td>' for cell in row[1:])
        + "</tr>"
        for row in rows[:MAX_ROWS]
    ]
    rest = "".join(f"<p>{escape(line.strip())}</p>" for line in _rest(rows))
    return f"<table><caption>{escape(title)}</caption><tbody>{''.join(cells)}</tbody></table>{rest}"


def _rest(rows: Sequence[Row]) -> list[str]:
    return [f"  ... and {len(rows) - MAX_ROWS} more"] if len(rows) > MAX_ROWS else []
