"""Parts: what a report is made of before it is HTML: sections of text and tables, each with its charts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from perfkit.core.quantity import text
from perfkit.face.charts.spec import AnyChart, ChartSpec
from perfkit.project.experiments.export import Section


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart with its title, the sentence that stands for it where it cannot be seen, and where its numbers come from."""

    chart: AnyChart | ChartSpec
    _: KW_ONLY
    title: str
    alt: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """A section and the charts below its text; a `folded` table opens on demand."""

    section: Section
    drawings: tuple[Drawing, ...] = ()
    folded: bool = False


def table_part(
    title: str,
    header: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    level: int = 3,
    told: Sequence[str] = (),
    folded: bool = False,
) -> Part:
    """A table as a part; None is written as a dash."""
    written = tuple(tuple("-" if cell is None else str(cell) for cell in row) for row in rows)
    return Part(Section(title=title, level=level, text=tuple(told), header=tuple(header), rows=written), folded=folded)


def shown(name: str, value: Any) -> str | None:
    """A value for a table by what its name says it is; None stays None."""
    return None if value is None else text(name, value)
