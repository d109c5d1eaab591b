"""Chart: an altair chart with what belongs to it on a page; it is embedded once, and rows and parameters are replaced in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from perfkit.core.source import Source
from perfkit.core.texts import told
from perfkit.face.charts.spec import AnyChart, ChartSpec, Columns


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with what belongs to it on a page.

    `alt` is its text alternative (the sentence that it shows), `sources` where its numbers come from. `table` names the data set
    that the table view and the CSV show (the first), `rows` what they show in its place, where that is more than is drawn: it is
    sent after the drawing. A `wide` figure takes the whole width.
    """

    chart: AnyChart
    _: KW_ONLY
    title: str = ""
    alt: str = ""
    sources: Sequence[Source | str] = ()
    table: str | None = None
    rows: Callable[[], Columns] | None = None
    wide: bool = False
    params: Mapping[str, Any] = field(default_factory=dict)


def as_figure(chart: Figure | AnyChart) -> Figure:
    """A bare chart as a figure without words."""
    return chart if isinstance(chart, Figure) else Figure(chart=chart)


def rows_of_tables(charts: Mapping[str, Figure | AnyChart]) -> dict[str, Columns]:
    """What the tables of charts show that is more than is drawn, by the chart's name."""
    figures = {name: as_figure(chart) for name, chart in charts.items()}
    return {name: figure.rows() for name, figure in figures.items() if figure.rows is not None}


def has_rows(figure: Figure) -> bool:
    """Whether there is anything in the data set that the figure's table shows; a chart with its rows in itself has them."""
    sets = getattr(figure.chart, "datasets", None)
    if not isinstance(sets, Mapping) or not sets:
        return True
    rows = sets[figure.table or next(iter(sets))]
    return any(len(column) for column in rows.values()) if isinstance(rows, Mapping) else len(rows) > 0


def describe(name: str, figure: Figure, spec: ChartSpec) -> dict[str, Any]:
    """What the page needs to embed the chart, without its rows. Raises ValueError for a `table` that the chart does not draw."""
    if figure.table is not None and figure.table not in spec.datasets:
        raise ValueError(f"chart {name!r} has no data set {figure.table!r} to show as its table: {', '.join(spec.datasets)}")
    return {
        "name": name,
        "title": told(figure.title),
        "alt": figure.alt,
        "sources": [told(str(source)) for source in figure.sources],
        "table": figure.table,
        "wide": figure.wide,
        "spec": spec.spec,
        "digest": spec.digest,
        "headers": spec.headers,
        "words": spec.words,
        "heads": spec.heads,
    }
