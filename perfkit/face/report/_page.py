"""Page: parts as one HTML page with its style, its charts and the library that draws them.

The page may load nothing: its content security policy forbids every address, also to a chart that would name one.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfkit.face.charts.spec import ChartSpec, split
from perfkit.face.charts.vega import inline_source, licences, script_text
from perfkit.face.report._parts import Drawing, Part
from perfkit.project.experiments.export import Section

_FOLDER = Path(__file__).parent
_POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:"
_NUMBER = re.compile(r"^(-|[+\-−]?[\d][\d.,\u2009\s]*\s?(%|[A-Za-zµ/]{1,18})?)$")
_VIEW = re.compile(r'"view_\d+"')


def html_page(parts: Sequence[Part]) -> str:
    """The whole page; the first part is its title."""
    drawings = [drawing for part in parts for drawing in part.drawings]
    title = html.escape(parts[0].section.title)
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>",
            f"<style>{(_FOLDER / '_report.css').read_text(encoding='utf-8')}</style></head>",
            '<body><main class="pk">',
            *_body(parts),
            *(_licences() if drawings else ()),
            "</main>",
            *(_scripts(drawings) if drawings else ()),
            "</body></html>",
            "",
        ]
    )


def _body(parts: Sequence[Part]) -> Iterator[str]:
    number = 0
    for index, part in enumerate(parts):
        yield from _section(part.section, index, part.folded, part.drawings, number)
        number += len(part.drawings)
        if index == 0:
            yield _contents(parts)


def _contents(parts: Sequence[Part]) -> str:
    named = [(index, part.section.title) for index, part in enumerate(parts) if part.section.level == 2]
    links = "".join(f'<li><a href="#part-{index}">{html.escape(title)}</a></li>' for index, title in named)
    return f'<nav aria-label="Contents"><ul class="contents">{links}</ul></nav>'


def _section(section: Section, index: int, folded: bool, drawings: Sequence[Drawing], number: int) -> Iterator[str]:
    yield f'<h{section.level} id="part-{index}">{html.escape(section.title)}</h{section.level}>'
    yield from (f"<p>{html.escape(sentence)}</p>" for sentence in section.text)
    for place, drawing in enumerate(drawings, start=number):
        title, alt = html.escape(drawing.title), html.escape(drawing.alt)
        yield f'<div data-chart="{place}"><p class="pk-chart-title">{title}</p></div>'
        yield "" if drawing.alt in section.text else f'<p class="alt">{alt}</p>'
    if section.rows:
        table = _table(section)
        yield f"<details><summary>{len(section.rows)} rows</summary>{table}</details>" if folded else table


def _table(section: Section) -> str:
    numeric = [all(_NUMBER.match(row[column]) for row in section.rows) for column in range(len(section.header))]

    def cell(tag: str, column: int, text: str) -> str:
        scope = ' scope="col"' if tag == "th" else ""
        return f"<{tag}{scope}{' class=n' if numeric[column] else ''}>{html.escape(text)}</{tag}>"

    head = "".join(cell("th", column, text) for column, text in enumerate(section.header))
    rows = "".join(f"<tr>{''.join(cell('td', column, text) for column, text in enumerate(row))}</tr>" for row in section.rows)
    label = html.escape(section.title, quote=True)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{label}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _licences() -> Iterator[str]:
    yield f"<details><summary>Licences of what draws the charts</summary><pre>{html.escape(licences())}</pre></details>"


def _scripts(drawings: Sequence[Drawing]) -> Iterator[str]:
    # Data in a script element ends where its text says so; without "<" it cannot.
    data = json.dumps([_described(drawing, index) for index, drawing in enumerate(drawings)], ensure_ascii=False)
    yield f'<script type="application/json" id="perfkit-charts">{data.replace("<", chr(92) + "u003c")}</script>'
    yield f'<script type="module">{inline_source()}</script>'
    yield f'<script type="module">{script_text((_FOLDER / "_report.js").read_text(encoding="utf-8"))}</script>'


def _described(drawing: Drawing, index: int) -> Mapping[str, Any]:
    spec = drawing.chart if isinstance(drawing.chart, ChartSpec) else split(drawing.chart)
    return {
        "description": {
            "name": f"chart{index + 1}",
            "title": drawing.title,
            "alt": drawing.alt,
            "sources": list(drawing.sources),
            "spec": _numbered_views(spec.spec, index),
            "headers": spec.headers,
        },
        "datasets": spec.datasets,
        "params": spec.params,
    }


def _numbered_views(spec: Mapping[str, Any], chart: int) -> Any:
    """`spec` with views numbered by their place: altair counts them over the whole process, and equal input gives equal bytes."""
    text = json.dumps(spec, ensure_ascii=False)
    for place, name in enumerate(dict.fromkeys(_VIEW.findall(text))):
        text = text.replace(name, f'"chart{chart}view{place}"')
    return json.loads(text)
