"""Chart host: an altair chart embedded once, whose rows and parameters are then replaced in the live view."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import pandas as pd
import traitlets

from perfkit.core.source import Source
from perfkit.core.texts import told
from perfkit.face.charts.spec import AnyChart, ChartSpec, Columns, columns, split
from perfkit.face.widgets.view import View

OnSelect = Callable[[str, dict[str, Any]], None]
Rows = pd.DataFrame | Sequence[Mapping[str, Any]] | Columns


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with what belongs to it on a page.

    `alt` is its text alternative (the sentence that it shows), `sources` where its numbers come from. `table` names the data set
    that the table view and the CSV show (the first). A `wide` figure takes the whole width.
    """

    chart: AnyChart
    _: KW_ONLY
    title: str = ""
    alt: str = ""
    sources: Sequence[Source | str] = ()
    table: str | None = None
    wide: bool = False
    params: Mapping[str, Any] = field(default_factory=dict)


class ChartHost(View):
    """A chart on its own, with table view, CSV, PNG, SVG and its sources.

    `update` patches the live view; `rebuild` draws a new structure. `on_select(name, datum)` is called when a mark, or a row of
    the table view, is chosen.
    """

    description = traitlets.Dict().tag(sync=True)
    data = traitlets.Dict().tag(sync=True)

    def __init__(self, figure: Figure | AnyChart, *, name: str = "chart", on_select: OnSelect | None = None) -> None:
        self._name, self._on_select, self._seq = name, on_select, 0
        super().__init__(kind="chart")
        self.rebuild(figure)

    def rebuild(self, figure: Figure | AnyChart) -> None:
        """Draw another structure; 10 times slower than `update`."""
        figure = as_figure(figure)
        spec = split(figure.chart)
        with self.lock, self.hold_sync():
            self.description = describe(self._name, figure, spec)
            self._set_data(spec.datasets, dict(figure.params))

    def update(self, datasets: Mapping[str, Rows] | None = None, params: Mapping[str, Any] | None = None) -> None:
        """Replace the rows of the named data sets and the values of the named parameters; the others stay."""
        with self.lock:
            fresh = {name: as_columns(rows) for name, rows in (datasets or {}).items()}
            self._set_data({**self.data["datasets"], **fresh}, {**self.data["params"], **(params or {})})

    def on_message(self, message: dict[str, Any]) -> None:
        """A mark was chosen."""
        if self._on_select is not None and message.get("type") == "select":
            self._on_select(self._name, dict(message["datum"]))

    def _set_data(self, datasets: Mapping[str, Columns], params: Mapping[str, Any]) -> None:
        self._seq += 1
        self.data = {"seq": self._seq, "datasets": dict(datasets), "params": dict(params)}


def as_figure(chart: Figure | AnyChart) -> Figure:
    """A bare chart as a figure without words."""
    return chart if isinstance(chart, Figure) else Figure(chart=chart)


def as_columns(rows: Rows) -> Columns:
    """Rows of a data set as one list a column."""
    if isinstance(rows, pd.DataFrame):
        return columns(rows.to_dict("records"))  # type: ignore[arg-type]
    return dict(rows) if isinstance(rows, dict) else columns(rows)


def describe(name: str, figure: Figure, spec: ChartSpec) -> dict[str, Any]:
    """What the page needs to embed the chart, without its rows. Raises ValueError for a `table` that the chart does not draw."""
    if figure.table is not None and figure.table not in spec.datasets:
        raise ValueError(f"chart {name!r} has no data set {figure.table!r} to show as its table: {', '.join(spec.datasets)}")
    return {
        "name": name,
        "title": told(figure.title),
        "alt": figure.alt,
        "sources": [str(source) for source in figure.sources],
        "table": figure.table,
        "wide": figure.wide,
        "spec": spec.spec,
        "digest": spec.digest,
        "headers": spec.headers,
    }
