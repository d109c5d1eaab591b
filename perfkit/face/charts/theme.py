"""Theme: the colour of every thing that perfkit draws, assigned once for pages, report and timeline.

Categories use the colours of Okabe and Ito (2008), which stay apart under the common colour-vision deficiencies. A path of a
breakdown has the colour of its first levels; deeper paths get shades of it, but of communication by dimension, whose shades
would all be browns, each has its own. Text, axes and grid have no colour here: the page gives them, so that one specification
serves light and dark. `TEXT`, `MUTED` and `GROUND` stand for the page's own colours wherever a mark needs them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import altair as alt
import pandas as pd

from perfkit.core import quantity

COMPUTING = "#0072B2"
COMMUNICATION = "#E69F00"
BUBBLE = "#999999"
FREE = "#D55E00"
DATA = "#CC79A7"
GREEN = "#009E73"
SKY = "#56B4E9"
YELLOW = "#F0E442"
RECOMPUTE = "#A6611A"
"""Computed again, on every page."""
WAITING = "#F2CF8D"
"""Of communication what waits for another rank: a lighter orange than what moves data."""
HIDDEN = "#9CC7E8"
"""Communication behind computing, whose blue it has a tint of."""
TENSOR, PIPELINE, DATA_PARALLEL, CONTEXT, EXPERT = COMMUNICATION, "#9A6FC9", "#2A9D8F", "#D1558F", "#8A8F1F"
"""Dimensions of a parallel layout."""

MAX_ACROSS = 10
"""Ranks up to which their bars lie one below the other: side by side, two would be as large as the screen."""

LABEL_PIXELS = 105
"""Width of a time and its share behind a bar."""

TEXT = "#1b2733"
"""Replaced by the page's text colour when drawn."""
MUTED = "#52606d"
"""Replaced by the page's secondary text colour when drawn."""
GROUND = "#fdfefe"
"""Replaced by the colour on which the page has its charts when drawn: what says nothing must not glare on a dark one."""
LIMIT = TEXT
"""A limit is a dashed line in the colour of the text: no part has it."""

MAX_MARKS = 5_000
"""Marks in one chart; more is aggregated on the server first."""

SEQUENTIAL: Final = "viridis"

PATH_COLORS: Mapping[str, str] = {
    "computing": COMPUTING,
    "computing/backward": SKY,
    "computing/recompute": RECOMPUTE,
    "computing/optimizer": "#3D5FA8",
    "communication": COMMUNICATION,
    "communication/exposed": COMMUNICATION,
    "communication/exposed/tp": TENSOR,
    "communication/exposed/pp": PIPELINE,
    "communication/exposed/dp": DATA_PARALLEL,
    "communication/exposed/cp": CONTEXT,
    "communication/exposed/ep": EXPERT,
    "communication/hidden": HIDDEN,
    "bubble": BUBBLE,
    "free": FREE,
    "free/data": DATA,
    "data": DATA,
    "static": COMPUTING,
    "static/parameters": COMPUTING,
    "static/gradients": SKY,
    "static/optimizer": EXPERT,
    "dynamic": COMMUNICATION,
    "dynamic/activations": COMMUNICATION,
    "reserved": BUBBLE,
}

STEP_STATES: Mapping[str, str] = {"measured": COMPUTING, "warm-up": BUBBLE, "outlier": FREE}
PASSES: Mapping[str, str] = {"forward": COMPUTING, "backward": SKY, "recompute": RECOMPUTE}
COVERAGE_STATES: Mapping[str, str] = {"present": SKY, "partial": YELLOW, "empty": "#DDDDDD", "missing": "#E8A377"}

_OTHERS = (COMPUTING, COMMUNICATION, GREEN, DATA, SKY, FREE, YELLOW, BUBBLE)
_LIGHTER = (0.0, 0.28, 0.5, 0.14, 0.4)
"""Shares of white in the parts of one thing, neighbours far apart; more of it would be lost on a light page."""
_DARKER = (1.0, 0.7, 0.84, 0.62, 0.76)
"""What the parts of a pale thing keep of its brightness: those of communication then have 3:1 to a light and to a dark page."""
_PALE = 0.3
"""Luminance from which a colour has less than 3:1 to white."""
_MIDDLE = 0.179
"""Luminance that has the same contrast to black and to white."""

