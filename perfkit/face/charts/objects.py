"""Objects as a notebook shows them: a sentence, bars, a table; and the chart that `plot()` gives.

The bars are HTML without scripts, so that they stand in every front end and in what is exported from it. All texts are escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import singledispatch
from html import escape
from typing import Any, NamedTuple

from perfkit.core.breakdown import Breakdown
from perfkit.core.display import Row, amount_text, breakdown_rows, html_table, text_table
from perfkit.core.params import count_params
from perfkit.core.run import Run
from perfkit.core.spec.plan import Plan
from perfkit.core.texts import told
from perfkit.core.units import format_count, format_ns, format_ratio
from perfkit.explain.diagnose.rule import Diagnosis
from perfkit.explain.ledger import Ledger
from perfkit.explain.steps import parts_of, ranks_to_show, typical_steps
from perfkit.face.charts import breakdown as breakdowns
from perfkit.face.charts import findings, ledger, theme
from perfkit.face.charts.cost import parameter_bars
from perfkit.face.charts.steps import part_rows, rank_bars
from perfkit.predict.estimate import Estimate

BAR = "display:flex;height:14px;max-width:640px;margin:4px 0;background:#e4e9ef"
"""The style of a bar; its pieces grow with their amounts."""


class Content(NamedTuple):
    """What is shown of an object: a title, sentences, bars of amounts by path, the rows of a table."""

    title: str
    sentences: Sequence[str]
    bars: Mapping[str, Mapping[str, float]]
    rows: Sequence[Row]


def html_of(thing: object) -> str:
    """What a notebook shows of an object."""
    shown = content(thing)
    sentences = "".join(f"<p>{escape(told(text))}</p>" for text in shown.sentences if text)
    return sentences + "".join(_bar(name, parts) for name, parts in shown.bars.items()) + html_table(shown.title, shown.rows)


def text_of(thing: object) -> str:
    """The same for a terminal: the sentences, and the table below them."""
    shown = content(thing)
    return "\n".join([*(told(text) for text in shown.sentences if text), text_table(shown.title, shown.rows)])


def _bar(name: str, parts: Mapping[str, float]) -> str:
    total = sum(parts.values())
    if not total:
        return ""
    colors = theme.path_colors(list(parts))
    pieces = "".join(
        f'<div title="{escape(path)}: {format_ratio(amount / total)}" style="flex:{amount};background:{color}"></div>'
        for (path, amount), color in zip(parts.items(), colors, strict=True)
    )
    return f'<div role="img" aria-label="{escape(name)}" style="{BAR}">{pieces}</div>'


@singledispatch
def content(thing: object) -> Content:
    """What is shown of an object; each kind has its own."""
    raise TypeError(f"{type(thing).__name__} has no content to show")


@singledispatch
def chart_of(thing: object) -> Any:
    """The chart of an object; each kind has its own."""
    raise TypeError(f"{type(thing).__name__} has no chart")


@content.register
def _(thing: Breakdown) -> Content:
    title = f"Breakdown of {amount_text(thing.total, thing.unit)} ({thing.source})"
    rows = breakdown_rows(thing.parts, thing.unmeasured, thing.unit)
    return Content(title, [thing.unmeasured_text], {title: thing.collapse(2).parts}, rows)


@chart_of.register
def _(thing: Breakdown) -> Any:
    return breakdowns.bars({"": thing})


@content.register
def _(thing: Estimate) -> Content:
    step = thing.breakdown
    bars: dict[str, Mapping[str, float]] = {"predicted step": step.collapse(2).parts}
    rows = breakdown_rows(step.parts, step.unmeasured, step.unit)
    if thing.memory is not None:
        bars["predicted memory"] = thing.memory.collapse(2).parts
        rows += [
            (
                "peak memory",
                amount_text(thing.memory.total, "bytes"),
                "" if thing.fits is None else "fits" if thing.fits else "does not fit",
            )
        ]
    return Content("The predicted step by part", thing.told(), bars, rows)


@chart_of.register
def _(thing: Estimate) -> Any:
    return breakdowns.bars({"predicted step": thing.breakdown})


@content.register
def _(thing: Ledger) -> Content:
    causes = thing.waterfall()
    parts = zip(causes["words"], causes["ns"], causes["share"], strict=True)
    rows = [(words, format_ns(ns), format_ratio(share)) for words, ns, share in parts]
    return Content(f"The mean step of a rank by cause ({thing.name})", [thing.told()], {}, rows)


@chart_of.register
def _(thing: Ledger) -> Any:
    return ledger.waterfall({"ledger": ledger.waterfall_rows(thing.waterfall())})


@content.register
def _(thing: Diagnosis) -> Content:
    found = [
        (f"{one.severity or 'finding'}: {told(one.title)}", "" if one.cost_ns is None else format_ns(one.cost_ns), one.rule)
        for one in thing.findings
    ]
    counts = f"{len(thing.healthy)} rules healthy, {len(thing.not_measured)} not measured, {len(thing.failed)} failed"
    return Content(f"Findings of {thing.run}: {len(found)} ({counts})", thing.told(), {}, found)


@chart_of.register
def _(thing: Diagnosis) -> Any:
    return findings.cost_bars(findings.cost_rows(thing.to_frame()))


@content.register
def _(thing: Run) -> Content:
    title, rows = thing.contents()
    return Content(title, [], {}, rows)


@chart_of.register
def _(thing: Run) -> Any:
    steps = typical_steps(thing)
    return rank_bars(part_rows(parts_of(thing, steps, ranks_to_show(steps))), unit="ms")


@content.register
def _(thing: Plan) -> Content:
    parameters = count_params(thing.model)
    device = "no device named" if thing.hardware is None else thing.hardware.name
    name, count = thing.model.name or "a model", format_count(int(parameters.total))
    title = f"Plan: {name}, {count} parameters, {thing.num_devices} devices ({device})"
    said = thing.to_frame()
    rows = [(f"{part}.{field}", str(value)) for part, field, value in said.itertuples(index=False)]
    return Content(title, [], {"parameters": parameters.collapse(1).parts}, rows)


@chart_of.register
def _(thing: Plan) -> Any:
    return parameter_bars(count_params(thing.model))
