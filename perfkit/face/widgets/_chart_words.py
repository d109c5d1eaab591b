"""Words of a chart in the language of the page: titles of axes and legends, and what stands at ticks, marks and in legends.

The rows stay as they are, so that a click, a file and the notebook have the words of the code; the page tells them in tooltips and
in the table of a chart.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from perfkit.core import quantity, settings
from perfkit.core.texts import PARTS, PATH_LABELS, catalogue, path_words, told
from perfkit.face.charts.spec import UNITS, ChartSpec
from perfkit.face.charts.theme import MAX_STRUCTURES

MAX_WORDS = 500
"""Different words of a column; one with more holds names."""
NAMED = frozenset({"name", "operator", "detail"})
"""Columns beside which "label" is the short form of a name."""
_GUIDES: Mapping[str, str] = {
    **dict.fromkeys(("x", "y"), "axis"),
    **dict.fromkeys(("color", "fill", "stroke", "shape", "opacity", "size", "strokeDash"), "legend"),
    **dict.fromkeys(("row", "column", "facet"), "header"),
}
"""Where the words of a channel are written."""
_READ: dict[str, tuple[dict[str, Any], str]] = {}
"""What `_parts_read` made of a structure, and the digest of that, by the structure's own: a slider changes rows alone."""
_UNIT = re.compile(r"^(?P<words>.*\S) \((?P<unit>[^(),]*)(?:, (?P<more>[^()]*))?\)$")


def in_words(spec: ChartSpec) -> ChartSpec:
    """`spec` with its words in the language of this process; in that of the code only paths of parts are other words."""
    if settings.language() == "en":
        return _read(spec)
    known = {word: said for word, said in _drawn(spec) if said != word}
    written = _written(spec.spec, f"({json.dumps(known, ensure_ascii=False)})" if known else "")
    text = json.dumps(written, sort_keys=True, default=str)
    heads = {name: _head(name, spec.headers) for columns in spec.datasets.values() for name in columns}
    return replace(spec, spec=written, digest=hashlib.sha256(text.encode()).hexdigest()[:16], words=known, heads=heads)


def _read(spec: ChartSpec) -> ChartSpec:
    """`spec` whose paths of parts are read as words; itself where it draws none. Its structure does not depend on which."""
    columns = [values for rows in spec.datasets.values() for name, values in rows.items() if name in PARTS]
    words = {value: path_words(value) for values in columns for value in values if isinstance(value, str) and "/" in value}
    words = {word: said for word, said in words.items() if word != said}
    if not words:
        return spec
    known = _READ.get(spec.digest)
    if known is None:
        if len(_READ) >= MAX_STRUCTURES:
            _READ.clear()
        written = _parts_read(spec.spec)
        text = json.dumps(written, sort_keys=True, default=str)
        known = _READ[spec.digest] = written, hashlib.sha256(text.encode()).hexdigest()[:16]
    written, digest = known
    return replace(spec, spec=written, digest=digest, words=words)


def _parts_read(node: Any) -> Any:
    if isinstance(node, list):
        return [_parts_read(value) for value in node]
    if not isinstance(node, Mapping):
        return node
    read = {key: _parts_read(value) for key, value in node.items()}
    for channel in _named(read):
        guide, drawn = _GUIDES[channel], read[channel].get(_GUIDES[channel], {})
        if read[channel].get("field") in PARTS and isinstance(drawn, Mapping):
            read[channel] = {**read[channel], guide: {"labelExpr": PATH_LABELS, **drawn}}
    return read


def _head(name: str, headers: Mapping[str, str]) -> str:
    """What a column of rows is called, with its unit."""
    if name in headers:
        return f"{told(quantity.label(name))}{headers[name][len(name) :]}"
    unit = "" if "_per_" in name else next((unit for unit in UNITS if name.endswith(f"_{unit.lower()}")), "")
    written = {"us": "µs"}.get(unit, unit)
    return f"{told(quantity.label(name[: -len(unit) - 1]))} ({written})" if unit else told(quantity.label(name))


def _drawn(spec: ChartSpec) -> Iterator[tuple[str, str]]:
    """The words of columns and scales, and what they are called.

    Of names that somebody else may have chosen, which may be any word, only those count that charts say themselves, and phrases.
    """
    own = catalogue(settings.language()).get("said", {})
    for columns in spec.datasets.values():
        names = {*quantity.NAMES, *({"label"} if NAMED & set(columns) else ())} - PARTS
        for name, values in columns.items():
            words = {value for value in values if isinstance(value, str)}
            if len(words) <= MAX_WORDS:
                yield from ((word, own.get(word, word) if name in names and " " not in word else told(word)) for word in words)
    yield from ((word, told(word)) for word in _domains(spec.spec))


def _domains(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key == "domain" and isinstance(value, list):
                yield from (word for word in value if isinstance(word, str))
            else:
                yield from _domains(value)
    elif isinstance(node, list):
        for value in node:
            yield from _domains(value)


def _written(node: Any, words: str) -> Any:
    """`node` of a specification with its titles told, and what it writes beside marks by the mapping `words`."""
    if isinstance(node, list):
        return [_written(value, words) for value in node]
    if not isinstance(node, Mapping):
        return node
    written: dict[str, Any] = {
        key: _title(value) if key in ("title", "text") and isinstance(value, str) else _written(value, words)
        for key, value in node.items()
    }
    text = written.get("text")
    if words and isinstance(text, Mapping) and text.get("type") == "nominal":
        drawn = f"datum[{json.dumps(text['field'])}]"
        written["text"] = {"value": {"expr": f"{words}[{drawn}] || {drawn}"}}
    if isinstance(written.get("tooltip"), list):
        written["tooltip"] = [_headed(line) for line in written["tooltip"]]
    labels = f"{words}[datum.label] || datum.label"
    for channel in _named(written) if words else ():
        guide = _GUIDES[channel]
        drawn = written[channel].get(guide, {})
        if isinstance(drawn, Mapping):
            own = str(drawn.get("labelExpr", "datum.label"))
            written[channel] = {**written[channel], guide: {**drawn, "labelExpr": own.replace("datum.label", labels)}}
    return written


def _headed(line: Any) -> Any:
    """A line of a tooltip with its field as its title where it has none."""
    return line if not isinstance(line, Mapping) or "title" in line else {**line, "title": told(quantity.label(line["field"]))}


def _named(node: Mapping[str, Any]) -> Iterable[str]:
    """The channels of an encoding that write words."""
    for channel in _GUIDES:
        found = node.get(channel)
        if not isinstance(found, Mapping):
            continue
        if ("field" in found and found.get("type") in ("nominal", "ordinal")) or isinstance(found.get("datum"), str):
            yield channel


def _title(text: str) -> str:
    """A title whose words are known, its unit as it is."""
    found = _UNIT.match(text)
    if not found:
        return told(text)
    more = f", {told(found['more'])}" if found["more"] else ""
    return f"{told(found['words'])} ({found['unit']}{more})"