PRESENT: Final = "present"
"""The parameter of a chart that holds what its legend names."""
STRUCTURE: Final = "_perfkit_structure"
"""Attribute of a chart that `drawn_once` made: the same chart without rows. A changed copy of the chart has lost it."""
MAX_STRUCTURES = 16
"""Structures of one chart that are kept: one for every set of its options."""

_Chart = TypeVar("_Chart", bound=alt.TopLevelMixin)
_Options = ParamSpec("_Options")
_Rows = Mapping[str, Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Any]]]


def path_scale(paths: Sequence[str]) -> alt.Scale:
    """The colour scale of breakdown paths, the same on every page."""
    return alt.Scale(domain=list(paths), range=path_colors(paths))


def diverging_scale(largest: float) -> alt.Scale:
    """The scale of what is below 0 (blue) or above (orange), at full colour from `largest` on; 0 has the colour of the page."""
    return alt.Scale(domain=[-largest, largest], domainMid=0, range=[COMPUTING, GROUND, FREE], interpolate="rgb")


def present_scale(colors: Mapping[str, Any], names: Iterable[str]) -> alt.Scale:
    """The scale of those of `colors`, or other marks, that are among `names`: a legend says nothing of what is not drawn."""
    found = set(names)
    shown = {name: mark for name, mark in colors.items() if name in found}
    return alt.Scale(domain=list(shown), range=list(shown.values()))


def present_legend(**given: Any) -> alt.Legend:
    """A legend that names what `with_present` says."""
    return alt.Legend(values=alt.ExprRef(PRESENT), **given)


def present_param(names: Iterable[str]) -> alt.VariableParameter:
    """What `present_legend` reads; all of the `names` of its scale until `with_present` says which."""
    return alt.VariableParameter(name=PRESENT, value=list(names))


def with_present(chart: _Chart, names: Iterable[str]) -> _Chart:
    """`chart` with a legend of these names alone: what comes and goes with the rows changes no structure, so a view stays."""
    return _copied(chart, params=[present_param(names)])


def words_in(rows: Iterable[Mapping[str, Any]], column: str) -> frozenset[str]:
    """The different words in a column of `rows`, as `present_scale` takes them."""
    return frozenset(str(row[column]) for row in rows)


def path_colors(paths: Iterable[str]) -> list[str]:
    """One colour a path: its own or its nearest parent's, each further path of one parent a shade of it."""
    colors: list[str] = []
    seen: dict[str, int] = {}
    unknown: dict[str, str] = {}
    for path in paths:
        root = _known_root(path)
        if root is None:
            root = path.split("/", maxsplit=1)[0]
            unknown.setdefault(root, _OTHERS[len(unknown) % len(_OTHERS)])
        base = PATH_COLORS.get(root) or unknown[root]
        colors.append(_shade(base, seen.get(root, 0)))
        seen[root] = seen.get(root, 0) + 1
    return colors


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame as a data set has them."""
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def tooltip(field: str, name: str, *, title: str | None = None, signed: bool = False) -> alt.Tooltip:
    """A number of a mark, written as `core.quantity` has what `name` ends with; `title` says its prefix, as the axis does."""
    return alt.Tooltip(f"{field}:Q", format=quantity.spelled(name, signed=signed), title=title or alt.Undefined)


def bars(
    rows: _Rows,
    data: str,
    *,
    height: Any,
    mark: Mapping[str, Any] = MappingProxyType({}),
    params: Any = alt.Undefined,
    **channels: Any,
) -> alt.Chart:
    """Bars of one data set of `rows`, as wide as the page has room; `mark`, `params` and `channels` are Vega-Lite's."""
    chart = alt.Chart(alt.NamedData(data), width="container", height=height, params=params).mark_bar(**{"cornerRadius": 1, **mark})
    drawn: alt.Chart = with_rows(chart.encode(**channels), rows)
    return drawn


def powers_axis(channel: str) -> alt.Axis:
    """An axis of a logarithmic scale over many decades, all of whose numbers are powers of ten where it begins below 0.001.

    Lines of the grid stand at powers of ten alone, other numbers than powers at 1, 2 and 5 of each.
    """
    power = "abs(round(log(datum.value) / LN10))"
    digit = "round(datum.value / pow(10, floor(log(datum.value) / LN10 + 0.001)))"
    raised = f"'10' + (datum.value < 0.5 ? '⁻' : '') + substring('⁰¹²³⁴⁵⁶⁷⁸⁹', {power}, {power} + 1)"
    small = f"{digit} == 1 ? {raised} : ''"
    plain = f"indexof([1, 2, 5], {digit}) < 0 ? '' : format(datum.value, ',~g')"
    words = f"domain('{channel}')[0] < 0.0009 ? ({small}) : {plain}"
    lines: Any = {"condition": {"test": f"{digit} == 1", "value": 1}, "value": 0}
    return alt.Axis(labelExpr=words, gridOpacity=lines)


def labelled_scale(pixels: int = LABEL_PIXELS, **given: Any) -> alt.Scale:
    """A scale of bars with a label behind the end of each, which leaves the `pixels` that the longest of them needs."""
    return alt.Scale(zero=True, rangeMax=alt.ExprRef(expr=f"width - {pixels}"), **given)


def with_rows(chart: _Chart, rows: _Rows) -> _Chart:
    """`chart` with its named data sets; `chart.properties(datasets=...)` checks every cell against a schema, 60 us a cell.

    Rows by column instead of one by one are for large data sets of pages: `split` takes them, altair's own output does not.
    """
    return _copied(
        chart, datasets={name: records if isinstance(records, Mapping) else list(records) for name, records in rows.items()}
    )


def _copied(chart: _Chart, **changed: Any) -> _Chart:
    """Altair's own copy of a layered chart copies every layer in depth, twice."""
    parts: dict[str, Any] = vars(chart)
    copy: _Chart = object.__new__(type(chart))
    vars(copy).update({**parts, "_kwds": {**parts["_kwds"], **changed}})
    return copy


def drawn_once(draw: Callable[Concatenate[Any, _Options], _Chart]) -> Callable[Concatenate[Any, _Options], _Chart]:
    """For a function of `rows` and options whose chart, apart from its rows, differs by the options alone: build each chart once.

    Building takes altair ten times as long as a figure's rows take to compute. `split` takes such a chart apart once, too.
    """

    @functools.lru_cache(maxsize=MAX_STRUCTURES)
    def structure(*arguments: Any, **options: Any) -> _Chart:
        return draw({}, *arguments, **options)

    build: Any = structure  # mypy asks that options can be hashed, which a parameter specification cannot say

    @functools.wraps(draw)
    def draw_rows(rows: Any, *arguments: _Options.args, **options: _Options.kwargs) -> _Chart:
        drawn: _Chart = build(*arguments, **options)
        chart = with_rows(drawn, rows)
        object.__setattr__(chart, STRUCTURE, drawn)
        return chart

    draws: Any = draw_rows
    return draws  # type: ignore[no-any-return]


def _known_root(path: str) -> str | None:
    pieces = path.split("/")
    for depth in range(len(pieces), 0, -1):
        if (prefix := "/".join(pieces[:depth])) in PATH_COLORS:
            return prefix
    return None


def luminance(color: str) -> float:
    """Relative luminance of an sRGB colour as WCAG 2 has it, 0 (black) to 1 (white)."""
    parts = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def is_light(color: str) -> bool:
    """Whether black has more contrast on `color` than white."""
    return luminance(color) > _MIDDLE


def _shade(color: str, number: int) -> str:
    """The shade of that number of `color`: darker where it is pale, since a lighter one would be lost on a light page."""
    pale = luminance(color) > _PALE
    steps = _DARKER if pale else _LIGHTER
    share = steps[number % len(steps)]
    channels = (int(color[start : start + 2], 16) for start in (1, 3, 5))
    return "#" + "".join(f"{round(one * share if pale else one + (255 - one) * share):02X}" for one in channels)
